"""Output of commands: plain text in a pipe, colors and a progress line on a terminal.

The result goes to stdout. Everything else (tool calls, statistics, notes, progress, errors) goes
to stderr, so that ``triplepoint run … > answer.txt`` holds the answer alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from ...traces.sanitize import printable

if TYPE_CHECKING:
    from rich.console import Console

    from ...traces.reader import Trace

_PROGRESS_AFTER = 1.0  # seconds a prefill must take to be worth a line
_COLUMNS = 80  # of a terminal that does not tell
_DUMB = ("", "dumb", "unknown")  # what TERM says where a terminal cannot, or may not, draw
_PROGRESS_EVERY = 0.1  # seconds between two drawings of it


class Output:
    """Where a command writes: answers and tables to stdout, the rest to stderr (`aside`).

    Args:
        as_json: the command prints one JSON object at its end, and nothing else on stdout.
    """

    def __init__(self, *, as_json: bool = False, environ: Mapping[str, str] = os.environ) -> None:
        self.as_json = as_json
        self._environ = environ
        self.is_terminal = self.stream.isatty()
        is_able = environ.get("TERM", "") not in _DUMB
        self.on_terminal = self.is_terminal and is_able and not as_json
        self.in_color = self.on_terminal and not environ.get("NO_COLOR")
        self.progress = Progress(sys.stderr)
        self._console: Console | None = None
        self.facts: dict[str, object] = {}
        """Additional fields of an error's JSON, e.g. the path of the trace."""
        self.interruption = "interrupted"  # what Ctrl-C has the command say at its end
        self._inside_line = False
        self._word, self._column = "", 0  # before the cursor, of `flow`
        self._other: Output | None = None  # what may write to the same terminal
        for stream in (sys.stdout, sys.stderr):
            # A terminal or pipe that cannot show a character gets its escape, not a traceback.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]
        if hasattr(sys.stdin, "reconfigure"):  # bytes that are no text must not end a run or chat
            sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]

    @property
    def stream(self) -> TextIO:
        """Return the stream for answers and tables: stdout."""
        return sys.stdout

    @cached_property
    def aside(self) -> Output:
        """Return the output for everything that is not the result: stderr."""
        self._other = _Aside(self)
        return self._other

    @property
    def can_ask(self) -> bool:
        """Return whether a user can be asked: stdin and stderr are terminals, without JSON."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    @property
    def width(self) -> int | None:
        """Return the width of the terminal in columns; None if the output is not one."""
        if not self.is_terminal:
            return None
        told = self._environ.get("COLUMNS", "")
        return int(told) if told.isdecimal() and int(told) else _columns(self.stream)

    def piece(self, text: str, style: str = "") -> None:
        """Write part of a line at once, with control characters escaped."""
        if self.as_json or not text:
            return
        self.progress.clear()
        if (other := self._other) is not None and other.is_terminal and self.is_terminal:
            other.end_line()  # the two share a screen, and not a line
        shown = printable(text, block=True)
        self._inside_line = not shown.endswith("\n")
        if self.in_color and style:
            self.console.print(shown, style=style, end="", soft_wrap=True)
        else:
            self.stream.write(shown)
        self.stream.flush()

    def line(self, text: str = "", style: str = "") -> None:
        """End an unfinished line, and write a whole one."""
        self.end_line()
        self.piece(text + "\n", style)

    def headed(self, lines: Iterable[str]) -> None:
        """Write the lines of a table, of which the first is the heading."""
        for number, line in enumerate(lines):
            self.line(line, "" if number else "bold")

    def status(self, parts: Iterable[str]) -> None:
        """Write a dim line of parts with dots between them; only break it between parts."""
        for line in joined(parts, self.width):
            self.line(line, "dim")

    def words(self, text: str, style: str = "dim", *, indent: int = 0) -> None:
        """Write a line of words; a terminal breaks it only between words.

        Args:
            indent: columns before its continuation lines, where there is room for them.
        """
        lines = [text]
        if self.width:
            lines = textwrap.wrap(
                text,
                self.width,
                subsequent_indent=" " * min(indent, self.width // 3),
                break_long_words=False,
                break_on_hyphens=False,
            )
        for line in lines:
            self.line(line, style)

    def flow(self, text: str, style: str = "") -> None:
        """Write part of a running text at once; a terminal breaks its lines between words.

        A word that grows too long is taken back, unless its characters may take two columns.
        """
        if self.as_json or not (width := self.width):
            self.piece(text, style)
            return
        for part in re.findall(r"\n|[ \t]+|[^ \t\n]+", text):
            before, self._word = self._word, ""
            if part.isspace():  # up to the last column: a cursor there could not be moved back
                part = part[: max(part == "\n", width - 1 - self._column)]
            elif len(before) < self._column >= width - len(part) and before.isascii():
                self.stream.write("\b" * len(before) + " " * len(before))
                self._word, part = before + part, f"\n{before}{part}"
            else:
                self._word = before + part
            self.piece(part, style)
            _, new, last = part.rpartition("\n")
            self._column = ((0 if new else self._column) + len(last)) % width

    def end_line(self) -> None:
        """Start a new line, unless at the start of one."""
        self._word, self._column = "", 0
        if self._inside_line:
            self.piece("\n")

    def timeline(self, trace: Trace) -> None:
        """Write a trace's table of phases."""
        from ...traces import timeline

        if self.as_json:
            return
        self.end_line()
        if self.in_color:
            self.console.print(timeline.rich(trace, self.console.width))
        else:
            self.line(timeline.plain(trace, self.width))

    def json(self, value: object) -> None:
        """Write the command's JSON with ``--json``: indented, in ASCII, so safe to show."""
        if self.as_json:
            text = json.dumps(_finite(value), indent=2, default=str, allow_nan=False)
            sys.stdout.write(text.replace("\x7f", "\\u007f"))
            sys.stdout.write("\n")
            sys.stdout.flush()

    def error(self, message: str) -> None:
        """Write one line on stderr."""
        self.note(f"error: {message}")

    def note(self, message: str) -> None:
        """Write one line on stderr that is no error."""
        self.progress.clear()
        for one in (self, self._other):
            if one is not None:
                one.end_line()
        text = " ".join(printable(message, block=True).split())
        if not self.as_json:
            return self.aside.words(f"triplepoint: {text}", "")
        with may_be_lost():
            print(f"triplepoint: {text}", file=sys.stderr, flush=True)

    @property
    def console(self) -> Console:
        """Return the rich console, created on first use."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                stderr=self.stream is sys.stderr,
                highlight=False,
                markup=False,
                emoji=False,
                no_color=not self.in_color,
                # rich takes any number that these have: 0 would show nothing, and "²" is an error.
                _environ={
                    name: value
                    for name, value in self._environ.items()
                    if name not in ("COLUMNS", "LINES")
                },
                width=self.width if self._environ.get("COLUMNS") else None,
            )
        return self._console


class _Notes(logging.Handler):
    """Log handler that shows records as notes."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        self._output.note(record.getMessage())


