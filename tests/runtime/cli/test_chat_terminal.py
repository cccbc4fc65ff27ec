"""A chat as a person has it: on a pseudo-terminal, with a scripted server as the model."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import calls, delta, openai_server, text
from helpers.terminal import Terminal

from triplepoint.traces import Trace
from triplepoint.traces.events import MessageEvent

CHAT = [sys.executable, "-m", "triplepoint", "chat"]


@pytest.mark.slow
def test_a_dumb_terminal_gets_plain_text(chat: Any) -> None:
    """No escapes; the answer as it comes, then a line with what it took."""
    terminal = chat(text("It has ", "**one** line."))
    terminal.type("What is in it?")
    came = terminal.wait_for("\n? ")

    assert "It has **one** line.\n" in came
    assert " · reused 0 of 20 tokens, 2 generated · TTFT " in came
    assert "remote prefill → remote decode\n" in came
    terminal.type("/exit")
    assert terminal.end() == 0
    assert "\x1b[3" not in terminal.raw


@pytest.mark.slow
def test_markdown_and_the_regime_line(chat: Any) -> None:
    """On a terminal that can draw, headings and code are drawn, and nothing can steer it."""
    answer = (
        "# Head\n\nSome **bold** text.\n\n```python\nx = 1\n\ny = 2\n```\n\n- a\n- b \x1b[31m\n"
    )
    pieces = [answer[i : i + 9] for i in range(0, len(answer), 9)]
    terminal = chat([delta(content=pieces[0]), 0.3, *text(*pieces[1:])], term="xterm-256color")
    terminal.type("Write")
    terminal.wait_for("writing: 1 pieces")
    terminal.wait_for(" generated")
    terminal.type("/exit")
    assert terminal.end() == 0

    assert re.search(r"\x1b\[1m[^\x1b]*bold", terminal.raw)
    assert "**" not in terminal.shown
    assert "```" not in terminal.shown.replace("```python", "")  # pending, while it is unfinished
    assert "\\x1b[31m" in terminal.shown
    assert " • a" in terminal.shown


def test_lines_that_are_pasted_are_one_question(chat: Any) -> None:
    """As a terminal sends them that knows of pastes; nothing is asked before Enter."""
    terminal = chat(text("A ValueError."), term="xterm-256color")
    terminal.press(b"\x1b[200~why?\nTraceback:\n  ValueError: 3\x1b[201~")
    terminal.type(" Tell me")
    terminal.wait_for(" generated")
    terminal.type("/exit")
    terminal.wait_for("trace: ")
    assert terminal.end() == 0

    trace = Trace.load(terminal.shown.rpartition("trace: ")[2].strip())
    asked = [e.content for e in trace.events if isinstance(e, MessageEvent) and e.role == "user"]
    assert asked == ["why?\nTraceback:\n  ValueError: 3 Tell me"]


def test_a_change_is_asked_about(chat: Any, work: Path) -> None:
    """The diff is shown; no, yes and always do what they say."""
    edits = [("edit_file", {"path": "a.txt", "old": str(n), "new": str(n + 1)}) for n in range(3)]
    (work / "a.txt").write_text("0\n")
    script = [calls(edits[0]), text("No?"), calls(edits[0]), calls(edits[1]), calls(edits[2])]
    terminal = chat(*script, text("Done."), args=("--tools", "edit"))
    terminal.type("Change it")
    shown = terminal.wait_for("[y/n/a] ")
    assert "│ -0\n│ +1" in shown
    assert "edit_file (write): run it?" in shown
    terminal.type("n")
    terminal.wait_for("not allowed: the user said no")
    terminal.wait_for("\n? ")
    assert (work / "a.txt").read_text() == "0\n"
    terminal.type("Change it")
    terminal.wait_for("[y/n/a] ")
    terminal.type("y")
    terminal.wait_for("[y/n/a] ")
    assert (work / "a.txt").read_text() == "1\n"
    terminal.type("a")
    rest = terminal.wait_for("\n? ")
    assert "[y/n/a]" not in rest
    assert (work / "a.txt").read_text() == "3\n"
    terminal.type("/exit")
    terminal.wait_for("trace: ")
    assert terminal.end() == 0

    trace = Trace.load(terminal.shown.rpartition("trace: ")[2].strip())
    decided = [(t.decision, t.decided_by) for t in trace.tools]
    assert decided == [
        ("denied", "user"),
        ("allowed", "user"),
        ("allowed", "user"),
        ("allowed", "always"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"\x03", "^C\ntriplepoint: interrupted; the chat continues"),
        (b"\x04", "\n  error: nobody answered whether it may run"),
    ],
    ids=["Ctrl-C", "Ctrl-D"],
)
def test_a_question_that_is_not_answered(chat: Any, work: Path, key: bytes, said: str) -> None:
    """Nothing is changed, and what is said of it begins a line."""
    write = calls(("write_file", {"path": "b.txt", "content": "b\n"}))
    terminal = chat(write, text("Done."), args=("--tools", "edit"))
    terminal.type("Write")
    terminal.wait_for("[y/n/a] ")
    time.sleep(0.5)  # until the answer is waited for
    terminal.press(key)
    assert terminal.wait_for(said).startswith(said)
    terminal.wait_for("? ")
    assert not (work / "b.txt").exists()


@pytest.mark.slow
def test_always_is_not_offered_for_what_is_not_shown(chat: Any, work: Path) -> None:
    """Of a long diff the middle is left out; its last line is in sight."""
    lines = "".join(f"echo {n}\n" for n in range(200)) + "the end\n"
    terminal = chat(
        calls(("write_file", {"path": "b.sh", "content": lines})),
        text("Done."),
        args=("--tools", "edit"),
    )
    terminal.type("Write it")
    shown = terminal.wait_for("[y/n] ")
    assert "│ +the end" in shown
    assert "lines of the diff]" in shown
    assert "always" not in shown
    terminal.type("y")
    terminal.wait_for("\n? ")
    assert (work / "b.sh").read_text() == lines


@pytest.mark.slow
def test_what_was_typed_before_a_question_does_not_answer_it(chat: Any, work: Path) -> None:
    """Such as a line that was pasted while the model was at work."""
    terminal = chat(
        text("One."),
        calls(("write_file", {"path": "b.txt", "content": "b\n"})),
        text("Done."),
        args=("--tools", "edit"),
    )
    terminal.type("one")
    terminal.wait_for("\n? ")
    terminal.type("two\ny")
    terminal.wait_for("[y/n/a] ")
    terminal.type("n")
    terminal.wait_for("not allowed: the user said no")
    assert not (work / "b.txt").exists()


@pytest.mark.slow
def test_ctrl_c_once_stops_and_twice_leaves(chat: Any) -> None:
    """In an answer it ends the answer, what was said stays; at the prompt it ends the chat."""
    slow = [delta(content="Begun"), 30.0]
    terminal = chat(slow, text("Fine."))
    terminal.type("Talk")
    terminal.wait_for("Begun")
    terminal.press(b"\x03")
    terminal.wait_for("interrupted; the chat continues")
    terminal.wait_for("? ")
    terminal.type("Again")
    terminal.wait_for("Fine.")
    terminal.wait_for("\n? ")

    assert terminal.press_until_end(b"\x03") == 130
    assert "trace: " in terminal.shown


@pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ,
    reason="a terminal that a worker of xdist starts does not get this Ctrl-C: pytest -n 0",
)
def test_ctrl_c_drops_what_was_half_typed(chat: Any) -> None:
    """As in Python's own prompt; the chat goes on, and the line is not asked."""
    terminal = chat(text("Fine."))
    terminal.press(b"half a quest")
    terminal.wait_for("half a quest")
    time.sleep(1.5)  # readline loses a signal that comes just before it waits
    terminal.press(b"\x03")
    terminal.wait_for("? ")
    terminal.type('"""')
    terminal.wait_for("… ")
    time.sleep(1.5)
    terminal.press(b"\x03")
    terminal.wait_for("\n? ")
    terminal.type("Whole?")
    terminal.wait_for("Fine.")
    terminal.wait_for("\n? ")
    terminal.type("/exit")
    assert terminal.end() == 0

    trace = Trace.load(terminal.shown.rpartition("trace: ")[2].strip())
    assert [turn.question for turn in trace.turns] == ["Whole?"]


