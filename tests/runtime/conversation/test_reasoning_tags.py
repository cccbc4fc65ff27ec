"""Thinking: told apart from the answer, kept or dropped in the history as the template says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.agents import END, MakeEngine, call, conversation_of

from triplepoint.errors import ContextOverflowError, PassCancelledError
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import PhaseFinished, TextDelta, ThinkingDelta
from triplepoint.runtime.conversation.chat import Chat, Message
from triplepoint.runtime.conversation.reasoning_spans import THOUGHT
from triplepoint.runtime.conversation.reasoning_tags import Thinking, thinking_of
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.traces import Trace
from triplepoint.traces.events import MessageEvent
from triplepoint.traces.timeline import plain

TEMPLATES = Path(__file__).parents[4] / "shared" / "reference" / "templates"
MakeTokenizer = Callable[..., Tokenizer]

DROPS_OLD = """\
{%- set ns = namespace(last=0) -%}
{%- for m in messages if m.role == 'user' %}{% set ns.last = messages.index(m) %}{% endfor -%}
{%- for tool in tools or [] %}{{ tool | tojson }}<tool_call>{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set said = m.content -%}
{%- if '</think>' in said and loop.index0 < ns.last -%}
{%- set said = said.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{{- '<|im_start|>assistant\\n' + said + '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' -}}"""
"""As Qwen3's: thinking of turns before the last question is left out."""
OPENS = DROPS_OLD.removesuffix("' -}}") + "<think>\\n' -}}"
KEEPS = DROPS_OLD.replace("'</think>' in said", "false")
DROPS_ALL = DROPS_OLD.replace(" and loop.index0 < ns.last", "")


def think(thought: str, then: str) -> str:
    """A turn that thinks first."""
    return f"<think>\n{thought}\n</think>\n\n{then}{END}"


def look() -> str:
    """Looks."""
    return "disk full"


TURN = (think("I should look.", call("look")), think("So it is full.", "It is full."))


def tokenizer_of(agent: Agent) -> Tokenizer:
    """The tokenizer of the agent's own engine."""
    engine: Any = agent.setup.engine
    return engine.tokenizer


def text_of(agent: Agent) -> str:
    """The conversation as the session has it."""
    return tokenizer_of(agent).decode(agent.session.tokens, special=True)


def rounds(agent: Agent) -> None:
    """The session holds what the ledger says, and every span is in its place."""
    assert agent.session.tokens == agent.ledger.ids
    at = 0
    for span in agent.ledger.spans:
        assert span.start == at
        at = span.end
    assert at == len(agent.ledger)


def test_dropped_when_the_next_question_comes(scripted: MakeEngine) -> None:
    """Thinking is there within its turn; with the next question it goes, and the rest stays."""
    agent = Agent(scripted(*TURN, "Yes." + END), tools=look, trace=False, chat_template=DROPS_OLD)
    first = agent.run("What is it?")
    within = text_of(agent)
    second = agent.run("Sure?")

    assert "I should look." in within
    assert "So it is full." in within
    assert within.count("<think>") == 2
    after = text_of(agent)
    assert "think>" not in after
    assert after.replace("Yes." + END, "") == (
        within.replace("<think>\nI should look.\n</think>\n\n", "").replace(
            "<think>\nSo it is full.\n</think>\n\n", ""
        )
        + "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    )
    rounds(agent)
    assert (first.thinking, first.answer) == ("So it is full.", "It is full.")
    assert (second.thinking, second.answer) == ("", "Yes.")


def test_what_the_reading_again_cost(scripted: MakeEngine) -> None:
    """The phase, the turn and the report say how many tokens were recomputed; no others were."""
    agent = Agent(
        scripted(*TURN, "Yes." + END, "No." + END), tools=look, trace=False, chat_template=DROPS_OLD
    )
    agent.run("What is it?")
    before = list(agent.session.tokens)
    starts = [span.start for span in agent.ledger.spans if span.label == THOUGHT]
    session: Any = agent.session
    events = list(agent.stream("Sure?"))

    fed = session.prefills[-1]
    kept = before[starts[0] :]
    reuse = next(e.reuse for e in events if isinstance(e, PhaseFinished) and e.reuse)
    phase = agent.trace.phases[-2]
    new = tokenizer_of(agent).encode(
        "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n", special=True
    )
    assert phase.reread_tokens == reuse.reread == len(fed) - len(new)
    assert 0 < phase.reread_tokens < len(kept)
    assert reuse.reused == starts[0]
    assert re.search(r" in [\d.]+ (µs|ms|s) without the thinking before them$", str(reuse))
    assert str(reuse.miss).startswith(f"token {starts[0]} differs, in the generated tokens of mess")
    assert phase.miss is not None
    assert (phase.miss.label, phase.miss.tokens) == (THOUGHT, phase.reread_tokens)
    assert phase.miss.expected == agent.ledger.ids[starts[0]]
    assert phase.miss.found == before[starts[0]]
    assert phase.miss.seconds == pytest.approx(phase.wall_s * phase.miss.tokens / phase.tokens)
    assert f"recomputed {phase.miss.tokens} tokens in" in plain(agent.trace)
    assert agent.last_result is not None
    assert agent.last_result.usage.reread_tokens == phase.reread_tokens
    assert " without the thinking before them" in str(agent.last_result.usage.reuse)
    assert agent.trace.turns[-1].end is not None
    assert agent.trace.turns[-1].end.reread_tokens == phase.reread_tokens
    agent.run("Really?")
    assert agent.trace.phases[-2].reread_tokens == 0


def test_kept_where_the_template_keeps_it(scripted: MakeEngine) -> None:
    """With a template that keeps thinking, nothing is taken out and nothing recomputed."""
    agent = Agent(scripted(*TURN, "Yes." + END), tools=look, trace=False, chat_template=KEEPS)
    agent.run("What is it?")
    before = list(agent.session.tokens)
    agent.run("Sure?")

    assert agent.session.tokens[: len(before)] == before
    assert all(phase.reread_tokens == 0 for phase in agent.trace.phases)


def test_dropped_at_once(scripted: MakeEngine) -> None:
    """A template that keeps no thinking at all loses it with the next tool result."""
    agent = Agent(scripted(*TURN), tools=look, trace=False, chat_template=DROPS_ALL)
    agent.run("What is it?")

    said = text_of(agent)
    assert "I should look." not in said
    assert f"assistant\n{call('look')}<|im_end|>" in said
    assert "So it is full." in said
    rounds(agent)


def test_thinking_that_the_template_opens(scripted: MakeEngine) -> None:
    """The tag that the template has written goes with the thinking that it opened."""
    assert OPENS.endswith("assistant\\n<think>\\n' -}}")
    replies = ("Hm.\n</think>\n\nIt is." + END, "No need.\n</think>\n\nYes." + END)
    agent = Agent(scripted(*replies), trace=False, chat_template=OPENS)
    agent.run("What is it?")
    assert "assistant\n<think>\nHm.\n</think>\n\nIt is." in text_of(agent)
    agent.run("Sure?")

    said = text_of(agent)
    assert "assistant\nIt is.<|im_end|>\n" in said
    assert said.endswith("assistant\n<think>\nNo need.\n</think>\n\nYes.<|im_end|>")
    rounds(agent)


def test_an_empty_thought_stays(scripted: MakeEngine) -> None:
    """A pair of tags with nothing in it is not worth reading the turn again."""
    agent = Agent(
        scripted("<think>\n\n</think>\n\nIt is." + END, "Yes." + END),
        trace=False,
        chat_template=DROPS_OLD,
    )
    agent.run("What is it?")
    agent.run("Sure?")

    assert "<think>\n\n</think>\n\nIt is." in text_of(agent)
    assert all(phase.reread_tokens == 0 for phase in agent.trace.phases)


def test_tags_in_letters(scripted: MakeEngine, make_tokenizer: MakeTokenizer) -> None:
    """In a vocabulary without the tags the letters are told apart and dropped just as well."""
    engine = scripted(*TURN[1:], "Yes." + END, tokenizer=make_tokenizer(tags=()))
    agent = Agent(engine, trace=False, chat_template=DROPS_OLD)
    first = agent.run("What is it?")
    agent.run("Sure?")

    assert (first.answer, first.thinking) == ("It is full.", "So it is full.")
    assert "think" not in text_of(agent)
    assert "assistant\nIt is full.<|im_end|>" in text_of(agent)
    rounds(agent)


def test_the_same_as_the_reference(scripted: MakeEngine) -> None:
    """With Qwen3's own template the tokens are those of transformers' rendering."""
    path = TEMPLATES / "Qwen-Qwen3-0.6B.jinja"
    if not path.exists():
        pytest.skip("the reference templates are not beside this checkout")
    reference = pytest.importorskip("transformers.utils.chat_template_utils")
    template = path.read_text(encoding="utf-8")
    agent = Agent(scripted(*TURN, "Yes." + END), tools=look, trace=False, chat_template=template)
    agent.run("What is it?")
    agent.run("Sure?")
    called = {"type": "function", "function": {"name": "look", "arguments": {}}}
    messages = [
        {"role": "system", "content": agent.setup.config.system},
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "reasoning_content": "x", "content": "", "tool_calls": [called]},
        {"role": "tool", "content": "disk full"},
        {"role": "assistant", "content": "<think>\nSo it is full.\n</think>\n\nIt is full."},
        {"role": "user", "content": "Sure?"},
    ]
    whole = reference.render_jinja_template(
        [messages], tools=agent.tools.schemas(), chat_template=template, add_generation_prompt=True
    )[0][0]

    assert text_of(agent) == whole + "Yes." + END
    assert agent.session.tokens == tokenizer_of(agent).encode(text_of(agent), special=True)


# What can go wrong.


def test_undo_after_thinking_was_dropped(scripted: MakeEngine) -> None:
    """Taking back a question goes to where it began, though tokens before it have gone."""
    replies = (*TURN, think("Of course.", "Yes."), "Again." + END)
    agent = Agent(scripted(*replies), tools=look, trace=False, chat_template=DROPS_OLD)
    agent.run("What is it?")
    agent.run("Sure?")
    assert agent.undo() == "Sure?"
    said = text_of(agent)

    assert said.endswith("<|im_start|>assistant\nIt is full.<|im_end|>")
    rounds(agent)
    agent.run("What?")
    assert "Sure?" not in text_of(agent)
    assert agent.undo() == "What?"
    assert agent.undo() == "What is it?"
    assert agent.session.tokens == []


def test_a_question_that_does_not_fit(scripted: MakeEngine) -> None:
    """When the new question does not fit, the conversation is as it was, thinking included."""
    agent = Agent(
        scripted(*TURN, "Yes." + END, context=700), tools=look, trace=False, chat_template=DROPS_OLD
    )
    agent.run("What is it?")
    before = text_of(agent)

    with pytest.raises(ContextOverflowError):
        agent.run("word " * 700)

    assert text_of(agent) == before
    rounds(agent)
    agent.run("Sure?")
    assert "think>" not in text_of(agent)


def test_a_cancelled_reading(scripted: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the reading was stopped, the thinking is gone and the conversation goes on."""
    agent = Agent(scripted(*TURN, "Yes." + END), tools=look, trace=False, chat_template=DROPS_OLD)
    agent.run("What is it?")
    session: Any = agent.session

    def cancelled(ids: Any, **_: Any) -> None:
        session.tokens += ids
        raise PassCancelledError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(session, "prefill", cancelled)
        with pytest.raises(PassCancelledError):
            agent.run("Sure?")

    rounds(agent)
    assert text_of(agent).endswith("assistant\nIt is full.<|im_end|>")
    assert agent.run("Again?").answer == "Yes."
    rounds(agent)


# What is shown and recorded.


def test_shown_and_recorded_apart(scripted: MakeEngine, tmp_path: Path) -> None:
    """Thinking has its own events, and its own field of a message in the trace."""
    path = tmp_path / "run.jsonl"
    with Agent(scripted(*TURN), tools=look, trace=path, chat_template=DROPS_OLD) as agent:
        events = list(agent.stream("What is it?"))

    assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == (
        "I should look.So it is full."
    )
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "It is full."
    said = [
        (event.content, event.thinking)
        for event in Trace.load(path).events
        if isinstance(event, MessageEvent) and event.role == "assistant"
    ]
    assert said == [(call("look"), "I should look."), ("It is full.", "So it is full.")]


# The switch.


@pytest.mark.parametrize(
    ("source", "off"),
    [
        ("{{ '-' if enable_thinking is false else '+' }}", "-"),
        ("{{ '+' if thinking else '-' }}", "-"),
        ("+", "+"),
    ],
)
def test_the_switch_has_the_templates_name(tokenizer: Tokenizer, source: str, off: str) -> None:
    """enable_thinking reaches the template under its own name for it, or it is said."""
    template = source + "{{ messages[0].content }}"
    texts = {}
    for wanted in (True, False):
        chat = Chat(tokenizer, template=template, options={"enable_thinking": wanted})
        texts[wanted] = chat.open([Message("user", "x")])[0].text
        said = any("no switch for thinking" in note for note in chat.notes)
        assert said == ("thinking" not in source)

    assert texts == {True: "+", False: off}


def test_which_tags(make_tokenizer: MakeTokenizer) -> None:
    """The tags are those of the template, then those of the vocabulary."""
    plain = make_tokenizer(tags=())
    assert thinking_of("… <think> … </think> …", plain) == Thinking()
    assert thinking_of("[THINK] [/THINK]", plain).opening == "[THINK]"
    granite = thinking_of("<think></think> and <response></response>", plain)
    assert granite.around == ("<response>", "</response>")
    assert thinking_of("", make_tokenizer(tags=("[THINK]", "[/THINK]"))).closing == "[/THINK]"
    assert thinking_of("", plain) == Thinking()


# On the real engine.


class Forced:
    """A constraint that allows one text and nothing else."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self._ids = tokenizer.encode(text, special=True)
        self._words = np.zeros(-(-tokenizer.n_vocab // 32), np.uint32)
        self.done = False

    def mask(self) -> np.ndarray[Any, Any]:
        self._words[:] = 0
        self._words[self._ids[0] // 32] = np.uint32(1 << self._ids[0] % 32)
        return self._words

    def advance(self, token: int) -> None:
        assert token == self._ids.pop(0)
        self.done = not self._ids


def test_the_cache_is_as_if_it_had_never_thought(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After thinking was dropped, logits are bit for bit those of a session that reads the rest."""
    agent = Agent(engine, tools=look, trace=False, chat_template=DROPS_OLD)
    script = [*TURN, "Yes." + END]

    def constraint(**_: Any) -> Forced:
        return Forced(engine.tokenizer, script.pop(0))

    monkeypatch.setattr(conversation_of(agent).grammar, "constraint", constraint)
    agent.run("What is it?")
    agent.run("Sure?")
    assert "think" not in text_of(agent)
    agent.session.prefill([])
    logits = agent.session.logits.copy()
    fresh = engine.session()
    fresh.prefill(agent.session.tokens)

    assert np.array_equal(logits, fresh.logits)
    assert agent.trace.phases[-2].kv_before == agent.trace.phases[-2].cached_tokens
    rounds(agent)
