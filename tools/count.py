"""The tool count: counts the lines that contain a text, grouped by file, day or address."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from stat import S_ISDIR

from ..errors import ToolError
from .formats import fitting, plural
from .paths import check_text, printable, shown
from .search import MAX_PATTERN, MAX_SECONDS, Hit, Search
from .timed_regex import captured
from .workspace import Workspace

MAX_GROUPS = 100_000  # that are counted; lines in none of them are reported
MAX_SHOWN = 31  # groups in a result
MAX_KEY = 200  # characters of a group's name
MAX_LINE = 4096  # characters of a line that an expression looks at
FIRST = 3  # matching lines shown where they are not grouped
BATCH, BATCH_CHARS = 20_000, 4_000_000  # lines grouped at once, and their characters

_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# A date as logs write it: ISO, nginx's, syslog's, the German one.
_DATE = (
    rf"(?:\d{{4}}[-/]\d\d[-/]\d\d|\d\d/(?:{_MONTH})/\d{{4}}|(?:{_MONTH}) [ \d]\d"
    r"|\d\d\.\d\d\.\d{4})"
)
_LEVELS = (
    "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|SEVERE|CRIT|CRITICAL|ALERT|FATAL|EMERG|PANIC"
)
_HEX = "[0-9a-fA-F]{1,4}"
# The first group that takes part is what a line counts under. Each takes time that grows with the
# line at most: what precedes a repetition is fixed.
_WORDS = {
    "day": rf"\b({_DATE})",
    "hour": rf"\b({_DATE}[T :,]{{1,2}}\d\d)\b|\b([01]\d|2[0-3]):[0-5]\d\b",
    "level": rf"\b({_LEVELS})\b"
    rf"|(?i:\[({_LEVELS})\]|\b(?:level|severity|lvl)\W{{1,4}}(\w{{1,20}}))",
    "ip": rf"(?<![\w.:])((?:\d{{1,3}}\.){{3}}\d{{1,3}}|(?:{_HEX}:){{7}}{_HEX}"
    rf"|(?:{_HEX}:){{1,6}}:(?:{_HEX}:){{0,5}}{_HEX}|::1)(?!\.?\w)",
    "status": r'(?:" |\bHTTP/\d(?:\.\d)? |\bstatus\W{1,4})([1-5]\d\d)\b',
}
_SAME = {"path": "file", "date": "day", "severity": "level", "address": "ip", "code": "status"}
_BY = f"by is one of file, {', '.join(_WORDS)}, or a regular expression with one group in brackets"

Keys = Callable[[list[str], float], list[str | None]]
"""Maps lines to the keys of their groups, None for no group, within a time limit in seconds."""


def count_lines(
    workspace: Workspace,
    pattern: str,
    path: str,
    by: str = "",
    regex: bool = False,
    *,
    max_chars: int,
    takes: Callable[[str], bool] = lambda _: True,
) -> str:
    """Count the lines that contain a text; return the counts by group, or the first lines.

    Args:
        workspace, pattern, regex: as for `Search`.
        path: the cleaned path of a file, or of a folder for all files below it.
        by: how to group the lines, see `grouping`; by default those of a folder by file.
        max_chars: cap on the characters of the groups or lines shown.
        takes: which files below a folder count.

    Raises:
        ToolError: nothing can be read there, or an argument makes no sense.
    """
    search = Search(workspace, pattern, regex, counts=True, packed=True, takes=takes)
    is_folder = S_ISDIR(workspace.stat(path).st_mode)
    by = by or "file" * is_folder
    groups = _Groups(grouping(by), search)
    with closing(search.folder(path) if is_folder else search.file(path)) as hits:
        while batch := list(_batch(hits)):
            groups.add(batch)
    if by and groups.without and not groups.counts:
        example = shown(groups.first[0].text)
        raise ToolError(
            f"none of the {groups.total} lines has by={shown(by)}; {_BY}; such a line: {example}"
        )
    lines = groups.table() if by else map(str, groups.first)
    listing = list(fitting(lines, MAX_SHOWN, max_chars))
    if more := (len(groups.counts) if by else groups.total) - len(listing):
        listing.append(f"[cut: {more} more]")
    return "\n".join([groups.head(pattern, path, by), *listing, *groups.notes(), *search.notes])


def grouping(by: str) -> Keys | None:
    """Return the key function of a grouping; None groups by file.

    Raises:
        ToolError: `by` is neither a word for it nor a regular expression with one group.
    """
    check_text("by", by, MAX_PATTERN)
    word = by.strip().casefold().removeprefix("by ")
    word = word if word in _WORDS else word.removesuffix("s")
    word = _SAME.get(word, word)
    if word in ("file", ""):
        return None
    if word not in _WORDS:
        try:
            one = re.compile(by).groups == 1
        except (re.error, RecursionError, OverflowError) as error:
            raise ToolError(f"by is a bad regular expression: {shown(str(error))}") from None
        if not one:
            raise ToolError(f"by={shown(by)} cannot be counted by; {_BY}")
        return lambda lines, seconds: captured(by, [line[:MAX_LINE] for line in lines], seconds)
    find = re.compile(_WORDS[word]).search

    def key(line: str) -> str | None:
        if (found := find(line[:MAX_LINE])) is None:
            return None
        text = next(one for one in found.groups() if one is not None)
        return text.upper() if word == "level" else text

    return lambda lines, _: [key(line) for line in lines]


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
        """Return the line with the totals."""
        search = self._search
        what = ("" if search.whole else "at least ") + plural(self.total, "line")
        what += f" with `{shown(pattern)}`" if pattern else ""
        files = plural(search.files, "file")
        head = f"{what} in {shown(path)} ({files}, {search.lines} lines looked at)"
        grouped = f", by {shown(by)}, {len(self.counts)} different:" if by and self.counts else ""
        return head + grouped

    def table(self) -> Iterator[str]:
        """Return the groups, largest first; of those alike the one that comes first."""
        for key, count in self.counts.most_common():
            yield f"{count}  {printable(key) or '(empty)'}  (first: {self._at[key]})"

    def notes(self) -> Iterator[str]:
        """Yield notes on lines outside the shown groups."""
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
