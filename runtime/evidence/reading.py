"""Reads and caches the text of the workspace's files: plain, or unpacked within bounds.

All bytes come through `Workspace.open`. A text stays cached, within a bound, while its file is
unchanged by size, modification time and inode.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

from ...errors import ToolError
from ...tools.formats import split_lines
from ...tools.text import BUDGET, LATIN, PACKED, TextFile, unpacked
from ...tools.workspace import Workspace

MAX_UNPACKED = 32 << 20  # bytes taken of one packed file: a bomb has no end
MAX_CACHED = 48 << 20  # characters of texts that are kept
MAX_NESTED = 40  # lines that one can stand under
_SECTION = re.compile(r"\[[^\]]+\]\s*$|<\w[^>]*>\s*$")
_HEADING = re.compile(r"#{1,6} |={2,} |\*+ ")
_RULES = '-=~^"*+#`'


@dataclass(frozen=True)
class Text:
    """The text of a file."""

    whole: str
    """All lines, joined by line feeds."""
    cut: bool = False
    """Whether the file is longer than the text that was read."""

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines without their line ends."""
        return [line.removesuffix("\r") for line in self.whole.split("\n")] if self.whole else []

    @cached_property
    def parents(self) -> list[int]:
        """Return each line's parent by index: a less indented line or a heading; -1 for none."""
        found: list[int] = []
        inside: list[tuple[int, int]] = []
        section = heading = -1
        for at, text in enumerate(self.lines):
            bare = text.lstrip()
            if not bare:
                found.append(-1)
            elif bare[0] in "[<" and _SECTION.match(bare):
                found.append(-1)
                section, heading, inside = at, at, []
            elif bare[0] in "#=*" and _HEADING.match(text):
                found.append(section)
                heading, inside = at, []
            elif at and bare[0] in _RULES and len(bare) > 2 and not bare.strip(bare[0]):
                found.append(section)
                heading, inside = at - 1, []
            else:
                depth = len(text) - len(bare)
                while inside and inside[-1][0] >= depth:
                    inside.pop()
                found.append(inside[-1][1] if inside else heading)
                if len(inside) < MAX_NESTED:
                    inside.append((depth, at))
        return found


def read_text(workspace: Workspace, path: str, limit: int = BUDGET) -> Text:
    """Read the text of a file, unpacked if it is compressed.

    Raises:
        ToolError: it cannot be read, or is no text.
    """
    with workspace.open(path) as file:
        limit = min(limit, MAX_UNPACKED) if path.endswith(PACKED) else limit
        text = TextFile(unpacked(file, path), path, limit)
        whole = "\n".join(block.text for block in text.blocks())
    return Text(whole, text.cut)


Key = tuple[int, int, int]
"""Size, modification time in ns and inode, which identify a version of a file."""


def key_of(found: os.stat_result) -> Key:
    """Return the key of a file by its stat result."""
    return found.st_size, found.st_mtime_ns, found.st_ino


class Texts:
    """A thread-safe cache of the texts of a workspace's files."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._cached: OrderedDict[str, tuple[Key, Text]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str, limit: int = BUDGET) -> Text:
        """Return the current text of a file, cached.

        Raises:
            ToolError: it cannot be read, or is no text.
        """
        key = key_of(self.workspace.stat(path))
        with self._lock:
            if (cached := self._cached.get(path)) is not None and cached[0] == key:
                self._cached.move_to_end(path)
                return cached[1]
        text = read_text(self.workspace, path, limit)
        if limit >= BUDGET:
            self._store(path, key, text)
        return text

    def _store(self, path: str, key: Key, text: Text) -> None:
        with self._lock:
            if (old := self._cached.pop(path, None)) is not None:
                self._size -= len(old[1].whole)
            self._cached[path] = key, text
            self._size += len(text.whole)
            while self._size > MAX_CACHED and self._cached:
                _, (_, gone) = self._cached.popitem(last=False)
                self._size -= len(gone.whole)

    def part(self, path: str, start: int, length: int) -> list[str]:
        """Read lines of a plain file by byte offset and length.

        Raises:
            ToolError: it cannot be opened.
        """
        with self.workspace.open(path) as file:
            try:
                data = os.pread(file.fileno(), length, start)
            except OSError as error:
                raise ToolError(f"cannot read {path}: {error.strerror}") from None
        return split_lines(data.decode("utf-8", LATIN))
