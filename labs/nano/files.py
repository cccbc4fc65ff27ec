"""The file tools over files that exist only in memory, for the training corpus.

The text comes from `tools.formats`, as the real tools' does, so that it is the same byte for
byte; tests/labs/nano/test_files.py holds both together. Millions of calls cannot go through
a file system.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from triplepoint.tools import formats
from triplepoint.tools.paths import some

from .marks import compiled


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `arguments` holds only what differs from the tool's defaults."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """A workspace: relative path (with `/`) to text; and the limit of one result.

    A path that ends in `/` is an empty folder, a text that begins with NUL a binary file. `notes`
    stand behind what is found in more than one file, those of `regex_notes` behind a regular
    expression's: of files beside these, which no question is about (`Search.notes`).
    """

    texts: dict[str, str]
    max_lines: int = formats.MAX_LINES
    max_chars: int = formats.MAX_CHARS
    notes: tuple[str, ...] = ()
    regex_notes: tuple[str, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether a disk can hold them: no file has the name of another's folder."""
        folders = {
            path[: match.start()] for path in self.texts for match in re.finditer("/(?=.)", path)
        }
        return folders.isdisjoint(self.texts)

    def run(self, call: Call) -> str:
        """Return the model's view of `call`: the tool's result, or `error: …`."""
        try:
            return getattr(self, call.name)(**call.arguments)
        except _Refused as error:
            return f"error: {error}"

    def list_dir(self, path: str = ".") -> str:
        prefix = "" if path == "." else path + "/"
        below = [name[len(prefix) :] for name in self.texts if name.startswith(prefix)]
        if below == [""]:
            below = []
        elif not below and path in self.texts:
            raise _Refused(formats.not_a_folder(path))
        elif not below and path != ".":
            raise _Refused(formats.no_such_folder(path) + self._elsewhere(path, files=False))
        parts = (name.partition("/") for name in below)
        return formats.list_result(
            {name + slash for name, slash, _ in parts}, max_chars=self.max_chars
        )

    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        if path not in self.texts:
            if any(name.startswith(path + "/") for name in self.texts):
                raise _Refused(formats.not_a_file(path))
            raise _Refused(formats.no_such_file(path) + self._elsewhere(path, folders=False))
        self._refuse_binary(path)
        lines = formats.split_lines(self.texts[path])
        if lines and start > len(lines):
            raise _Refused(formats.past_the_end(path, len(lines), start))
        return formats.read_result(
            lines, start, end, max_lines=self.max_lines, max_chars=self.max_chars
        )

    def search(self, pattern: str, path: str = ".", regex: bool = False) -> str:
        prefix = path + "/"
        names = [n for n in self.texts if path in (".", n) or n.startswith(prefix)]
        if not names and path != ".":
            raise _Refused(formats.no_such_path(path) + self._elsewhere(path))
        if path in self.texts:
            self._refuse_binary(path)
        matches = _matcher(pattern, regex)
        names.sort(key=str.encode)
        binary = [name for name in names if self.texts[name].startswith("\0")]
        hits = [
            formats.search_hit(name, number, line)
            for name in names
            if name not in binary
            for number, line in enumerate(formats.split_lines(self.texts[name]), 1)
            if matches(line)
        ]
        notes = () if path in self.texts else self.regex_notes * regex + self.notes
        if binary and not hits:
            notes = (formats.binary_skipped(some(binary)), *notes)
        return formats.search_result(hits, notes, max_chars=self.max_chars)

    def _elsewhere(self, path: str, *, files: bool = True, folders: bool = True) -> str:
        """Return other locations of the last name of a missing path."""
        below = sorted((name for name in self.texts if name[-1] != "/"), key=str.encode)
        places = formats.named(path, below, files=files, folders=folders)
        return formats.elsewhere(list(islice(places, formats.MAX_PLACES + 1)))

    def _refuse_binary(self, path: str) -> None:
        if self.texts[path].startswith("\0"):
            raise _Refused(formats.binary_file(path, len(self.texts[path].encode())))


@lru_cache(8)
def _matcher(pattern: str, regex: bool) -> Callable[[str], bool]:
    """Return a predicate of lines, cached: a long log has many equal lines."""
    if not regex:
        needle = pattern.casefold()
        return lambda line: needle in line.casefold()
    search = compiled(pattern).search
    return lru_cache(4096)(lambda line: search(line) is not None)


class _Refused(Exception):
    """A tool's refusal."""
