"""run_command: no shell, limits on time and output, and nothing of it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import ended

from triplepoint.errors import ToolError
from triplepoint.tools import CommandTools

PYTHON = sys.executable


@pytest.fixture
def commands(root: Path) -> CommandTools:
    return CommandTools(root, max_seconds=20, max_output=2000)


def test_output_and_status_are_told(root: Path, commands: CommandTools) -> None:
    """Both streams in order, then the exit status; it starts in the folder."""
    code = "import os,sys; print(os.getcwd(), flush=True); print('bad', file=sys.stderr); exit(3)"

    assert commands.run_command([PYTHON, "-c", code]) == f"{root}\nbad\n[exit status 3]"
    assert commands.run_command(["true"]) == "[exit status 0]"


def test_last_words_are_not_lost(
    commands: CommandTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program writes between a look at its output and a look whether it has ended."""
    poll = subprocess.Popen.poll

    def late(process: subprocess.Popen[bytes]) -> int | None:
        (root / "go").touch()
        process.wait(20)
        return poll(process)

    monkeypatch.setattr(subprocess.Popen, "poll", late)
    waits = "while [ ! -e go ]; do sleep 0.01; done; echo the result"

    assert commands.run_command(["sh", "-c", waits]) == "the result\n[exit status 0]"


def test_there_is_no_shell(root: Path, commands: CommandTools) -> None:
    """What a shell would read into a word is a word."""
    said = commands.run_command(["printf", "%s|", "$HOME", "a; touch x", "*", "`id`"])

    assert said == "$HOME|a; touch x|*|`id`|\n[exit status 0]"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "the command is empty"),
        ([""], "the command is empty"),
        (["no-such-program-here"], "no such program: no-such-program-here"),
        (["ls", "a\0b"], "NUL"),
    ],
)
def test_what_cannot_run_is_told(commands: CommandTools, command: list[str], message: str) -> None:
    """Mistakes are told in a line."""
    with pytest.raises(ToolError, match=message):
        commands.run_command(command)


def test_it_cannot_ask(commands: CommandTools) -> None:
    """Standard input is empty and there is no terminal."""
    code = "import sys; print(repr(sys.stdin.read()), flush=True); open('/dev/tty')"

    said = commands.run_command([PYTHON, "-c", code])

    assert said.startswith("''")
    assert "OSError" in said


def test_keys_are_not_handed_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our variables only the usual ones; others only when they are given."""
    monkeypatch.setenv("SOME_API_KEY", "secret")

    assert "SOME_API_KEY" not in CommandTools(root).run_command(["env"])
    assert "A=b" in CommandTools(root, environment={"A": "b"}).run_command(["/usr/bin/env"])


def test_a_slow_program_and_its_children_are_ended(root: Path) -> None:
    """At the limit the whole group ends, also what ignores being asked."""
    code = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(os.getpid(), child.pid, flush=True)\n"
        "time.sleep(60)"
    )

    said = CommandTools(root, max_seconds=0.5).run_command([PYTHON, "-c", code])

    pids, end = said.split("\n")
    assert end.endswith("was ended after 0.5 seconds]")
    assert [ended(int(pid)) for pid in pids.split()] == [True, True]


@pytest.mark.slow
def test_what_a_program_leaves_behind_is_ended(root: Path, commands: CommandTools) -> None:
    """A child that goes on in the background does not, and does not hold the answer up."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
    began = time.monotonic()

    pid, end = commands.run_command([PYTHON, "-c", code]).split("\n")

    assert end == "[exit status 0]"
    assert ended(int(pid))
    assert time.monotonic() - began < 15  # not the child's minute


def test_a_flood_is_cut_in_the_middle(commands: CommandTools) -> None:
    """Beginning and end of a long output are kept, and it is said what is missing."""
    code = "import sys; print('first'); sys.stdout.write('x' * 5_000_000); print('last')"

    said = commands.run_command([PYTHON, "-c", code])

    assert said.startswith("first\nxxx")
    assert said.endswith("xlast\n[exit status 0]")
    assert "[cut: 4,998,011 bytes of the output are left out here]" in said
    assert len(said) < 2200


@pytest.mark.parametrize("most", [1, 2, 3, 5, 10, 11, 12])
def test_a_cut_makes_no_characters(root: Path, most: int) -> None:
    """Where the cut falls within a character, all of that character is left out, and counted."""
    code = "import sys; sys.stdout.buffer.write('x€'.encode() * 50)"
    (one,) = CommandTools(root, max_output=most)

    head, _, rest = one.run({"command": [PYTHON, "-c", code]}).partition("\n[cut: ")
    missing, _, tail = rest.partition(" bytes of the output are left out here]\n")

    tail = tail.removesuffix("[exit status 0]").strip()
    assert set(head + tail) <= {"x", "€"}
    assert int(missing) + len((head + tail).encode()) == 200


def test_what_is_no_text_is_not_shown(commands: CommandTools) -> None:
    """Bytes are counted."""
    said = commands.run_command(["head", "-c", "100", "/dev/zero"])

    assert said == "[100 bytes that are no text]\n[exit status 0]"


def test_a_signal_is_told(commands: CommandTools) -> None:
    """A program that dies says of what."""
    code = "import os; os.kill(os.getpid(), 11)"

    assert "ended by signal 11" in commands.run_command([PYTHON, "-c", code])


def test_the_folder_must_be_there(root: Path) -> None:
    """A missing folder is told when the tool is made."""
    with pytest.raises(ToolError, match="no such folder"):
        CommandTools(root / "missing")


def test_a_folder_that_goes_is_told(root: Path) -> None:
    """It is not the program that is missing then."""
    (root / "below").mkdir()
    (one,) = CommandTools(root / "below")
    (root / "below").rmdir()

    with pytest.raises(ToolError, match=r"the workspace folder is gone: .*below"):
        one.run({"command": ["ls"]})


@pytest.mark.parametrize("odd", [{"A": 1}, {1: "A"}, {"A": "a\0"}, {"A=B": "c"}])
def test_what_is_no_variable_is_told_when_the_tool_is_made(root: Path, odd: Any) -> None:
    """Not by a TypeError of the first command."""
    with pytest.raises(ToolError, match="environment must map names to strings, not"):
        CommandTools(root, environment=odd)
    with pytest.raises(ToolError, match="max_output must be a whole number of 1 or more"):
        CommandTools(root, max_output=0)


def test_its_effect_and_preview() -> None:
    """It is declared as what it is, and shows the command as a shell would write it."""
    (one,) = CommandTools(os.getcwd())

    assert one.effect == "exec"
    assert one.preview({"command": ["echo", "a b"]}) == "$ echo 'a b'"