@pytest.mark.slow
def test_a_narrow_terminal_breaks_no_word(env: dict[str, str], work: Path) -> None:
    """At 60 columns status lines break between their parts, and the table loses columns."""
    with openai_server(text("Fine.")) as server:
        command = [*CHAT, "-m", server.url, "--dir", str(work)]
        with Terminal(command, env=env | {"TERM": "dumb"}, cwd=work, columns=60) as terminal:
            terminal.wait_for("\n? ")
            terminal.type("What?")
            terminal.wait_for("\n? ")
            terminal.type("/trace")
            terminal.wait_for("\n? ")
            terminal.type("/help")
            terminal.wait_for("\n? ")
            terminal.type("/exit")
            assert terminal.end() == 0

    paths = (str(work), "trace: ")  # stay whole
    shown = terminal.shown.splitlines()
    lines = [line for line in shown if not any(path in line for path in paths)]
    assert max(map(len, lines)) <= 60
    assert any(line.endswith(("generated", " ms", " tok/s")) for line in lines)
    (heading,) = (line for line in lines if line.startswith("phase "))
    assert "tok/s" in heading


def test_commands(chat: Any, work: Path) -> None:
    """Undo, fork, save, model, regimes, help."""
    terminal = chat(text("Blue."), text("Red."), text("Green."), text("Grey."))

    def ask(line: str) -> str:
        terminal.type(line)
        return terminal.wait_for("\n? ")

    assert "no question yet" in ask("/regimes")
    assert "no question yet" in ask("/save")
    assert "there is no question to undo" in ask("/undo")
    assert "no such command: /nonsense; choose from /tools, " in ask("/nonsense")
    assert "there is only conversation 1; /fork starts another" in ask("/fork 9")
    ask("First?")
    assert "in conversation 2 of 2" in ask("/fork")
    ask("Second?")
    assert "saved: fork.md" in ask("/save fork.md")
    assert "removed: Second?" in ask("/undo")
    assert "there are conversations 1 to 2" in ask("/fork 9")
    assert "in conversation 1 of 2" in ask("/fork 1")
    ask("Third?")
    assert re.search(r"remote decode +2 phases +2 tokens", ask("/regimes"))
    assert "saved: talk.md" in ask("/save talk.md")
    assert "talk.md exists; give another name" in ask("/save talk.md")
    assert "test-model on remote" in ask("/model")
    assert "[MODEL]" in ask("/help")
    assert "no model" in ask("/model nothing.gguf") or "nothing.gguf" in terminal.shown
    ask("Fourth?")
    terminal.type("/exit now")
    assert terminal.end() == 0

    fork = (work / "fork.md").read_text()  # what it shares with the first is a part of it
    assert fork == "# Chat with test-model\n\n## First?\n\nBlue.\n\n## Second?\n\nRed.\n"
    saved = (work / "talk.md").read_text()
    assert saved.startswith("# Chat with test-model\n\n## First?\n\nBlue.\n\n## Third?\n\nGreen.")
    assert terminal.shown.count("trace: ") == 2


