"""Finds lines in text files, with a bound on everything that can grow.

Regular expressions run on pydantic's `rust-regex` engine, not on Python's `re`: a search in `re`
can take exponential time, holds the GIL, and cannot be stopped from another thread. The Rust
engine takes linear time for every pattern and refuses those that would need a huge automaton.
The price is that look-around and back-references are refused, by name.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Generator, Iterator
from io import FileIO
from typing import NamedTuple

from ..errors import ToolError
from .formats import binary_skipped, plural, search_hit
from .links import NO_TEXT, Links
from .paths import check_text, printable, shown, some
from .text import BUDGET, OVERLAP, BinaryFileError, Block, TextFile, first_hit, unpacked
from .workspace import Workspace

MAX_PATTERN = 1000  # characters
# Characters of a line that a regular expression looks at. Time grows with line times pattern: to
# half a second here, and to a second with counted repetition, which multiplies a pattern.
MAX_REGEX_LINE = 65_536
MAX_COUNTED_LINE = 4096
PIECE = 4096  # characters in whole lines that a regular expression looks at together
MAX_FILES = 200_000  # files looked into by one search; it ends before, by time, where that is long
MAX_BYTES = 256 * 1024 * 1024  # bytes read by one search
MAX_SECONDS = 10.0  # a model waits for this
SOON = 2.0  # seconds, where there are enough hits
ENOUGH = 10  # hits that are enough

SKIPPED_FOLDERS = (*NO_TEXT, "node_modules", ".venv")


class Hit(NamedTuple):
    """A matching line; as a string, its search result."""

    path: str
    """Path in the workspace, escaped for display."""
    number: int
    """Line number, from 1."""
    text: str
    """The line without its end, or an excerpt of a very long one."""
    length: int
    """Characters of the whole line."""
    start: int
    """Characters before the excerpt."""

    def __str__(self) -> str:
        return search_hit(self.path, self.number, self.text, self.length, self.start)


Matcher = Callable[[str], bool]
"""Returns whether a line, without its end, matches the pattern."""


def matcher(pattern: str, regex: bool) -> Matcher:
    """Return a case-insensitive predicate that matches one line with the pattern.

    Raises:
        ToolError: the pattern is empty, too long, spans lines, or is no regular expression.
    """
    check_text("the pattern", pattern, MAX_PATTERN)
    if not pattern:
        raise ToolError("the pattern is empty")
    if "\n" in pattern:
        raise ToolError("the pattern holds a line break; each line is searched on its own")
    if regex:
        return _regex(pattern)
    needle = pattern.casefold()
    return lambda line: needle in line.casefold()


def _regex(pattern: str) -> Matcher:
    # Not at import time: most searches are literal.
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        schema = core_schema.str_schema(pattern=f"(?i){pattern}", regex_engine="rust-regex")
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        raise ToolError(f"bad regular expression: {_reason(str(error))}") from None


def _together(pattern: str) -> Matcher:
    """Return a predicate of joined lines that is false only where no single line matches."""
    if re.search(r"\\[Az]|\(\?(?![:P<])", pattern):  # it may distinguish a line from a whole text
        return lambda lines: True
    return _regex(f"(?m){pattern}")


def _pieces(text: str, limit: int) -> Iterator[str]:
    """Yield whole lines, of at most `limit` characters together, or one longer line."""
    text = text.removesuffix("\r").replace("\r\n", "\n")
    start = 0
    while len(text) - start > limit:
        end = text.rfind("\n", start, start + limit + 1)
        end = text.find("\n", start) if end < 0 else end
        if end < 0:
            break
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _reason(message: str) -> str:
    """Return the engine's message, without its drawing."""
    if "size limit" in message:
        return "it repeats too much"
    found = re.search(r"^error: (.+)", message, re.MULTILINE)
    return found[1] if found else "it cannot be parsed"


