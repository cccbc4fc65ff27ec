"""What a conversation has seen of files goes with it: to the next question, a fork, a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call

from triplepoint import Agent, EditTools, Engine
from triplepoint.runtime.agent.harness.merged import Harness
from triplepoint.runtime.agent.harness.policy import Context, Decision, Looked, Policy
from triplepoint.runtime.agent.session_store import open_conversation
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall

READ = call("read_file", path="a.txt") + END
WRITE = call("write_file", path="a.txt", content="mine\n") + END
DONE = "Done." + END


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("one\n")
    return tmp_path / "files"


def _agent(engine: Any, root: Path, **settings: Any) -> Agent:
    settings.setdefault("policy", "yes")
    return Agent(
        engine, workspace=root, harness=False, tools=EditTools(root), trace=False, **settings
    )


def _refused(agent: Agent, root: Path) -> bool:
    """Ask for a write that the user's own change came before; whether that is still there."""
    (root / "a.txt").write_text("the user's\n")
    agent.run("Write it")
    error = agent.trace.tools[-1].error or ""
    kept = (root / "a.txt").read_text() == "the user's\n"
    assert ("since you last read or wrote it" in error) == kept
    return kept


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_the_next_question(scripted: MakeEngine, root: Path, timeout: float | None) -> None:
    """Also where tools run in threads of their own; the model reads again, and then writes."""
    replies = (READ, DONE, WRITE, READ, WRITE, DONE)
    agent = _agent(scripted(*replies), root, timeout=timeout)
    agent.run("Read it")
    (root / "a.txt").write_text("the user's\n")
    agent.run("Write it")

    assert [event.error is None for event in agent.trace.tools] == [True, False, True, True]
    assert (root / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize("whole", [True, False])
def test_what_the_harness_looked_at(scripted: MakeEngine, root: Path, whole: bool) -> None:
    """Counts as read where all of it was shown; else the model is told to read first."""
    (root / "a.txt").write_text("one\ntwo\n")
    shown = Looked(ToolCall("read_file", {"path": "a.txt"}), "1\tone" + "\n2\ttwo" * whole)

    class Look(Policy):
        def before_turn(self, context: Context) -> Decision | None:
            return Decision(looked=(shown,)) if context.step == 1 else None

    agent = Agent(
        scripted(WRITE, DONE),
        workspace=root,
        tools=EditTools(root),
        policy="yes",
        harness=Harness([Look()]),
        trace=False,
    )
    agent.run("Write it")

    error = agent.trace.tools[-1].error or ""
    assert ("was never read here" in error) != whole
    assert (root / "a.txt").read_text() == ("mine\n" if whole else "one\ntwo\n")


def test_a_fork_and_what_is_undone(scripted: MakeEngine, root: Path) -> None:
    """A fork knows what was read before it, and what one side reads the other has not seen."""
    agent = _agent(scripted(READ, DONE, READ, DONE, WRITE, DONE, WRITE, DONE), root)
    agent.run("Read it")
    fork = agent.fork(trace=False)
    (root / "a.txt").write_text("the user's\n")
    fork.run("Read it again")
    assert _refused(agent, root)

    fork.undo()
    assert _refused(fork, root)


def test_a_session_that_continues(scripted: MakeEngine, root: Path, tmp_path: Path) -> None:
    """Saved with the messages."""
    with Engine.load("nano") as engine, open_conversation("s", tmp_path / "kept") as kept:
        first = Agent(engine, workspace=root, harness=False, trace=False)
        first.run("What does a.txt say?")
        assert [event.name for event in first.trace.tools] == ["read_file"]
        kept.save(first)
    with open_conversation("s", tmp_path / "kept") as kept:
        second = _agent(scripted(WRITE, DONE), root)
        kept.resume(second)
        assert _refused(second, root)


def test_most_lines_are_not_dropped_unasked(scripted: MakeEngine, root: Path) -> None:
    """A text that keeps few lines of one that was read is refused once; the same again is meant."""
    text = "".join(f"line {n}\n" for n in range(9))
    (root / "a.txt").write_text(text)
    agent = _agent(scripted(READ, WRITE, DONE, WRITE, DONE), root)
    agent.run("Read it and write it")

    assert (root / "a.txt").read_text() == text
    assert "of the 9 lines of a.txt this keeps 0" in (agent.trace.tools[-1].error or "")
    agent.run("Yes, all of it")
    assert (root / "a.txt").read_text() == "mine\n"
