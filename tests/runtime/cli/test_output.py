"""What goes to the screen."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.runtime.cli.output import Output, Progress, joined
from triplepoint.runtime.cli.tables import Row, show
from triplepoint.runtime.cli.transcript import result_text


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_pieces_stream_and_lines_start_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """Pieces are written as they come; a line after a piece starts on a line of its own."""
    output = Output()
    output.piece("dis")
    output.piece("k full")
    output.line("next")
    output.line("last")

    assert capsys.readouterr().out == "disk full\nnext\nlast\n"


def test_pieces_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of an answer are shown, not obeyed."""
    Output().piece("a\x1b]52;c;eA==\x07\r\u202eb\n")

    assert capsys.readouterr().out == "a\\x1b]52;c;eA==\\x07\\r\\u202eb\n"


def test_json_is_the_only_thing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """For machines there is one object and nothing around it."""
    output = Output(as_json=True)
    output.line("hello")
    output.piece("x")
    output.json({"a": "\x1b\x7f"})

    assert capsys.readouterr().out == '{\n  "a": "\\u001b\\u007f"\n}\n'


@pytest.mark.parametrize("columns", ["0", "-5", "abc", "", "\u00b2"])
def test_a_width_that_is_none(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS and LINES that say nothing of use are not taken: tables and answers are shown."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    monkeypatch.setattr("sys.stdout", screen := Screen())
    output = Output()
    assert output.width == 80
    output.console.print("hello")
    assert screen.getvalue().strip() == "hello"


@pytest.mark.parametrize(
    ("term", "able"), [("xterm-256color", True), ("dumb", False), ("unknown", False), ("", False)]
)
def test_a_terminal_that_cannot_draw(
    term: str, able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that says nothing of itself, as under cron or a bare ssh, is not given escapes."""
    monkeypatch.setattr("sys.stdout", Screen())
    output = Output(environ={"TERM": term})
    assert output.in_color is able
    assert Output(environ={}).on_terminal is False


def test_progress_does_not_wrap() -> None:
    """A line that wraps could not be drawn over."""
    screen = Screen()
    Progress(screen).show("x" * 500)
    assert screen.getvalue() == "\r" + "x" * 79


def test_progress_shows_long_prefills_only() -> None:
    """Nothing for a prefill of less than a second; a line with rate and time left for others."""
    screen = Screen()
    progress = Progress(screen)
    progress(100, 500, 1000.0)
    assert screen.getvalue() == ""

    progress(1000, 5000, 1000.0)
    assert screen.getvalue() == "\rreading 1,000 of 5,000 tokens, 1,000 tok/s, 4 s left"

    progress(5000, 5000, 1000.0)
    assert screen.getvalue().endswith("\r" + " " * 52 + "\r")


def test_progress_is_for_terminals() -> None:
    """A log file gets no progress line."""
    log = io.StringIO()
    Progress(log)(1000, 5000, 10.0)

    assert log.getvalue() == ""


def test_what_is_beside_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Into the file of stdout comes nothing of it, not even the end of an unfinished line."""
    output = Output()
    output.piece("The ans")
    output.aside.line("> read_file()", "cyan")
    output.aside.piece("thinking")
    output.piece("wer")
    output.aside.words("note: " + "word " * 50)
    output.end_line()

    shown = capsys.readouterr()
    assert shown.out == "The answer\n"
    assert shown.err == "> read_file()\nthinking\nnote: " + "word " * 50 + "\n"


def test_two_streams_of_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal that has both, what is beside the answer gets lines of its own."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", screen)
    output = Output(environ={"TERM": "dumb"})
    output.piece("The ans")
    output.aside.piece("thinking")
    output.piece("wer")
    output.end_line()

    assert screen.getvalue() == "The ans\nthinking\nwer\n"


def test_a_status_line_breaks_between_its_parts() -> None:
    """None of them is broken, and empty ones are left out."""
    parts = ["93 ms", "", "reused 1 of 2 tokens", "a part that is too long for any line"]

    assert joined(parts, None) == [" · ".join(filter(None, parts))]
    assert joined(parts, 31) == ["93 ms · reused 1 of 2 tokens", parts[-1]]


def test_the_size_is_the_results() -> None:
    """It is said before the first line, which may be the name of a file."""
    assert result_text("app.log\nnotes.txt") == "result of 2 lines, 17 characters: app.log"
    assert result_text("No matches found.") == "No matches found."
    assert len(result_text("x" * 500 + "\ny")) <= 96


def test_numbers_that_json_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    """Are null, at any depth."""
    Output(as_json=True).json({"a": [math.nan, {"b": -math.inf}], "c": 1.5})

    assert json.loads(capsys.readouterr().out) == {"a": [None, {"b": None}], "c": 1.5}


def test_rows_before_an_error_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The list is closed, and the error is not written behind it."""

    def rows() -> Iterator[Row]:
        yield Row((), {"n": 1})
        raise ValueError("no more")

    output = Output(as_json=True)
    with pytest.raises(ValueError, match="no more"):
        show(output, "json", [], rows())
    output.json({"status": "error"})

    assert json.loads(capsys.readouterr().out) == [{"n": 1}]


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> tuple[Screen, Output]:
    """A terminal without colors that has so many columns, and its output."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setattr("sys.stderr", screen)
    return screen, Output(environ={"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)})


def lines_of(shown: str, columns: int) -> list[str]:
    """The lines that a terminal has after it was written this."""
    lines, at = [""], 0
    for char in shown:
        if char == "\n":
            lines, at = [*lines, ""], 0
        elif char == "\b":
            at = max(0, min(at, columns - 1) - 1)
        else:
            if at == columns:
                lines, at = [*lines, ""], 0
            lines[-1] = lines[-1][:at] + char + lines[-1][at + 1 :]
            at += 1
    return lines


@given(
    text=st.text(alphabet="ab \n", max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    columns=st.integers(6, 20),
)
@settings(max_examples=60, deadline=None)
def test_a_flowing_text_breaks_between_words(text: str, cuts: list[int], columns: int) -> None:
    """However it is cut, all of it is shown at once, and no word that fits a line is broken."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        screen, output = on_screen(monkeypatch, columns)
        ends = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
        for start, end in pairwise(ends):
            output.flow(text[start:end])
            assert "".join("".join(lines_of(screen.getvalue(), columns)).split()) == "".join(
                text[:end].split()
            )
        output.end_line()

    lines = lines_of(screen.getvalue(), columns)
    if max(map(len, text.split()), default=0) < columns:
        assert " ".join(lines).split() == text.split()


def test_a_flowing_text_is_as_it_came_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe nothing is held and nothing broken."""
    output = Output(environ={"COLUMNS": "10"})
    output.flow("a word ")
    output.flow("and anoth")
    assert capsys.readouterr().out == "a word and anoth"
    output.flow("er")
    output.end_line()
    assert capsys.readouterr().out == "er\n"


def test_a_note_breaks_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; `test_wrong_usage_is_status_2` has one line in a pipe."""
    screen, output = on_screen(monkeypatch, 20)
    output.error("no such folder: logs")

    assert screen.getvalue() == "triplepoint: error:\nno such folder: logs\n"
