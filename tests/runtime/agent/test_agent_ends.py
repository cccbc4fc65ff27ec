"""How runs end before their answer: limits, repeats, overflow, interrupts, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, conversation_of, run_all
from helpers.families import TEMPLATES

from triplepoint import EditTools, tool
from triplepoint.errors import (
    AgentError,
    ContextOverflowError,
    LimitReachedError,
    PassCancelledError,
    TraceError,
)
from triplepoint.runtime import nano
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import (
    RunFinished,
)
from triplepoint.runtime.agent.prompt import INTERRUPTED_CALL, REPEATED_CALL
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.traces import Trace
from triplepoint.traces.events import RunEnd, TurnEnd

MakeTokenizer = Callable[..., Tokenizer]


def test_steps_are_limited(scripted: MakeEngine, folder: Path) -> None:
    """A model that only calls is stopped after max_steps; the last calls are not run."""
    replies = [call("search", pattern=f"word {i}") + END for i in range(9)]
    agent = Agent(scripted(*replies), workspace=folder, harness=False, max_steps=3, trace=False)

    with pytest.raises(LimitReachedError, match="no answer after 3 steps"):
        agent.run("Find it")

    assert agent.last_result is not None
    assert agent.last_result.status == "limit"
    assert len(agent.trace.tools) == 2
    assert len(agent.setup.engine.replies) == 6  # type: ignore[attr-defined]


def test_tokens_are_limited(scripted: MakeEngine, folder: Path) -> None:
    """An answer that is cut is a limit, and what there was of it is kept."""
    agent = Agent(
        scripted("word " * 100 + END), workspace=folder, harness=False, max_tokens=10, trace=False
    )

    events, result = run_all(agent, "Talk")

    assert result.status == "limit"
    assert "the answer was cut after 10 generated tokens" in result.message
    assert result.answer.startswith("word word")
    assert result.usage.output_tokens == 10
    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert (end.status, end.answer) == ("limit", result.answer)
    assert not any(isinstance(e, TurnEnd) for e in agent.trace.events)
    assert isinstance(events[-1], RunFinished)


def test_a_cut_call_never_runs(scripted: MakeEngine, folder: Path) -> None:
    """A call that the token limit cut, and one before it in the same turn, are not run."""
    ran: list[str] = []

    def note(text: str) -> str:
        """Notes a text."""
        ran.append(text)
        return "ok"

    reply = call("note", text="a") + "\n" + call("note", text="b" * 300) + END
    agent = Agent(scripted(reply), tools=[note], max_tokens=60, trace=False)

    with pytest.raises(LimitReachedError, match="a tool call, which was not run, was cut"):
        agent.run("Note it")

    assert ran == []
    assert agent.trace.phases[-1].purpose == "tool_call"


def test_tokens_of_all_steps_count(scripted: MakeEngine, folder: Path) -> None:
    """max_tokens is for the whole run, not for each step."""
    replies = [call("search", pattern=f"word {i}") + END for i in range(9)]
    agent = Agent(scripted(*replies), workspace=folder, harness=False, max_tokens=60, trace=False)

    with pytest.raises(LimitReachedError, match=r"allow more \(max_tokens\)"):
        agent.run("Find it")

    assert agent.last_result is not None
    assert agent.last_result.usage.output_tokens <= 60


def test_repeated_calls_are_noticed(scripted: MakeEngine, folder: Path) -> None:
    """The third identical call is not run, and the model is told; the next one ends the run."""
    reply = call("read_file", path="app.log") + END
    agent = Agent(scripted(*[reply] * 8), workspace=folder, harness=False, trace=False)

    with pytest.raises(LimitReachedError, match=r"repeats one call: .*app\.log"):
        agent.run("Read it")

    results = [event.result for event in agent.trace.tools]
    assert len(results) == 3
    assert results[0] == results[1] != REPEATED_CALL
    assert results[2] == REPEATED_CALL


def test_a_warned_model_may_go_on(scripted: MakeEngine, folder: Path) -> None:
    """A model that answers after the warning has answered."""
    reply = call("read_file", path="app.log") + END
    agent = Agent(
        scripted(*[reply] * 3, "Disk full." + END), workspace=folder, harness=False, trace=False
    )

    assert agent.run("Read it").answer == "Disk full."


def test_a_call_with_a_new_result_is_no_repeat(scripted: MakeEngine) -> None:
    """Asking for what changes is fine."""
    numbers = iter(range(100))

    def count() -> int:
        """Counts."""
        return next(numbers)

    agent = Agent(scripted(*[call("count") + END] * 5, "5" + END), tools=count, trace=False)

    assert agent.run("Count").answer == "5"
    assert [event.result for event in agent.trace.tools] == ["0", "1", "2", "3", "4"]


def test_what_others_give_is_new_after_a_change(scripted: MakeEngine, tmp_path: Path) -> None:
    """A file is read as often as it is edited; an edit that is made again is no reason."""
    (tmp_path / "a.txt").write_text("x1")
    read, end = call("read_file", path="a.txt") + END, "Done." + END
    edits = [call("edit_file", path="a.txt", old=f"x{n}", new=f"x{n + 1}") + END for n in (1, 2)]
    tools = EditTools(tmp_path)
    replies = (read, read, edits[0], read, read, edits[1], read, end)
    agent = Agent(
        scripted(*replies),
        tools=tools,
        workspace=tmp_path,
        harness=False,
        policy="yes",
        trace=False,
    )
    assert agent.run("Edit it").answer == "Done."
    assert [event.error for event in agent.trace.tools] == [None] * 7

    touch = call("touched") + END
    agent = Agent(scripted(*[touch, read] * 9), tools=touched, workspace=tmp_path, policy="yes",
                  harness=False, max_steps=20, trace=False)  # fmt: skip
    with pytest.raises(LimitReachedError, match="repeats one call"):
        agent.run("Loop")


@tool(effect="write")
def touched() -> str:
    """Changes nothing."""
    return "ok"


ALTERNATING = """{%- set ns = namespace(user=true) -%}
{%- for m in messages if m.role == 'user' or m.role == 'assistant' and not m.tool_calls -%}
{%- if (m.role == 'user') != ns.user -%}{{ raise_exception('Turns must alternate.') }}{%- endif -%}
{%- set ns.user = not ns.user -%}
{%- endfor -%}
"""


def test_calls_that_a_run_ended_on_get_results(scripted: MakeEngine, folder: Path) -> None:
    """What those gave that ran, and word that the others did not; turns stay in order."""

    def note(text: str) -> str:
        """Notes a text."""
        agent.stop()
        return f"noted {text}"

    asks = call("note", text="a") + "\n" + call("note", text="b") + END
    template = Path(nano.__file__).with_name("template.jinja")
    source = ALTERNATING + template.read_text()
    agent = Agent(scripted(asks, "Fine." + END), tools=note, chat_template=source, trace=False)
    with pytest.raises(PassCancelledError):
        agent.run("Note a and b")

    assert agent.run("And now?").answer == "Fine."
    told = [message.content for message in agent.messages if message.role == "tool"]
    assert told == ["noted a", INTERRUPTED_CALL]
    assert agent.session.tokens == agent.ledger.ids


def test_overflow_says_how_long_what_was(scripted: MakeEngine, folder: Path) -> None:
    """A result that does not fit is an error that names each part; the conversation stays."""
    (folder / "long.txt").write_text("a line of words\n" * 100)
    replies = (call("list_dir") + END, call("read_file", path="long.txt") + END, "Too long." + END)
    agent = Agent(scripted(*replies, context=500), workspace=folder, harness=False, trace=False)

    with pytest.raises(ContextOverflowError) as caught:
        agent.run("What's in long.txt?")

    message = str(caught.value)
    for part in (
        "the context holds 500 tokens",
        "free",
        "system and tools",
        "question (message 1)",
        "list_dir (message 3)",
        "read_file (message 5)",
        "what the model wrote",
    ):
        assert part in message, message
    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "error"
    assert agent.session.tokens == agent.ledger.ids
    assert agent.run("So?").answer == "Too long."


def test_a_context_that_fills_while_decoding(scripted: MakeEngine, folder: Path) -> None:
    """An answer that the context cuts is an overflow, not an answer."""
    words = " ".join(f"word {n}" for n in range(500))
    agent = Agent(scripted(words + END, context=300), workspace=folder, harness=False, trace=False)

    with pytest.raises(ContextOverflowError, match="filled up before the model finished"):
        agent.run("Talk")

    assert agent.session.tokens == agent.ledger.ids


# Interruptions and faults.


def test_ctrl_c_keeps_the_conversation(scripted: MakeEngine, folder: Path) -> None:
    """An interrupt in a decode is recorded as cancelled; the next question goes on from there."""
    agent = Agent(
        scripted(["The disk", KeyboardInterrupt()], "Full." + END),
        workspace=folder,
        harness=False,
        trace=False,
    )

    with pytest.raises(KeyboardInterrupt):
        agent.run("What's the error?")

    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert (end.status, end.answer) == ("cancelled", "The disk")
    assert agent.trace.phases[-1].tokens == len(
        conversation_of(agent).grammar.tokenizer.encode("The disk")
    )
    assert agent.run("And?").answer == "Full."
    said = conversation_of(agent).grammar.tokenizer.decode(agent.session.tokens, special=True)
    assert "assistant\nThe disk<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n" in said
    assert agent.session.tokens == agent.ledger.ids


@pytest.mark.parametrize("said", ["<think>\nHm", "<think>\nHm.\n</think>\n\n", "<think>"])
@pytest.mark.parametrize("family", ["qwen3", "qwen35", "glm"])
def test_a_turn_that_ended_within_its_thought(
    make_tokenizer: MakeTokenizer, scripted: MakeEngine, family: str, said: str
) -> None:
    """Another agent goes on with it, though its template drops the thought: nothing was said."""
    template = (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")
    engine = scripted(
        [said, KeyboardInterrupt()], "Full." + END, tokenizer=make_tokenizer(template=template)
    )
    agent = Agent(engine, trace=False)
    with pytest.raises(KeyboardInterrupt):
        agent.run("What's the error?")

    other = Agent(engine, trace=False)
    other.setup.conversation.load_history(agent.messages)

    other.run("And?")
    assert other.messages[-1].content.startswith("Full.")


def test_an_interrupt_before_the_first_token(scripted: MakeEngine, folder: Path) -> None:
    """A turn in which the model said nothing does not confuse the next one."""
    agent = Agent(
        scripted([PassCancelledError("stopped")], "Full." + END),
        workspace=folder,
        harness=False,
        trace=False,
    )

    with pytest.raises(PassCancelledError):
        agent.run("What's the error?")

    assert agent.run("And?").answer == "Full."
    said = conversation_of(agent).grammar.tokenizer.decode(agent.session.tokens, special=True)
    assert said.count("What's the error?") == 1
    assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nAnd?" in said


def test_a_cancelled_prefill_never_happened(
    scripted: MakeEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When reading the question was stopped, the conversation is as it was before it."""
    agent = Agent(
        scripted("Hi." + END, "Full." + END), workspace=folder, harness=False, trace=False
    )
    agent.run("Hello")
    session: Any = agent.session
    before = list(session.tokens)

    def cancelled(ids: Any, **_: Any) -> None:
        session.tokens += ids[:5]
        raise PassCancelledError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(session, "prefill", cancelled)
        with pytest.raises(PassCancelledError):
            agent.run("What's the error?")

    assert session.tokens == agent.ledger.ids == before
    assert agent.run("Again?").answer == "Full."


