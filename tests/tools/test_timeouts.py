"""Calls that are waited for only so long, and what is ended when they are left."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest
from helpers.processes import ended

from triplepoint.errors import ToolError
from triplepoint.tools import CommandTools, FetchTools
from triplepoint.tools.timeouts import TimedTask, on_abandon

HERE: ContextVar[str] = ContextVar("here", default="nowhere")


def test_what_a_function_gives_and_raises_comes_back() -> None:
    """In time it is as if it had been called here, with the context variables of here."""
    HERE.set("here")

    assert TimedTask(HERE.get, "t").wait(60) == "here"
    with pytest.raises(KeyError, match="k"):
        TimedTask(lambda: {}["k"], "t").wait(60)
    with pytest.raises(SystemExit):
        TimedTask(sys.exit, "t").wait(60)


def test_no_limit_may_be_written_as_infinity() -> None:
    """It is waited for as long as the system can; what is no time is refused where it is given."""
    go = threading.Event()
    for limit in (float("inf"), 1e300, 10**400):
        go.clear()
        threading.Timer(0.05, go.set).start()
        assert TimedTask(lambda: go.wait(60), "t").wait(limit)

    assert CommandTools(".", max_seconds=float("inf")).run_command(["true"]) == "[exit status 0]"
    for odd in (0, -1, float("nan"), "5", True, None):
        with pytest.raises(ToolError, match=r"max_seconds must be a number of seconds above 0"):
            CommandTools(".", max_seconds=odd)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ToolError, match=r"max_seconds must be a number of seconds above 0"):
            FetchTools(max_seconds=odd)  # pyright: ignore[reportArgumentType]


def test_a_function_that_overruns_is_left() -> None:
    """It goes on, what it gives then is dropped, and what it named to be ended is, once."""
    go, returned, ended = threading.Event(), threading.Event(), []

    def work() -> str:
        with on_abandon(lambda: ended.append(1)):
            go.wait()
        with on_abandon(lambda: ended.append(2)):  # too late to begin anything
            ended.append(3)
        return "late"

    def watched() -> str:
        try:
            return work()
        finally:
            returned.set()

    timed_task = TimedTask(watched, "t")
    with pytest.raises(ToolError, match="took too long"):
        timed_task.wait(0.05, "took too long")
    timed_task.abandon("again")
    go.set()
    assert returned.wait(60)
    assert ended == [1]
    with pytest.raises(ToolError, match="took too long"):
        timed_task.wait(60)


def test_leaving_what_has_returned_changes_nothing() -> None:
    """Whoever comes too late finds the result there."""
    ended: list[int] = []

    def work() -> str:
        with on_abandon(lambda: ended.append(1)):
            return "done"

    timed_task = TimedTask(work, "t")
    assert timed_task.wait() == "done"
    timed_task.abandon("too late")

    assert timed_task.wait() == "done"
    assert ended == []


def test_a_program_that_is_left_is_ended(root: Path) -> None:
    """run_command ends its whole group when nobody waits for it any more."""
    tools = CommandTools(root, max_seconds=60)
    code = "import os,sys,time; open('pid','w').write(str(os.getpid())); time.sleep(60)"
    pid = tools.root / "pid"

    timed_task = TimedTask(lambda: tools.run_command([sys.executable, "-c", code]), "t")
    while not (pid.exists() and pid.read_text()):
        threading.Event().wait(0.01)
    timed_task.abandon("left")

    assert ended(int(pid.read_text()))


def test_a_function_that_never_returns_does_not_keep_the_process() -> None:
    """The process ends while the function still waits."""
    code = """
import threading
from triplepoint.tools.timeouts import TimedTask
try:
    TimedTask(threading.Event().wait, "t").wait(0.01, "left")
except Exception as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "left\n"
