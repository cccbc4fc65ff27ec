"""What goes to the screen."""

from __future__ import annotations

import io

import pytest

from triplepoint.runtime.cli.output import Output, Progress


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