class Search:
    """A search for a pattern: iterate `file` or `folder`, then read `notes` for omissions.

    Attributes:
        lines, files: how many were looked at.
        stopped: why the search ended early, and where; empty if it did not.
    """

    def __init__(
        self,
        workspace: Workspace,
        pattern: str,
        regex: bool,
        *,
        counts: bool = False,
        packed: bool = False,
        takes: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Compile the pattern, and start the search's time limit.

        Args:
            workspace, pattern, regex: where to search for what.
            counts: all hits are wanted: no number of them is enough, larger files are read, all
                that was left out is reported, and an empty pattern fits every line.
            packed: whether packed files are looked into.
            takes: which files below a folder are searched; others are not named either.

        Raises:
            ToolError: as `matcher`.
        """
        self._workspace, self._counts, self._takes = workspace, counts, takes
        self._packed = packed
        every = counts and pattern == ""
        self._matches: Matcher = (lambda _: True) if every else matcher(pattern, regex)
        # What is not in some lines together is in none of them: most lines are not looked at.
        self._together = _together(pattern) if regex and not every else self._matches
        counted = MAX_COUNTED_LINE if "{" in pattern else MAX_REGEX_LINE
        self._looked_at = counted if regex else sys.maxsize  # characters of a line
        self._piece = PIECE if regex else sys.maxsize
        self._began = time.monotonic()
        self._hits_given = 0
        self._bytes = 0
        self.stopped = ""
        self.lines = self.files = 0
        self._partly: list[str] = []
        self._missed: list[str] = []
        self._long_lines = 0
        self._regex = regex
        self._binary: list[str] = []
        self._links: Links | None = None

    def file(self, path: str) -> Generator[Hit]:
        """Yield the hits in one named file; a binary or missing file is an error."""
        with self._workspace.open(path) as file:
            yield from self._hits(self._text(file, path), path)

    def folder(self, path: str) -> Generator[Hit]:
        """Yield the hits in all text files below a folder, by path and line."""
        self._links = Links(self._workspace, path, SKIPPED_FOLDERS, names=False)
        self._missed = self._links.missed
        walk = self._links.walk(MAX_FILES + 1, lambda: self._late(path, where="in the folders of"))
        for number, below in enumerate(filter(self._takes, walk)):
            if number == MAX_FILES:
                self.stopped = f"{MAX_FILES:,} files, before {shown(below)}"
            # Also here: in files that are empty or no text there is no line to look at the time.
            if self.stopped or (number and self._late(below)):
                return
            yield from self._one_of_many(below)

    def _one_of_many(self, path: str) -> Iterator[Hit]:
        try:
            with self._workspace.open(path) as file:
                yield from self._hits(self._text(file, path), path)
        except BinaryFileError:
            self._binary.append(path)
        except ToolError:  # gone, or not ours to read; the other files still count
            self._missed.append(path)

    def _hits(self, text: TextFile, path: str) -> Iterator[Hit]:
        name = printable(path)
        number = 1
        self.files += 1
        for block in text.blocks():
            for lines in _pieces(block.text, self._piece):
                # A longer one is one line, of which only the start is looked at.
                if block.hit or len(lines) > self._looked_at or self._together(lines):
                    yield from self._hits_in(lines, name, number, block)
                number += (count := lines.count("\n") + 1)
                self.lines += count
                if self.stopped or self._late(path, number):
                    return
            self._long_lines += block.length is not None and self._regex
        self._bytes += text.read
        if text.cut:
            self._partly.append(path)
        if self._bytes >= MAX_BYTES:
            self.stopped = f"{MAX_BYTES // 2**20} MiB, after {shown(path)}"

    def _hits_in(self, lines: str, name: str, number: int, block: Block) -> Iterator[Hit]:
        for at, line in enumerate(lines.split("\n"), number):
            hit = block.hit
            if hit is None and self._matches(line[: self._looked_at]):
                short = self._regex or self._counts or len(line) <= OVERLAP
                hit = (0, line) if short else first_hit(self._matches, line)
            if hit is not None:
                self._hits_given += 1
                yield Hit(name, at, hit[1], block.length or len(line), hit[0])
            if block.length is None:  # else it is counted already
                self._long_lines += len(line) > self._looked_at
            if self._late(name, at + 1):
                return

    def _text(self, file: FileIO, path: str) -> TextFile:
        if self._packed:
            file = unpacked(file, path)
        limit = MAX_BYTES if self._counts else BUDGET
        text = TextFile(file, path, min(limit, MAX_BYTES - self._bytes))
        text.find = None if self._regex else self._matches
        return text

    def _late(self, path: str, line: int = 0, *, where: str = "before") -> bool:
        """Return whether the time is up, and record where the search stopped."""
        enough = self._hits_given >= ENOUGH and not self._counts
        seconds = SOON if enough else MAX_SECONDS
        if not self.stopped and time.monotonic() - self._began > seconds:
            where = f"at line {line:,} of" if line else where
            self.stopped = f"{seconds:g} seconds, {where} {shown(path)}"
        return bool(self.stopped)

    @property
    def notes(self) -> Iterator[str]:
        """Yield a note for each thing left out, such as binary files; read it after the hits."""
        if self._binary and (self._counts or not self._hits_given):
            yield binary_skipped(some(self._binary))
        if self.stopped:
            yield (
                f"[cut: the search stopped after {self.stopped}; what follows was not searched; "
                "narrow the path]"
            )
        if self._partly:
            yield f"[cut: {some(self._partly)} searched only at the start: too large]"
        if self._long_lines:
            lines = plural(self._long_lines, "very long line")
            yield f"[cut: {lines} searched only at the start]"
        if self._missed:
            yield f"[cut: {some(self._missed)} could not be read]"
        if self._links is not None:
            yield from self._links.notes(self._hits_given > 0 and not self._counts)

    @property
    def seconds_left(self) -> float:
        """Return the seconds left of a search's time limit."""
        return max(0.0, self._began + MAX_SECONDS - time.monotonic())

    @property
    def whole(self) -> bool:
        """Return whether all text was searched; valid after the hits."""
        return not (self.stopped or self._partly or self._missed or self._long_lines)
