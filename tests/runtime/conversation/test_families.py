"""A conversation in each family's own format: thinking, calls, results, answers, and no token read
twice but for thoughts that the template leaves out of the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.agents import MakeEngine
from helpers.families import FAMILIES, TEMPLATES, Family

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import TextDelta, ThinkingDelta, ToolCallStarted
from triplepoint.runtime.conversation.chat import Chat, Message
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.messages import results_in_calls
from triplepoint.runtime.conversation.template import ChatTemplate
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet

MakeTokenizer = Callable[..., Tokenizer]
SYSTEM, RESULT = "Be brief.", 'disk "full"\n at 9'
CALLS = (
    ToolCall("look", {"lines": 2, "path": 'a "b"'}, id="c00010100"),
    ToolCall("look", {"path": "é/c.log"}, id="c00010200"),
)
every = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def look(lines: int = 3, path: str = "") -> str:
    """Looks.

    Args:
        lines: how many.
        path: of the file.
    """
    return RESULT


@pytest.fixture
def agent_of(
    scripted: MakeEngine, make_tokenizer: MakeTokenizer
) -> Callable[[Family, list[str]], Agent]:
    """An agent on a model of the family that says these turns."""

    def make(family: Family, replies: list[str]) -> Agent:
        return Agent(
            scripted(*replies, tokenizer=tokenizer_of(family, make_tokenizer), context=8192),
            tools=look,
            trace=False,
            chat_template=family.template,
            thinking=family.asked,
            system=SYSTEM,
        )

    return make


AgentOf = Callable[[Family, list[str]], Agent]


def tokenizer_of(family: Family, make_tokenizer: MakeTokenizer) -> Tokenizer:
    """A vocabulary with the family's tags as tokens."""
    return make_tokenizer(family.tags, None, family.control, family.eot)


def text_of(agent: Agent) -> str:
    """The conversation as the session has it."""
    engine: Any = agent.setup.engine
    assert agent.session.tokens == agent.ledger.ids
    return engine.tokenizer.decode(agent.session.tokens, special=True)


def rendered(family: Family, agent: Agent, messages: list[dict[str, Any]]) -> str:
    """The same as the template writes it; a recipient where gpt-oss itself puts it."""
    template = ChatTemplate(family.template, bos="<|endoftext|>", eos="<|im_end|>")
    options = {} if family.asked is None else {"enable_thinking": family.asked}
    if family.name in ("qwen36", "lfm2"):
        options["preserve_thinking"] = True
    if family.nests:
        messages = results_in_calls(messages)
    text = template.render(messages, tools=agent.tools.schemas(), options=options)
    return text.replace(
        " to=functions.look<|channel|>commentary json<",
        "<|channel|>commentary to=functions.look <|constrain|>json<",
    )


def result(call: ToolCall) -> dict[str, Any]:
    """What the template is shown of a call's result."""
    return {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": RESULT}


@pytest.mark.slow
@every
def test_a_conversation(agent_of: AgentOf, family: Family) -> None:
    """Two calls with thoughts before them, an answer, another question: the tokens are those of the
    template's own rendering, and only what follows a dropped thought is read again."""
    thoughts = ("I look.", "Again.", "So.", "Sure.") if family.thinks else ("",) * 4
    turns = [
        (thoughts[0], "", CALLS[0]),
        (thoughts[1], "", CALLS[1]),
        (thoughts[2], "It is full.", None),
        (thoughts[3], "Yes.", None),
    ]
    replies = [family.reply(*turn) for turn in turns]
    agent = agent_of(family, list(replies))
    events = list(agent.stream("What is it?"))
    first = agent.last_result
    within, before = text_of(agent), list(agent.session.tokens)
    second = agent.run("Sure?")

    assert agent.setup.conversation.notes == []
    assert {p.constraint for p in agent.trace.phases if p.phase == "decode"} == {family.form}
    assert first is not None
    assert (first.answer, first.thinking) == ("It is full.", thoughts[2])
    assert (second.answer, second.thinking) == ("Yes.", thoughts[3])
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It is full."
    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "".join(thoughts[:3])
    called = [e.arguments for e in events if isinstance(e, ToolCallStarted)]
    assert called == [call.arguments for call in CALLS]

    talk: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "What is it?"},
    ]
    for turn, call in zip(turns, CALLS, strict=False):
        talk += [family.said(*turn), result(call)]
    assert within == rendered(family, agent, talk) + replies[2]
    talk += [family.said(*turns[2]), {"role": "user", "content": "Sure?"}]
    assert text_of(agent) == rendered(family, agent, talk) + replies[3]

    prefills = [p for p in agent.trace.phases if p.phase == "prefill"]
    assert [p.reread_tokens for p in prefills[:3]] == [0, 0, 0]
    if family.keeps or not family.thinks:
        assert prefills[3].reread_tokens == 0
        assert agent.session.tokens[: len(before)] == before
    else:
        assert prefills[3].reread_tokens > 0
        assert "I look." not in text_of(agent)