@pytest.mark.slow
def test_what_is_saved_is_the_conversation(chat: Any, work: Path) -> None:
    """What was taken back is not in it; calls and what came of them are."""
    reads = calls(("read_file", {"path": "a.txt"}), ("read_file", {"path": "none.txt"}))
    terminal = chat(text("Wrong."), reads, text("One line."))

    def ask(line: str) -> None:
        terminal.type(line)
        terminal.wait_for("\n? ")

    ask("What?")
    ask("/undo")
    ask("What is in a.txt?")
    ask("/save talk.md")
    terminal.type("/exit")
    assert terminal.end() == 0

    saved = (work / "talk.md").read_text()
    assert saved.startswith("# Chat with test-model\n\n## What is in a.txt?\n\n- `read_file(")
    assert '- `read_file(path="none.txt")`: error: ' in saved
    assert saved.endswith("\n\nOne line.\n")
    assert "Wrong." not in saved


@pytest.mark.slow
def test_another_model_is_told_what_was_said(chat: Any) -> None:
    """Questions and answers go along, other conversations are closed; the chat says both."""
    terminal = chat(text("Blue."))
    terminal.type("Which color?")
    terminal.wait_for("\n? ")
    terminal.type("/fork")
    terminal.wait_for("in conversation 2 of 2")
    with openai_server(text("Still blue.")) as other:
        terminal.type(f"/model {other.url}#second")
        terminal.wait_for("now second; it gets the 1 question and answer so far")
        terminal.wait_for("closed 1 conversation of the previous model")
        terminal.wait_for("\n? ")
        terminal.type("And now?")
        terminal.wait_for("Still blue.")
        messages = other.requests[0]["messages"]

    contents = [m["content"] for m in messages if m["role"] != "system"]
    assert contents == ["Which color?", "Blue.", "And now?"]
    terminal.type("/exit")
    assert terminal.end() == 0


