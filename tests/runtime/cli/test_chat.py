"""`triplepoint chat`, with the embedded model."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_turns_go_on_from_each_other(triplepoint: Run, nano: Path, folder: Path) -> None:
    """Two questions are two turns of one session; the second reads only what is new."""
    done = triplepoint("chat", "--dir", folder, stdin="Which files are here?\nHello!\n/exit\nno\n")

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2  # an answer each
    trace = Trace.load(done.stderr.splitlines()[-1].removeprefix("trace: "))
    assert [turn.question for turn in trace.turns] == ["Which files are here?", "Hello!"]
    first, second = (turn.phases[0] for turn in trace.turns)
    assert first.cached_tokens == 0
    assert second.cached_tokens > first.tokens


def test_commands(triplepoint: Run, nano: Path, folder: Path) -> None:
    """/tools lists, /trace shows the table so far, an unknown command tells the known ones."""
    done = triplepoint("chat", "--dir", folder, stdin="/trace\n/tools\n/what\nHello!\n/trace\n")

    lines = done.stdout.splitlines()
    assert lines[0] == "no question yet"
    assert [line.split(":")[0] for line in lines[1:4]] == ["list_dir", "read_file", "search"]
    assert "no such command: /what; choose from /tools, /trace" in done.stderr
    assert sum("regime" in line and "tok/s" in line for line in lines) == 1


def test_a_limit_does_not_end_the_chat(triplepoint: Run, nano: Path, folder: Path) -> None:
    """A turn that a limit ends is told, and the next question is answered."""
    asked = "Which files are here?\nWho are you?\n"
    done = triplepoint("chat", "--dir", folder, "--max-steps", "1", "--json", stdin=asked)

    decoder, texts, found = json.JSONDecoder(), done.stdout.strip(), []
    while texts:
        value, end = decoder.raw_decode(texts)
        found.append(value)
        texts = texts[end:].lstrip()
    assert [turn["status"] for turn in found] == ["limit", "answered"]
    assert "no answer after 1 step" in done.stderr
    assert done.returncode == 0


def test_ctrl_c_at_the_prompt_ends_the_chat(nano: Path, folder: Path, env: dict) -> None:
    """At the prompt, Ctrl-C leaves with status 130."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "triplepoint", "chat"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env | {"TERM": "dumb"},
        cwd=folder,
    )
    os.close(theirs)
    shown = b""
    while b"? " not in shown:
        shown += os.read(ours, 4096)
    status = None
    while status is None:  # readline loses a signal that comes just before it waits
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(0.5)
    os.close(ours)

    assert b"/exit ends it" in shown
    assert status == 130
