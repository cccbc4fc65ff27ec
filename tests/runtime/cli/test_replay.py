"""`triplepoint replay` without a model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Terminal = Callable[..., tuple[int, str]]


def test_the_recorded_run_is_shown(triplepoint: Run, recorded: Path) -> None:
    """Question, call, short result, answer, table; control characters only as escapes."""
    done = triplepoint("replay", recorded)

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run 20")
    assert lines[0].endswith(", nano, avx2, kv bf16")
    assert lines[1:5] == [
        "? What's the error in app.log?",
        '> read_file(path="a\\u001b[2J.log")',
        "  1  ERROR disk full  (2 lines, 32 characters)",
        "disk\\x1b[31m full",
    ]
    assert "streaming prefill" in done.stdout
    assert not re.search(r"[^\n\x20-\x7e→…µ]", done.stdout)


def test_on_a_terminal_there_are_colours(on_terminal: Terminal, recorded: Path) -> None:
    """A terminal gets colours, one with NO_COLOR or TERM=dumb none, and the same text."""
    colours = re.compile(r"\x1b\[[0-9;]*m")
    shown = {
        name: on_terminal("replay", recorded, more=more)
        for name, more in {
            "colour": {},
            "no_color": {"NO_COLOR": "1"},
            "dumb": {"TERM": "dumb"},
        }.items()
    }

    assert {status for status, _ in shown.values()} == {0}
    assert colours.search(shown["colour"][1])
    assert "\x1b" not in shown["no_color"][1] + shown["dumb"][1]
    assert "\x1b" not in colours.sub("", shown["colour"][1])
    plain = [[x.rstrip() for x in colours.sub("", s).splitlines()] for _, s in shown.values()]
    assert plain[0] == plain[1] == plain[2]


def test_json_holds_what_the_table_shows(triplepoint: Run, recorded: Path) -> None:
    """--json is one object with header, phases, tools and sums."""
    done = triplepoint("replay", recorded, "--json")

    found = json.loads(done.stdout)
    assert found["status"] == "answered"
    assert found["answer"] == "disk\x1b[31m full"
    assert found["run"]["model"]["name"] == "nano"
    assert [phase["regime"] for phase in found["phases"]] == ["streaming prefill"]
    assert found["tools"][0]["arguments"] == {"path": "a\x1b[2J.log"}
    assert found["totals"]["input_tokens"] == 3


def test_a_torn_trace_is_shown_and_told(triplepoint: Run, recorded: Path) -> None:
    """What a killed run left is shown, and that it is torn."""
    recorded.write_bytes(recorded.read_bytes()[:-20])

    done = triplepoint("replay", recorded)

    assert done.returncode == 0
    assert 'torn: the last line is unfinished: {"v":1,"seq":5' in done.stdout


def test_two_runs_in_one_file_are_both_shown(triplepoint: Run, recorded: Path) -> None:
    """Each run of a file has its own header and table."""
    text = recorded.read_text()
    recorded.write_text(text + text.replace('"run":"2', '"run":"3'))

    done = triplepoint("replay", recorded)

    assert done.stdout.count("? What's the error") == 2
    assert "\nrun 30" in done.stdout


def test_a_bad_line_is_named(triplepoint: Run, recorded: Path) -> None:
    """A damaged trace is an error with its line, status 3."""
    lines = recorded.read_text().splitlines()
    recorded.write_text("\n".join([*lines[:2], "{", *lines[2:]]))

    done = triplepoint("replay", recorded)

    assert done.returncode == 3
    assert "run.jsonl, line 3: not JSON: {" in done.stderr
