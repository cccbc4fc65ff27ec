"""The loop around tools: the policy, the budget of a result, the time that a run may take."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, conversation_of

from triplepoint import (
    Agent,
    LimitReachedError,
    PermissionRequest,
    Policy,
    SettingError,
    ToolError,
    tool,
)
from triplepoint.runtime.agent.events import Notice, RunFinished
from triplepoint.tools import CommandTools, EditTools, Rule


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("one\n")
    return tmp_path / "files"


WRITE = call("write_file", path="a.txt", content="two\n") + END
EDIT = call("edit_file", path="a.txt", old="one", new="two") + END


def test_a_policy_that_can_ask_nobody_says_so(scripted: MakeEngine, root: Path) -> None:
    """The note at the start has the reason, not only the name of the policy."""
    with Agent(scripted(), tools=EditTools(root), policy=Policy("ask"), trace=False) as agent:
        (note,) = agent.setup.notes

    assert "the policy is ask and nobody can be asked, so no call of write_file" in note


def test_by_default_nothing_is_written(scripted: MakeEngine, root: Path) -> None:
    """The call is denied, the model is told why, and it is known before the first question."""
    agent = Agent(
        scripted(WRITE, "No." + END),
        workspace=root,
        harness=False,
        tools=EditTools(root),
        trace=False,
    )

    events = list(agent.stream("Write two into a.txt"))

    notices = [event.message for event in events if isinstance(event, Notice)]
    assert "the policy is read-only, so no call of write_file, edit_file" in notices[-1]
    assert (root / "a.txt").read_text() == "one\n"
    (event,) = agent.trace.tools
    assert (event.effect, event.decision, event.decided_by) == ("write", "denied", "read-only")
    assert event.result == (
        "error: not allowed: the policy of this session is read-only. Do not try it again; "
        "say what you would have done."
    )
    header = agent.trace.header
    assert header is not None
    assert header.config["policy"] == {"mode": "read-only", "rules": []}


def test_what_is_allowed_is_done_and_traced(scripted: MakeEngine, root: Path) -> None:
    """With yes the file is changed once it was read; reading needs no word of anyone."""
    engine = scripted(WRITE, call("read_file", path="a.txt") + END, WRITE, "Done." + END)
    agent = Agent(
        engine, workspace=root, harness=False, tools=EditTools(root), policy="yes", trace=False
    )

    assert agent.run("Write two into a.txt").answer == "Done."

    assert (root / "a.txt").read_text() == "two\n"
    decisions = [(t.name, t.decision, t.decided_by) for t in agent.trace.tools]
    written = ("write_file", "allowed", "yes")
    assert decisions == [written, ("read_file", "allowed", "effect"), written]
    assert "never read here" in (agent.trace.tools[0].error or "")


def test_a_person_is_asked_with_the_diff(scripted: MakeEngine, root: Path) -> None:
    """The time to decide is not the tool's; a call that would fail is not asked about."""
    asked: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> Any:
        asked.append(request)
        time.sleep(0.05)
        return "yes"

    wrong = call("edit_file", path="a.txt", old="nothing", new="two") + END
    agent = Agent(
        scripted(wrong, EDIT, "Done." + END),
        tools=EditTools(root),
        policy=Policy("ask", ask=ask),
        trace=False,
    )
    agent.run("Edit a.txt")

    assert [request.preview.split("\n")[2:] for request in asked] == [
        ["@@ -1 +1 @@", "-one", "+two"]
    ]
    failed, edited = agent.trace.tools
    assert failed.error == "no such text in a.txt"
    assert failed.decision == ""
    assert (edited.decision, edited.decided_by) == ("allowed", "user")
    assert edited.asked_s >= 0.05 > edited.duration_s


def test_recorded_decisions_are_honoured(scripted: MakeEngine, root: Path) -> None:
    """A run under the decisions of a recorded one denies and allows the same calls."""
    replies = (EDIT, call("delete", path="a.txt") + END, "Done." + END)
    rules = [Rule("delete", "deny")]
    first = Agent(
        scripted(*replies), tools=EditTools(root), policy=Policy("yes", rules), trace=False
    )
    first.run("Edit and delete a.txt")
    (root / "a.txt").write_text("one\n")

    again = Agent(
        scripted(*replies),
        tools=EditTools(root),
        policy=Policy.recorded(first.trace.tools),
        trace=False,
    )
    again.run("Edit and delete a.txt")

    assert [t.decision for t in again.trace.tools] == ["allowed", "denied"]
    assert {t.decided_by for t in again.trace.tools} == {"recorded"}
    assert (root / "a.txt").read_text() == "two\n"


