"""Ctrl-Z, Ctrl-C pressed twice, and a terminal that closes: on a pseudo-terminal, with a server."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import delta, openai_server, text
from helpers.terminal import Terminal

from triplepoint.traces import Trace

CHAT = [sys.executable, "-m", "triplepoint", "chat"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs a shell that stops programs")
@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ,
    reason="a terminal that a worker of xdist starts does not get this Ctrl-Z: pytest -n 0",
)
def test_ctrl_z_and_fg(env: dict[str, str], work: Path) -> None:
    """The shell gets its cursor back; at the prompt, what was half typed is shown again."""
    env = env | {"TERM": "xterm-256color", "PS1": "$ "}
    with (
        openai_server([delta(content="Begun "), 3.0, *text("and done.")], text("Fine.")) as server,
        Terminal(["/usr/bin/env", "bash", "--norc", "-i"], env=env, cwd=work) as terminal,
    ):
        terminal.wait_for("$ ")
        terminal.type(shlex.join([*CHAT, "-m", server.url, "--dir", "."]))
        terminal.wait_for("/exit ends it")
        terminal.wait_for("? ")
        terminal.type("Talk")
        terminal.wait_for("Begun")
        terminal.press(b"\x1a")
        terminal.wait_for("Stopped")
        assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")
        terminal.type("fg")
        terminal.wait_for("and done.")
        back = terminal.raw.rpartition("Stopped")[2]
        written, up, _ = back.partition("\x1b[1A")  # the region is drawn over its two lines
        assert up
        assert written.count("\n\x1b[?25l") == written.count("\r\n\r\n\x1b[?25l") == 1, repr(back)
        terminal.wait_for("\n? ")
        terminal.press(b"Half")
        terminal.wait_for("Half")
        time.sleep(1.5)  # readline loses a signal that comes just before it waits
        terminal.press(b"\x1a")
        terminal.wait_for("Stopped")
        terminal.type("fg")
        terminal.wait_for("\n? Half")
        terminal.type(" of it")
        terminal.wait_for("Fine.")
        assert server.requests[-1]["messages"][-1]["content"] == "Half of it"


@pytest.mark.slow
def test_an_impatient_ctrl_c_keeps_the_session(chat: Any, env: dict[str, str]) -> None:
    """Pressed again and again, it ends the chat, and what was said so far is kept."""
    terminal = chat([delta(content="Begun"), 30.0], args=("--session", "it"))
    terminal.type("Talk")
    terminal.wait_for("Begun")
    for _ in range(4):
        terminal.press(b"\x03")
        time.sleep(0.01)
    assert terminal.press_until_end(b"\x03") == 130

    kept = Path(env["XDG_STATE_HOME"]) / "triplepoint" / "sessions" / "it" / "conversation.json"
    assert "Begun" in kept.read_text()


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_a_terminal_that_closes_under_an_answer(chat: Any, env: dict[str, str], term: str) -> None:
    """The status is that of SIGHUP, though nothing can be shown; the trace has its end."""
    terminal = chat([delta(content="Begun"), 30.0], term=term)
    terminal.type("Talk")
    terminal.wait_for("Begun")
    assert terminal.hang_up() == 128 + signal.SIGHUP

    (path,) = (Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces").iterdir()
    end = Trace.load(path).end
    assert end is not None
    assert end.status == "cancelled"


@pytest.mark.slow
def test_ctrl_c_stops_a_command(chat: Any) -> None:
    """Such as /model with a server that says nothing: the conversation goes on with its model."""
    terminal = chat(text("Blue."), text("Still."))
    terminal.type("Which color?")
    terminal.wait_for("\n? ")
    with openai_server() as silent:
        silent.models = [30.0]
        terminal.type(f"/model {silent.url}")
        time.sleep(1)
        terminal.press(b"\x03")
        terminal.wait_for("interrupted; the chat continues")
    terminal.wait_for("? ")
    terminal.type("And now?")
    terminal.wait_for("Still.")
    terminal.wait_for("\n? ")
    terminal.type("/exit")
    assert terminal.end() == 0