@pytest.mark.parametrize("events", [1, 2, 3, 4, 5, 6, 8])
def test_a_stream_that_is_left(scripted: MakeEngine, folder: Path, events: int) -> None:
    """Leaving a stream anywhere ends the run as cancelled and keeps the conversation."""
    replies = ("Look. " + call("list_dir") + END, "Two names." + END, "Full." + END)
    agent = Agent(scripted(*replies), workspace=folder, harness=False, trace=False)

    stream = agent.stream("Which files?")
    for _ in range(events):
        next(stream)
    assert isinstance(stream, Iterator)
    stream.close()  # type: ignore[attr-defined]

    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "cancelled"
    assert agent.session.tokens == agent.ledger.ids
    agent.setup.engine.replies[:] = ["Full." + END]  # type: ignore[attr-defined]
    assert agent.run("And?").answer == "Full."


def test_stop_between_phases(scripted: MakeEngine) -> None:
    """A stop that comes while a tool runs ends the run before the next phase."""
    agents: list[Agent] = []

    def halt() -> str:
        """Stops the agent that called it."""
        agents[0].stop()
        return "ok"

    calls = call("halt") + "\n" + call("halt") + END
    agent = Agent(scripted(calls, "Yes." + END), tools=halt, trace=False)
    agents.append(agent)

    with pytest.raises(PassCancelledError):
        agent.run("Do it")

    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "cancelled"
    assert len(agent.trace.tools) == 1
    assert agent.run("Still there?").answer == "Yes."