def test_a_template_that_knows_no_tools(
    scripted: MakeEngine, make_tokenizer: MakeTokenizer
) -> None:
    """DeepSeek-V2-Lite's: tools are told in the system message, calls are JSON, results come as the
    user's, and no token is read twice."""
    template = (TEMPLATES / "deepseek2.jinja").read_text(encoding="utf-8")
    replies = [FORMATS["json"].render([call]) + "<|im_end|>" for call in CALLS]
    agent = Agent(
        scripted(*replies, "It is full.<|im_end|>", tokenizer=make_tokenizer(()), context=8192),
        tools=look,
        trace=False,
        chat_template=template,
        system=SYSTEM,
    )
    events = list(agent.stream("What is it?"))

    assert agent.last_result is not None
    assert agent.last_result.answer == "It is full."
    called = [e.arguments for e in events if isinstance(e, ToolCallStarted)]
    assert called == [call.arguments for call in CALLS]
    assert {p.constraint for p in agent.trace.phases if p.phase == "decode"} == {"json"}
    text = text_of(agent)
    assert '"name": "look"' in text.partition("User: ")[0]
    assert text.count("User: ") == 3
    assert RESULT in text
    assert "describes tools in an unknown format" in " ".join(agent.setup.conversation.notes)
    assert all(phase.reread_tokens == 0 for phase in agent.trace.phases)


@every
def test_a_history_from_elsewhere(make_tokenizer: MakeTokenizer, family: Family) -> None:
    """Messages with calls, results and thoughts that are opened as a whole read as the template
    renders them."""
    thought = "I look." if family.thinks else ""
    call = CALLS[0]
    tokenizer = tokenizer_of(family, make_tokenizer)
    schemas = ToolSet([look]).schemas()
    options = {} if family.asked is None else {"enable_thinking": family.asked}
    chat = Chat(tokenizer, tools=schemas, template=family.template, options=options)
    messages = [
        Message("system", SYSTEM),
        Message("user", "What is it?"),
        Message("assistant", "", calls=(call,), text="", thinking=thought),
        Message("tool", RESULT, call.name, call.id),
    ]

    opened = "".join(segment.text for segment in chat.open(messages))

    shown = [{"role": m.role, "content": m.content} for m in messages[:2]]
    shown += [family.said(thought, "", call), result(call)]
    template = ChatTemplate(family.template, bos="<|endoftext|>", eos="<|im_end|>")
    shown = results_in_calls(shown) if family.nests else shown
    assert opened == template.render(shown, tools=schemas, options=options)