@pytest.mark.slow
def test_several_lines_and_the_history(chat: Any, env: dict[str, str]) -> None:
    """A backslash goes on in the next line, three quotes hold a block; what was typed is kept."""
    terminal = chat(text("Ok."), text("Ok."))
    terminal.type("one\\")
    terminal.type("two")
    terminal.wait_for("\n? ")
    terminal.type('"""')
    terminal.type("three")
    terminal.type("")
    terminal.type("four")
    terminal.type('"""')
    terminal.wait_for("\n? ")
    assert terminal.press_until_end(b"\x04") == 0

    trace = Trace.load(terminal.shown.rpartition("trace: ")[2].strip())
    assert [turn.question for turn in trace.turns] == ["one\ntwo", "three\n\nfour"]
    history = Path(env["XDG_STATE_HOME"]) / "triplepoint" / "chat_history"
    assert "four" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_nothing_is_asked_where_nobody_is(env: dict[str, str], work: Path) -> None:
    """In a pipe the policy is read-only, and nothing waits for an answer."""
    import subprocess

    script = (calls(("write_file", {"path": "a.txt", "content": "x"})), text("No."))
    for mode, why in ((), "read-only"), (("--mode", "ask"), "nobody can be asked"):
        with openai_server(*script) as server:
            done = subprocess.run(
                [*CHAT[:-1], "run", "Write", "-m", server.url, "--tools", "edit", *mode],
                cwd=work,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        assert why in done.stderr
        assert done.stdout == "No.\n"
        assert (work / "a.txt").read_text() == "one\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_program(chat: Any, work: Path, number: signal.Signals) -> None:
    """What run_command has started ends with the chat, also when its terminal is closed."""
    terminal = _with_a_program(chat, work)
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number

    assert _is_over((work / "pid").read_text())


@pytest.mark.slow
def test_ctrl_c_ends_a_program(chat: Any, work: Path) -> None:
    """What run_command has started ends with the answer; the chat goes on."""
    terminal = _with_a_program(chat, work)
    terminal.press(b"\x03")
    terminal.wait_for("interrupted; the chat continues")
    terminal.wait_for("? ")
    pid = (work / "pid").read_text()
    terminal.type("Again")
    terminal.wait_for("Fine.")
    terminal.type("/exit")
    assert terminal.end() == 0

    assert _is_over(pid)


def _with_a_program(chat: Any, work: Path) -> Terminal:
    """A chat that waits for a program of run_command; its process id is in the file ``pid``."""
    code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"
    run = calls(("run_command", {"command": [sys.executable, "-c", code]}))
    terminal = chat(run, text("Fine."), args=("--tools", "exec", "--mode", "yes"))
    terminal.type("Wait")
    for _ in range(600):
        if (work / "pid").exists() and (work / "pid").read_text():
            break
        time.sleep(0.05)
    return terminal


def _is_over(pid: str) -> bool:
    """Whether a process has ended, if nobody has waited for it yet."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