@contextlib.contextmanager
def log_shown(output: Output, *, quiet: bool) -> Iterator[None]:
    """Show the machine's log messages as notes in this context; with `quiet`, errors alone."""
    log, handler = logging.getLogger("triplepoint.machine"), _Notes(output)
    log.addHandler(handler)
    log.setLevel(logging.ERROR if quiet else logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)


class _Aside(Output):
    """The output of a command on stderr: notes, statistics and errors."""

    def __init__(self, main: Output) -> None:
        super().__init__(as_json=main.as_json, environ=main._environ)
        self.progress = main.progress
        self._other = main

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @property
    def aside(self) -> Output:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self

    def piece(self, text: str, style: str = "") -> None:
        with may_be_lost():
            super().piece(text, style)


def read_answer(question: str) -> str:
    """Ask on the terminal and read a line; return "" at the end of the input.

    What was typed before the question was there is no answer to it, and is dropped.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # not on every system
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    print(question, end=" ", file=sys.stderr, flush=True)
    line = ""
    try:
        line = sys.stdin.readline()
    finally:
        if not line.endswith("\n"):  # Ctrl-C or Ctrl-D: what is said next has a line of its own
            with may_be_lost():
                print(file=sys.stderr, flush=True)
    return line


def _columns(stream: TextIO) -> int:
    """Return the columns of a stream's terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


@contextlib.contextmanager
def may_be_lost() -> Iterator[None]:
    """Discard later output to stderr once a write to it fails, as on a full disk.

    The answer is not: it goes elsewhere.
    """
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def joined(parts: Iterable[str], width: int | None, dot: str = " · ") -> list[str]:
    """Join the nonempty parts into as few lines as fit the width, each part whole."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and (width is None or len(lines[-1]) + len(dot) + len(part) <= width):
            lines[-1] += dot + part
        else:
            lines.append(part)
    return lines


class Progress:
    """A progress line that is redrawn: tokens done, tok/s, time left.

    Only on a terminal, and only for what takes longer than a second. Call it as
    `Phases.on_progress` is called.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0  # width of what stands on the line
        self._drawn_at = 0.0
        self._loading_since = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(self, done: int, total: int, tokens_per_s: float) -> None:
        from ...traces.timeline import duration, rate

        if tokens_per_s <= 0 or total / tokens_per_s < _PROGRESS_AFTER:
            return
        left = duration((total - done) / tokens_per_s)
        text = f"reading {done:,} of {total:,} tokens, {rate(tokens_per_s)} tok/s, {left} left"
        self.show(text, done >= total)

    def loading(self, share: float, what: str = "loading the model") -> None:
        """Show the loaded fraction of a model's weights, 0 to 1, once loading takes a while."""
        now = time.monotonic()
        self._loading_since = self._loading_since or now
        if now - self._loading_since > _PROGRESS_AFTER:
            self.show(f"{what}: {share:.0%}", share >= 1)

    def show(self, text: str, done: bool = False) -> None:
        """Replace the text of the progress line; erase the line when `done`."""
        now = time.monotonic()
        if not self._stream.isatty() or done:
            self.clear()
        elif now - self._drawn_at >= _PROGRESS_EVERY:
            self._drawn_at = now
            text = text[: _columns(self._stream) - 1]  # a line that wraps is not drawn over
            self._stream.write("\r" + text.ljust(self._shown))
            self._stream.flush()
            self._shown = len(text)

    def clear(self) -> None:
        """Erase the progress line, if it is drawn."""
        if self._shown:
            self._stream.write("\r" + " " * self._shown + "\r")
            self._stream.flush()
            self._shown = 0


def _finite(value: object) -> object:
    """Replace numbers that JSON does not have by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