@pytest.mark.parametrize(
    ("name", "end", "called", "ended"),
    [
        (
            "harmony",
            "<|endoftext|>",
            "<|call|><|start|>functions.look",
            "full.<|end|><|start|>user<|message|>Sure?",
        ),
        ("harmony", "<|return|>", "<|call|><|start|>functions.look", "full.<|end|><|start|>user"),
        ("glm", "<|endoftext|>", "</tool_call><|observation|><tool_r", "full.<|user|>Sure?"),
        ("gemma4", "<|im_end|>", "<tool_call|><|tool_response>response:", "full.<turn|>\n<|turn>"),
        (
            "granite4",
            "<|im_end|>",
            "</tool_call><|end_of_text|>\n<|start",
            "full.<|end_of_text|>\n",
        ),
    ],
)
def test_the_template_ends_the_turns(
    agent_of: AgentOf, name: str, end: str, called: str, ended: str
) -> None:
    """Where a model ends its turns in another way than its template does, the template's way stands
    in the history, and nothing is computed again for it."""
    family = next(family for family in FAMILIES if family.name == name)
    turns = [family.reply("", "", CALLS[1]), family.reply("", "It is full.", None)]
    replies = [turn[: turn.rindex("<")] + end for turn in turns]
    if name == "glm":  # whose prompt opens the thinking
        replies = ["</think>" + reply for reply in replies]
    agent = agent_of(family, [*replies, replies[1]])
    agent.run("What is it?")
    agent.run("Sure?")

    text = text_of(agent)
    assert called in text
    assert ended in text
    assert end not in text.removeprefix("<|endoftext|>").removesuffix(end)
    assert all(phase.reread_tokens == 0 for phase in agent.trace.phases)


def test_old_thoughts_can_be_kept_or_dropped(make_tokenizer: MakeTokenizer) -> None:
    """`preserve_thinking` is on where a template has it, and has each template's own name."""
    families = {family.name: family for family in FAMILIES}

    def kept(name: str, **options: bool) -> bool:
        family = families[name]
        tokenizer = tokenizer_of(family, make_tokenizer)
        chat = Chat(tokenizer, template=family.template, options=options)
        assert chat.notes == []
        return chat.keeps_thoughts(old=True)

    assert [kept(name) for name in ("qwen36", "lfm2", "glm", "nemotron3")] == [
        True,
        True,
        False,
        False,
    ]
    for name in ("qwen36", "lfm2", "glm", "nemotron3"):
        assert kept(name, preserve_thinking=True)
        assert not kept(name, preserve_thinking=False)
    chat = Chat(
        tokenizer_of(families["qwen35"], make_tokenizer),
        template=families["qwen35"].template,
        options={"preserve_thinking": True},
    )
    assert chat.notes == ["the chat template has no switch for thinking in its history"]


@pytest.mark.parametrize(
    ("name", "left"),
    [("glm", "</think>"), ("nemotron3", "<think></think>"), ("qwen35", ""), ("harmony", "")],
)
def test_what_is_left_of_a_thought(make_tokenizer: MakeTokenizer, name: str, left: str) -> None:
    """Some templates leave tags where a thought was."""
    family = next(family for family in FAMILIES if family.name == name)
    tokenizer = tokenizer_of(family, make_tokenizer)
    chat = Chat(tokenizer, template=family.template)

    assert tokenizer.decode(chat.left_of_thought, special=True) == left


def test_undo_where_a_thought_left_its_tags(agent_of: AgentOf) -> None:
    """A question that is taken back leaves the conversation as it was before it."""
    family = next(family for family in FAMILIES if family.name == "nemotron3")
    replies = [family.reply(f"Thought {i}.", f"Answer {i}.", None) for i in range(4)]
    agent = agent_of(family, replies)
    agent.run("First?")
    agent.run("Second?")
    assert agent.undo() == "Second?"
    text = text_of(agent)

    assert "Thought" not in text
    assert text.endswith("assistant\n<think></think>Answer 0.<|im_end|>")
    agent.run("Third?")
    assert "<think></think>Answer 0.<|im_end|>\n<|im_start|>user\nThird?" in text_of(agent)
    assert agent.undo() == "Third?"
    assert agent.undo() == "First?"
    assert agent.session.tokens == []