def test_a_trace_that_cannot_be_written_leaves_nothing(
    scripted: MakeEngine, tmp_path: Path
) -> None:
    """The question was never asked: it does not count, and cannot be taken back."""
    agent = Agent(scripted("Hi." + END), trace=tmp_path)  # a folder

    with pytest.raises(TraceError):
        agent.run("Hello")

    assert (agent.turn, agent.messages) == (0, [])
    with pytest.raises(AgentError, match="no question to undo"):
        agent.undo()


def test_a_question_that_was_not_taken_in(scripted: MakeEngine) -> None:
    """One that did not fit was never asked: what is taken back is the question before it."""
    agent = Agent(scripted("Hi." + END, context=400), trace=False)
    agent.run("Hello")
    with pytest.raises(ContextOverflowError):
        agent.run("word " * 400)

    assert agent.undo() == "Hello"
    assert agent.messages == []
    with pytest.raises(AgentError, match="no question to undo"):
        agent.undo()


def test_stopped_while_a_question_is_read(
    scripted: MakeEngine, make_tokenizer: MakeTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of turn that the model wrote is kept: the question's mark is behind it.

    Before, such a conversation was refused when a saved session went on, and undo failed.
    """
    end = "<|eot_id|>"  # the template ends turns with <|im_end|>
    tokenizer = make_tokenizer(control=(end,), eot=end)
    agent = Agent(scripted("Hi." + end, "Yes." + end, tokenizer=tokenizer), trace=False)
    agent.run("Hello")
    ids = list(agent.ledger.ids)

    def stopped(*_: object, **__: object) -> None:
        raise PassCancelledError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(agent.session, "prefill", stopped)
        with pytest.raises(PassCancelledError):
            agent.run("How are you?")

    assert agent.ledger.ids == ids
    history = agent.setup.conversation.history()
    assert all(mark.tokens <= len(history.ids) for mark, _ in history.marks)
    assert agent.run("Still there?").answer == "Yes."
    assert agent.ledger.ids == agent.session.tokens
    assert agent.undo() == "Still there?"
    assert agent.undo() == "Hello"
    assert agent.session.tokens == []


def test_a_fork_of_an_agent_in_memory_writes_nothing(scripted: MakeEngine) -> None:
    """Unless it is told to."""
    agent = Agent(scripted(), trace=False)
    assert agent.fork().trace.path is None
    assert Agent(scripted()).fork().trace.path is not None


@pytest.mark.parametrize("kept", [True, False])
def test_after_a_reset_there_is_another_run(
    scripted: MakeEngine, tmp_path: Path, kept: bool
) -> None:
    """Two conversations are no single turn of one run, in the file or in memory."""
    path = tmp_path / "trace.jsonl"
    agent = Agent(scripted("Hi." + END, "Full." + END), trace=path if kept else False)
    first = agent.run("Hello!")
    agent.reset()
    second = agent.run("What's the error?")
    agent.close()

    assert (len(first.phases), len(second.phases)) == (2, 2)
    assert [turn.question for turn in second.turns] == ["What's the error?"]
    if kept:
        runs = Trace.load(path).runs
        assert [run.header and run.header.task for run in runs] == ["Hello!", "What's the error?"]
        assert [run.answer for run in runs] == ["Hi.", "Full."]


def test_no_reset_within_a_run(scripted: MakeEngine) -> None:
    """The conversation would be gone under it."""
    agent = Agent(scripted("Hi." + END), trace=False)
    events = agent.stream("Hello")
    next(events)
    with pytest.raises(AgentError, match="already running"):
        agent.reset()
    list(events)
    agent.reset()
    assert agent.messages == []
