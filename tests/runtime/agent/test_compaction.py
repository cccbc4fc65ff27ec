"""Making room: only when asked, said, in the trace, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import agents
from helpers.agents import END, MakeEngine

from triplepoint import (
    Agent,
    AgentError,
    ContextOverflowError,
    Engine,
    PassCancelledError,
    PhaseFinished,
)
from triplepoint.runtime.agent.compaction import compacted, files_in_hand, what_fills
from triplepoint.runtime.agent.events import Notice
from triplepoint.runtime.conversation.ledger import TokenLedger
from triplepoint.runtime.replay.replay import verify


def call(name: str, **arguments: Any) -> str:
    return agents.call(name, **arguments) + END


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} line of words\n" * 12)
    return tmp_path


def replies() -> list[str]:
    asked = [call("read_file", path=f"{name}.txt") for name in "abc"]
    return [text for one in asked for text in (one, "Read." + END)]


def said(agent: Agent) -> str:
    return agents.conversation_of(agent).grammar.tokenizer.decode(
        agent.session.tokens, special=True
    )


def test_without_asking_nothing_is_dropped(scripted: MakeEngine, folder: Path) -> None:
    """A context that is full ends the run, as it always did."""
    agent = Agent(scripted(*replies(), context=700), workspace=folder, harness=False, trace=False)
    agent.run("Read a.txt")

    agent.run("Read b.txt")
    with pytest.raises(ContextOverflowError):
        agent.run("Read c.txt")
    assert "dropped to make room" not in said(agent)


def test_files_in_hand_go_last(scripted: MakeEngine, folder: Path) -> None:
    """A result that shows a file as it is outlasts a newer one that shows none, and an older one
    of the same file; questions and calls stay."""
    texts = [call("read_file", path="a.txt"), call("read_file", path="b.txt")]
    texts += [call("search", pattern="line"), call("read_file", path="a.txt")]
    asked = [text for one in texts for text in (one, "Read." + END)]
    agent = Agent(scripted(*asked), workspace=folder, harness=False, trace=False)
    for number in range(4):
        agent.run(f"Question {number}")
    messages = agent.messages
    results = [n for n, message in enumerate(messages) if message.role == "tool"]
    assert files_in_hand(messages) == {results[1], results[3]}

    order = []
    for missing in range(1, 2000, 40):
        made, dropped = compacted(
            agent.ledger,
            agents.conversation_of(agent).grammar.tokenizer.encode,
            len(messages),
            missing,
            files_in_hand(messages),
        )
        order += [one.message for one in dropped if one.message not in order]
        kept = [s for s in agent.ledger.spans if s.origin != "tool_result"]
        assert [s.tokens for s in made.spans if s.origin in {k.origin for k in kept}] == [
            s.tokens for s in kept
        ]
    assert order == [results[0], results[2], results[1], results[3]]


def test_when_asked_the_oldest_results_go(scripted: MakeEngine, folder: Path) -> None:
    """As many as are needed; it is said, traced, and the rest of the tokens is as it was."""
    agent = Agent(
        scripted(*replies(), context=700),
        workspace=folder,
        harness=False,
        trace=False,
        compact=True,
    )
    agent.run("Read a.txt")
    events = [event for name in "bc" for event in agent.stream(f"Read {name}.txt")]

    notices = [e.message for e in events if isinstance(e, Notice)]
    assert notices[0].startswith("the context was full: removed 2 tool results from the context")
    text = said(agent)
    assert text.count("[dropped to make room: ") == len(
        [one for p in agent.trace.phases for one in p.dropped]
    )
    assert "12\tc line of words" in text
    assert "12\ta line of words" not in text
    assert agent.session.tokens == agent.ledger.ids
    (first, *_) = [p for p in agent.trace.phases if p.purpose == "compaction"]
    dropped = first.dropped[0]
    assert (dropped["message"], dropped["label"]) == (3, "read_file")
    assert dropped["tokens"] > 100 > dropped["left"]
    assert first.kv_before > 0  # what stands before it was not recomputed
    assert any(isinstance(e, PhaseFinished) and e.phase is first for e in events)
    for span in agent.ledger.spans:  # every message is still whose it was
        part = agents.conversation_of(agent).grammar.tokenizer.decode(
            agent.ledger.ids[span.start : span.end]
        )
        if span.origin == "user" and span.message is not None:
            assert part == agent.messages[span.message].content


def test_there_is_room_for_an_answer_too(scripted: MakeEngine, folder: Path) -> None:
    """Results go also where the question just fits, but no answer behind it; else it has no use."""
    long = "A line of words. " * 3 + "The end." + END
    spoken = [*replies()[:2], long]
    sizes = Agent(scripted(*spoken), workspace=folder, harness=False, trace=False)
    for question in ("Read a.txt", "Well?"):
        sizes.run(question)
    (*_, decode) = sizes.trace.phases
    context = decode.kv_before + 5

    agent = Agent(scripted(*spoken, context=context), workspace=folder, harness=False, trace=False)
    agent.run("Read a.txt")
    with pytest.raises(ContextOverflowError, match="filled up before"):
        agent.run("Well?")

    agent = Agent(
        scripted(*spoken, context=context),
        workspace=folder,
        harness=False,
        trace=False,
        compact=True,
    )
    agent.run("Read a.txt")
    events = list(agent.stream("Well?"))
    (notice,) = [e.message for e in events if isinstance(e, Notice)]
    assert notice.startswith("the context was full: removed 1 tool result")
    assert agent.last_result is not None
    assert agent.last_result.answer == long.removesuffix(END)


def test_where_nothing_can_go_a_short_answer_may_still_fit(
    scripted: MakeEngine, folder: Path
) -> None:
    """Little room is no error while there is some."""
    sizes = Agent(scripted("Yes." + END), workspace=folder, harness=False, trace=False)
    sizes.run("Well?")
    context = sizes.trace.phases[-1].kv_before + 8

    agent = Agent(
        scripted("Yes." + END, context=context),
        workspace=folder,
        harness=False,
        trace=False,
        compact=True,
    )
    assert agent.run("Well?").answer == "Yes."


def test_compacting_by_hand(scripted: MakeEngine, folder: Path) -> None:
    """All results before the last question go; undo still finds its places."""
    agent = Agent(scripted(*replies(), "Fine." + END), workspace=folder, harness=False, trace=False)
    for name in "abc":
        agent.run(f"Read {name}.txt")

    assert agent.compact().startswith("removed 2 tool results from the context, ")

    assert "12\tc line of words" in said(agent)
    assert agent.trace.phases[-1].purpose == "compaction"
    with pytest.raises(AgentError, match="no older tool result"):
        agent.compact()
    assert agent.undo() == "Read c.txt"
    assert said(agent).endswith(f"Read.{END}")
    assert said(agent).count("Read b.txt") == 1
    assert agent.run("Well?").answer == "Fine."
    assert agent.session.tokens == agent.ledger.ids


def test_what_was_dropped_stays_so_for_another_model(scripted: MakeEngine, folder: Path) -> None:
    """The messages have the notes, too: a context that was full has room for them rendered anew."""
    engine = scripted(*replies(), "Fine." + END)
    agent = Agent(engine, workspace=folder, harness=False, trace=False)
    for name in "abc":
        agent.run(f"Read {name}.txt")
    agent.compact()
    spans = [s for s in agent.ledger.spans if s.origin == "dropped"]
    notes = [
        agents.conversation_of(agent).grammar.tokenizer.decode(agent.ledger.ids[s.start : s.end])
        for s in spans
    ]

    other = Agent(engine, workspace=folder, harness=False, trace=False, system="Other words.")
    other.setup.conversation.load_history(agent.messages)
    other.run("Well?")

    assert [agent.messages[s.message].content for s in spans if s.message] == notes
    assert [one.content for one in other.messages if one.content in notes] == notes
    assert "12\ta line of words" not in said(other)
    assert "12\tc line of words" in said(other)


@pytest.mark.slow
def test_a_compacted_run_replays(folder: Path) -> None:
    """The trace has all that is needed: the embedded model gives the same tokens again."""
    with Engine.load("nano", context=2048) as engine:
        agent = Agent(engine, workspace=folder, harness=False, trace=False)
        for name in "ab":
            list(agent.stream(f"What is on line 2 of {name}.txt?"))
            list(agent.stream(f"Which file mentions {name}?"))
        agent.compact()
        list(agent.stream("Which files are here?"))
        report = verify(agent.trace, engine)

    assert report.ok
    assert sum(len(p.dropped) for p in agent.trace.phases) >= 1


def test_a_compaction_that_was_stopped_keeps_the_questions(
    scripted: MakeEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last question can still be taken back, just as it was asked."""
    agent = Agent(scripted(*replies()), workspace=folder, harness=False, trace=False)
    for name in "ab":
        agent.run(f"Read {name}.txt")

    def cancelled(ids: Any, **_: Any) -> None:
        raise PassCancelledError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(agent.session, "prefill", cancelled)
        with pytest.raises(PassCancelledError):
            agent.compact()

    assert agent.undo() == "Read b.txt"
    left = agents.conversation_of(agent).grammar.tokenizer.decode(agent.ledger.ids, special=True)
    assert left.endswith("Read.<|im_end|>")
    assert "dropped to make room" in left


def test_a_context_that_is_smaller_than_what_was_computed() -> None:
    """A conversation that goes on with less context has no room left, and not less than none."""
    ledger = TokenLedger()
    ledger.append([1] * 1100, "user")

    told = what_fills(ledger, 1024, 1088)
    assert told.startswith("the context holds 1,024 tokens, 0 of them free")
    assert "the conversation has 1,100: " in told