@every
def test_another_question_after_undo(agent_of: AgentOf, family: Family) -> None:
    """It stands where it would stand if the one that was taken back had never been asked: also
    where the template ends a turn in another way than the model."""
    replies = [family.reply("", f"Answer {i}.", None) for i in range(3)]
    agent, fresh = agent_of(family, replies), agent_of(family, [replies[0], replies[2]])
    agent.run("First?")
    agent.run("Second?")
    agent.undo()
    agent.run("Third?")
    fresh.run("First?")
    fresh.run("Third?")

    assert agent.ledger.ids == fresh.ledger.ids == agent.session.tokens


def test_the_agent_shows_no_headers(agent_of: AgentOf) -> None:
    """What gpt-oss says aloud is in messages and traces without the headers around it."""
    family = FAMILIES[0]
    assert family.name == "harmony"
    before = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    replies = [
        before + family.reply("", "", CALLS[1]),
        family.reply("So.", "It is full.", None),
    ]
    agent = agent_of(family, replies)
    events = list(agent.stream("What is it?"))

    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I look.It is full."
    said = [event for event in agent.trace.events if getattr(event, "role", "") == "assistant"]
    contents = [getattr(event, "content", "") for event in said]
    assert contents[0].startswith("I look.\n<|channel|>commentary to=functions.look")
    assert contents[1] == "It is full."
    assert agent.messages[-1].content.startswith("<|channel|>analysis<|message|>So.<|end|>")


def test_headers_in_letters(scripted: MakeEngine, tokenizer: Tokenizer) -> None:
    """A model whose vocabulary has none of the tags is talked to as well."""
    family = FAMILIES[0]
    turns = [("I look.", "", CALLS[1]), ("So.", "It is full.", None)]
    replies = [family.reply(*turn).removesuffix("<|call|>") for turn in turns]
    replies = [reply.removesuffix("<|return|>") + "<|im_end|>" for reply in replies]
    agent = Agent(
        scripted(*replies, tokenizer=tokenizer),
        tools=look,
        trace=False,
        chat_template=family.template,
    )
    result = agent.run("What is it?")

    assert (result.answer, result.thinking) == ("It is full.", "So.")
    follows = '{"path": "é/c.log"}<|im_end|><|start|>functions.look to=assistant'
    assert follows in text_of(agent)


def test_what_ends_a_turn_is_not_said(agent_of: AgentOf) -> None:
    """Also where the vocabulary has it as a token that is shown: Gemma 4's that opens a result."""
    family = next(family for family in FAMILIES if family.name == "gemma4")
    agent = agent_of(family, [family.reply("", "", CALLS[1]), family.reply("", "It is.", None)])
    events = list(agent.stream("What is it?"))

    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It is."
    said = [m.content for m in agent.messages if m.role == "assistant"]
    assert said[0].endswith("<tool_call|>")


@every
def test_an_agent_without_tools(
    scripted: MakeEngine, make_tokenizer: MakeTokenizer, family: Family
) -> None:
    """Thinking and answer are told apart and dropped or kept without any tools as well."""
    replies = [
        family.reply("Hm." if family.thinks else "", "It is.", None),
        family.reply("", "Yes.", None),
    ]
    if family.reply("Hm.", "", None).startswith(("Hm.", "\n")):
        replies[1] = family.reply("Sure.", "Yes.", None)
    agent = Agent(
        scripted(*replies, tokenizer=tokenizer_of(family, make_tokenizer)),
        trace=False,
        chat_template=family.template,
        thinking=family.asked,
        system=SYSTEM,
    )
    first = agent.run("What is it?")
    second = agent.run("Sure?")

    assert (first.answer, second.answer) == ("It is.", "Yes.")
    assert first.thinking == ("Hm." if family.thinks else "")
    assert ("Hm." in text_of(agent)) is (family.thinks and family.keeps)
    assert agent.setup.conversation.notes == []
