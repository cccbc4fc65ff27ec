"""count: how many lines hold a text, and how they are spread over files, days, addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from stat import S_ISDIR

from ..errors import ToolError
from .grouping import MAX_KEY, WORDS, Keys, fields, grouping
from .paths import printable, shown
from .search import MAX_SECONDS, Hit, Search
from .workspace import Workspace

MAX_GROUPS = 100_000  # that are kept; what is in none of them is told
MAX_SHOWN = 31  # groups in a result
FIRST = 3  # matching lines shown where they are not grouped
BATCH = 20_000  # lines grouped at once
BATCH_CHARS = 4_000_000


def count_lines(
    workspace: Workspace,
    pattern: str,
    path: str,
    by: str | None = None,
    regex: bool = False,
    *,
    max_chars: int,
    takes: Callable[[str], bool] = lambda _: True,
) -> str:
    """How many lines hold a text, with their files and numbers.

    Args:
        workspace, pattern, regex: as for `Search`; a regular expression with a group groups by it.
        path: the cleaned path of a file, or of a folder for all files below it.
        by: how to group the lines, see `grouping`; by default those of a folder by file.
        max_chars: cap on the characters of the groups or lines shown.
        takes: which files below a folder count.

    Raises:
        ToolError: nothing can be read there, or an argument makes no sense.
    """
    search = Search(workspace, pattern, regex, counts=True, packed=True, takes=takes)
    is_folder = S_ISDIR(workspace.stat(path).st_mode)
    if not by and regex and _has_group(pattern):
        by = pattern
    keys = grouping(by) if by else None
    grouped = bool(by) or is_folder
    groups = _Groups(keys, search)
    with closing(search.folder(path) if is_folder else search.file(path)) as hits:
        while batch := list(_batch(hits)):
            groups.add(batch)
    if by and groups.without and not groups.counts:
        raise ToolError(_no_such_field(by, groups))
    told = [groups.head(pattern, path, by if by else "file" if is_folder else "")]
    lines = groups.table() if grouped else map(str, groups.first)
    told += _fitting(lines, max_chars, len(groups.counts) if grouped else groups.total)
    return "\n".join([*told, *groups.notes(), *search.notes])


def _has_group(pattern: str) -> bool:
    try:
        return re.compile(pattern).groups == 1
    except (re.error, RecursionError, OverflowError):  # it is the other engine that matters
        return False


def _no_such_field(by: str, groups: _Groups) -> str:
    lines = [hit.text for hit in groups.first]
    names = ", ".join(fields(lines))
    has = f"; fields of these lines: {names}" if names else ""
    table = "; table groups by a column" if ".csv" in groups.first[0].path else ""
    example = f"; such a line: {shown(lines[0])}"
    return (
        f"none of the {groups.total} lines has by={shown(by)}{has}; by is one of "
        f"{', '.join(WORDS)}, a field's name or number, or a regular expression with one group"
        f"{table}{example}"
    )


class _Groups:
    """Counts of lines by key, and where the first of each is."""

    def __init__(self, keys: Keys | None, search: Search) -> None:
        self.total = self.without = 0
        self.counts: Counter[str] = Counter()
        self.first: list[Hit] = []
        self._keys, self._search = keys, search
        self._at: dict[str, str] = {}
        self._late = self._over = 0

    def add(self, hits: list[Hit]) -> None:
        self.total += len(hits)
        self.first += hits[: FIRST - len(self.first)]
        if self._keys is None:
            found: list[str | None] = [hit.path for hit in hits]
        else:
            # Not nothing: what was searched in that time can be grouped, too.
            seconds = max(1.0, self._search.seconds_left)
            found = self._keys([hit.text for hit in hits], seconds)
        self._late += len(hits) - len(found)
        for hit, key in zip(hits, found, strict=False):
            if key is None:
                self.without += 1
                continue
            key = key[:MAX_KEY]
            if key not in self._at:
                if len(self._at) >= MAX_GROUPS:
                    self._over += 1
                    continue
                self._at[key] = f"{hit.path}:{hit.number}"
            self.counts[key] += 1

    def head(self, pattern: str, path: str, by: str) -> str:
        """How many in all."""
        search = self._search
        least = "" if search.whole else "at least "
        what = "line" if self.total == 1 else "lines"
        what += f" with `{shown(pattern)}`" if pattern else ""
        files = "1 file" if search.files == 1 else f"{search.files} files"
        looked = f"{search.lines} lines looked at"
        head = f"{least}{self.total} {what} in {shown(path)} ({files}, {looked})"
        if by and self.counts:
            head += f", by {shown(by)}, {len(self.counts)} different:"
        return head

    def table(self) -> Iterator[str]:
        """The groups, largest first; of those alike the one that comes first."""
        for key, count in self.counts.most_common():
            yield f"{count}  {printable(key) or '(empty)'}  (first: {self._at[key]})"

    def notes(self) -> Iterator[str]:
        """What is in no group."""
        if self.without:
            yield f"[{self.without} of these lines have none]"
        if self._over:
            yield f"[cut: {self._over} lines of further groups; more than {MAX_GROUPS}]"
        if self._late:
            yield f"[cut: {self._late} lines not grouped: by took more than {MAX_SECONDS:g} s]"


def _batch(hits: Iterator[Hit]) -> Iterator[Hit]:
    chars = 0
    for hit in islice(hits, BATCH):
        chars += len(hit.text)
        yield hit
        if chars > BATCH_CHARS:
            return


def _fitting(lines: Iterator[str], max_chars: int, total: int) -> Iterator[str]:
    """As many as may be shown, and how many more there are."""
    size = number = 0
    for line in islice(lines, MAX_SHOWN):
        size += len(line) + 1
        if number and size > max_chars:
            break
        number += 1
        yield line
    if total > number:
        yield f"[cut: {total - number} more]"