def test_a_long_result_is_cut_and_read_on(scripted: MakeEngine, root: Path) -> None:
    """What a program prints is cut to the budget, and the model can ask for the rest."""
    run = call("run_command", command=["seq", "2000"]) + END
    agent = Agent(
        scripted(run, call("read_result", id="r1", start=500) + END, "Done." + END),
        tools=CommandTools(root),
        policy="yes",
        result_tokens=200,
        trace=False,
    )
    agent.run("Count")

    first, more = agent.trace.tools
    tokenizer = conversation_of(agent).grammar.tokenizer
    for event in (first, more):
        body, note = event.result.rsplit("\n", 1)
        assert len(tokenizer.encode(body)) <= 200
        assert 'read on with read_result(id="r1", start=' in note
    assert first.result.startswith("1\n2\n3\n")
    assert more.decided_by == "effect"


def test_file_tools_alone_bring_no_other(scripted: MakeEngine, root: Path) -> None:
    """The embedded model knows three tools; nothing is added to them unasked."""
    plain = Agent(scripted(), workspace=root, harness=False, trace=False)
    written = Agent(scripted(), workspace=root, harness=False, tools=EditTools(root), trace=False)

    assert plain.tools.names == ["list_dir", "read_file", "search"]
    assert "read_result" not in written.tools.names


@tool
def sleepy() -> str:
    """Sleep."""
    time.sleep(0.2)
    return "awake"


def test_a_run_ends_when_its_time_is_up(scripted: MakeEngine) -> None:
    """After a slow tool the run ends as at a limit, and the conversation goes on."""
    engine = scripted(call("sleepy") + END, "Late." + END)
    agent = Agent(engine, tools=[sleepy], timeout=0.1, trace=False)

    with pytest.raises(LimitReachedError, match=r"no answer within 0\.1 seconds"):
        agent.run("Sleep")

    assert agent.last_result is not None
    assert agent.last_result.status == "limit"
    agent.setup.config = agent.setup.config.__class__(8, 1024)
    assert agent.run("And now?").answer == "Late."
    with pytest.raises(SettingError, match="timeout must be above 0"):
        Agent(engine, timeout=0)


def test_calls_of_one_turn_run_in_order(scripted: MakeEngine, root: Path) -> None:
    """Each sees what the one before has done; one that fails does not end the others."""
    both = EDIT.removesuffix(END) + "\n"
    both += call("edit_file", path="a.txt", old="two", new="three") + "\n"
    both += call("read_file", path="missing") + "\n" + call("read_file", path="a.txt") + END
    agent = Agent(
        scripted(both, "Done." + END),
        workspace=root,
        harness=False,
        tools=EditTools(root),
        policy="yes",
        trace=False,
    )

    agent.run("Edit twice")

    assert [bool(t.error) for t in agent.trace.tools] == [False, False, True, False]
    assert agent.trace.tools[-1].result == "1\tthree"


def test_a_limit_still_ends_the_stream(scripted: MakeEngine) -> None:
    """As any limit: the last event says so."""

    @tool
    def broken() -> str:
        """Break."""
        raise ToolError("broken")

    agent = Agent(scripted(call("broken") + END, "Done." + END), tools=[broken], trace=False)
    *_, last = agent.stream("Try")

    assert isinstance(last, RunFinished)
    assert agent.trace.tools[0].result == "error: broken"


def test_what_a_tool_raises_is_a_message(scripted: MakeEngine, root: Path) -> None:
    """A bug, a long text and a tool that would end the program: short, and the run goes on."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def breaks(how: str) -> str:
        """Breaks."""
        raise {
            "exit": SystemExit(3),
            "bug": KeyError("k"),
            "cancelled": asyncio.CancelledError("gone"),
            "mute": Mute(),
            "long": ValueError("x" * 9999),
        }[how]

    ways = ("exit", "bug", "cancelled", "mute", "long")
    turn = "\n".join(call("breaks", how=how) for how in ways)
    agent = Agent(scripted(turn + END, "Done." + END), tools=[breaks], trace=False)

    assert agent.run("Break").answer == "Done."
    errors = [one.error or "" for one in agent.trace.tools]
    assert errors[:3] == ["SystemExit: 3", "KeyError: 'k'", "CancelledError: gone"]
    assert errors[3] == "Mute: (its text cannot be shown: ValueError)"
    assert errors[4].startswith("ValueError: xxx")
    assert max(map(len, errors)) <= 300
