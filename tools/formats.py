"""The exact text that the file tools return, as pure functions.

The embedded model is trained on these bytes, so they live apart from the file system: the tools
feed them what they read, the corpus generator feeds them what it invents, and both get the same
text. Text is `str`, counts are characters, lines are numbered from 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

MAX_ENTRIES = 200  # names shown by list_dir
MAX_LINES = 200  # lines shown by one read_file
MAX_CHARS = 16_384  # characters of one result, about 4,000 to 5,000 tokens
MAX_LINE = 500  # characters shown of one line by read_file
MAX_HITS = 50  # matching lines shown by search
MAX_HIT = 300  # characters shown of one matching line
ALIKE = 3  # lines shown of those that differ only in numbers, where not all can be
MAX_LOOKED = 20_000  # matching lines looked at for others than these

EMPTY_FILE = "(empty file)"
EMPTY_FOLDER = "(empty folder)"
NO_MATCHES = "No matches found."
MAX_PLACES = 3  # paths shown of what an error says is elsewhere


# ------------------------------------------------------------------------------------ results


def split_lines(text: str) -> list[str]:
    """Split a text into lines without their ends; only ``\\n`` and ``\\r\\n`` end a line.

    A last line end does not begin another line: ``"a\\n"`` is one line, ``""`` is none.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 line``, ``2 lines``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def cut_text(text: str, limit: int, length: int | None = None, start: int = 0) -> str:
    """Truncate `text` to `limit` characters, with a note on what is left out.

    Args:
        text: the line, or at least `limit` characters of it from `start` on, if it has as many.
        limit: how many characters are shown.
        length: the full length of the line, where `text` is only a part of it.
        start: characters of the line before `text`.
    """
    text, length = text[:limit], start + len(text) if length is None else length
    before = f"[cut: {start} characters before] " if start else ""
    left = length - start - len(text)
    return before + text + (f" [cut: {left} more characters]" if left > 0 else "")


def fitting(lines: Iterable[str], max_lines: int, max_chars: int) -> Iterator[str]:
    """Yield lines until `max_lines` or `max_chars` is reached; always yield the first line."""
    size = 0
    for number, line in enumerate(islice(lines, max_lines)):
        size += len(line) + 1  # with the line end that joins it
        if number and size > max_chars:
            return
        yield line


class NumberedLines:
    """Builder of the result of read_file: takes lines one by one, in bounded memory."""

    def __init__(
        self,
        start: int = 1,
        *,
        max_lines: int = MAX_LINES,
        max_chars: int = MAX_CHARS,
        plain: bool = False,
    ) -> None:
        self.start = start
        self._plain = plain  # whether the result always says which part it is
        self.shown: list[str] = []
        self.full = False  # a further line did not fit
        self._lines_left = max_lines
        self._chars_left = max_chars

    @property
    def next(self) -> int:
        """Return the number of the first line that is not shown."""
        return self.start + len(self.shown)

    def add(self, text: str, length: int | None = None) -> bool:
        """Add one more line; return False when it does not fit (then none is accepted).

        The first line is always taken, so that reading on always progresses.
        """
        line = f"{self.next}\t{cut_text(text, MAX_LINE, length)}"
        size = len(line) + 1  # with the line end that joins it
        if self.full or self._lines_left < 1 or (self.shown and size > self._chars_left):
            self.full = True
            return False
        self.shown.append(line)
        self._lines_left -= 1
        self._chars_left -= size
        return True

    def text(self, last: int | None = None, total: int | None = None) -> str:
        """Return the numbered lines as text, with a note on what is not shown.

        Args:
            last: the last requested line that exists, None when it is not known.
            total: how many lines the file has, None when it is not known.
        """
        if self._plain:
            return "\n".join([*self.shown, self._part(last, total)])
        if not self.full:
            return "\n".join(self.shown)
        span = f"lines {self.next} and on" if last is None else f"lines {self.next} to {last}"
        of = "" if total is None else f" of {total}"
        note = f"[cut: {span}{of} not shown; read on with start={self.next}]"
        return "\n".join([*self.shown, note])

    def _part(self, last: int | None, total: int | None) -> str:
        """Return the note on which part of the file is shown."""
        if self.start == 1 and not self.full and total is not None and last == total:
            return f"[the whole file: {plural(total, 'line')}]"
        span = (
            f"lines {self.start}–{self.next - 1}" if len(self.shown) > 1 else f"line {self.start}"
        )
        of = "more than can be counted" if total is None else f"{total:,}"
        pages = -(-total // max(1, len(self.shown))) if total and self.start == 1 else 0
        read = f"; page 1 of {pages} read" if self.full and pages > 1 else ""
        return f"[{span} of {of}{read}{f'; read on with start={self.next}' if self.full else ''}]"


def read_result(
    lines: Sequence[str],
    start: int = 1,
    end: int | None = None,
    *,
    max_lines: int = MAX_LINES,
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the result of read_file for a file's lines; `start` must be one of them."""
    if not lines:
        return EMPTY_FILE
    last = len(lines) if end is None else min(end, len(lines))
    result = NumberedLines(start, max_lines=max_lines, max_chars=max_chars)
    for line in lines[start - 1 : last]:
        if not result.add(line):
            break
    return result.text(last, len(lines))


def name_order(name: str) -> bytes:
    """Return the sort key of a name: its bytes, for the same order in every locale."""
    return name.removesuffix("/").encode("utf-8", "surrogateescape")


def list_result(
    names: Iterable[str],
    total: int | None = None,
    *,
    folder: str = ".",
    max_chars: int = MAX_CHARS,
) -> str:
    """Return the result of list_dir; names of folders end in ``/`` already.

    Args:
        names: the names of a folder in any order, or the first of them: one more than is shown,
            where there are so many, for the note on how to list the others.
        total: how many there are, where `names` are only the first.
        folder: where they are.
        max_chars: cap on the characters of the names shown.
    """
    ordered = sorted(names, key=name_order)
    total = len(ordered) if total is None else total
    if not ordered:
        return EMPTY_FOLDER
    shown = list(fitting(ordered, MAX_ENTRIES, max_chars))
    if (left := total - len(shown)) > 0:
        more = _others(ordered[len(shown)], folder) if len(shown) < len(ordered) else ""
        shown.append(f"[cut: {left} of {total} entries not shown{more}]")
    return "\n".join(shown)


def _others(name: str, folder: str) -> str:
    """Return the note on the names from this one on."""
    start = "*" if name[0] in "*?[\\" else f"{name[0]}*"  # those signs mean something else there
    prefix = "" if folder == "." else f"{folder}/"
    return f", from {name} on; list some with a pattern such as path={prefix}{start}"


def search_hit(path: str, number: int, text: str, length: int | None = None, start: int = 0) -> str:
    """Return one line of a search result; `text` is the matching line (see `cut_text`)."""
    return f"{path}:{number}:{cut_text(text, MAX_HIT, length, start)}"


def search_result(
    hits: Iterable[str], notes: Iterable[str] = (), *, max_chars: int = MAX_CHARS
) -> str:
    """Return the result of search: `hits` from `search_hit` in order of path and line.

    If they are too many, only the first `ALIKE` of a file's lines that differ in nothing but
    numbers are shown: one error among a thousand heartbeats is what the search was for.

    Takes no more hits than it needs and `MAX_LOOKED` at most, so `hits` may be a generator that
    still searches; `notes` (what was not searched, and why) are read after the last hit.
    """
    hits = islice(hits, MAX_LOOKED)
    first: list[str] = []
    size = 0
    for hit in hits:
        first.append(hit)
        size += len(hit) + 1
        if len(first) > MAX_HITS or (size > max_chars and len(first) > 1):
            break
    else:
        return "\n".join([*(first or [NO_MATCHES]), *notes])
    shown: list[str] = []
    kinds: Counter[str] = Counter()
    size = 0
    for hit in chain(first, hits):
        kind = _kind(hit)
        kinds[kind] += 1
        if kinds[kind] > ALIKE:
            continue
        size += len(hit) + 1
        if len(shown) == MAX_HITS or (shown and size > max_chars):
            notes = ()
            break
        shown.append(hit)
    alike = f", of lines alike the first {ALIKE}" if kinds.most_common(1)[0][1] > ALIKE else ""
    cut = f"[cut: more than {len(shown)} matches{alike}; narrow the pattern or the path]"
    return "\n".join([*shown, cut, *notes])


def binary_skipped(files: str) -> str:
    """Return search's note, after `NO_MATCHES`, on binary files."""
    return f"[cut: {files} not searched: binary]"


def _kind(hit: str) -> str:
    """Return a hit without its numbers, except those of its path."""
    path, _, rest = hit.partition(":")
    return f"{path}:{re.sub(r'[0-9]+', '0', rest)}"


# --------------------------------------------------------------------------- what is elsewhere


def elsewhere(paths: Sequence[str]) -> str:
    """Return the suffix of an error about a missing path: where its last name exists.

    Args:
        paths: the paths with that name in order, at least one more than is shown where there are
            that many.
    """
    if len(paths) < 2:
        return "".join(f" (there is {path})" for path in paths)
    more = " and more" if len(paths) > MAX_PLACES else ""
    return f" (there are {', '.join(paths[:MAX_PLACES])}{more})"


def named(path: str, below: Iterable[str], *, files: bool, folders: bool) -> Iterator[str]:
    """Yield the paths in `below` whose last name matches that of `path`.

    An exact match comes first; else the case is ignored; else, where the name has no extension,
    its words count (`prod` for `app-prod.yaml`).

    Args:
        path: the requested one.
        below: the paths of all files, in order.
        files: whether a file of that name counts.
        folders: whether a folder of that name, with a file somewhere below it, does.
    """
    name = path.rpartition("/")[2]
    words = set() if "." in name else _words(name)
    known: set[str] = set()
    other_case: dict[str, None] = {}
    alike: list[str] = []
    for one in below:
        parts = one.split("/")
        for at, part in enumerate(parts, 1):
            if part.casefold() != name.casefold() or not (folders if at < len(parts) else files):
                continue
            folder = "/".join(parts[:at])
            if part != name:
                other_case[folder] = None
            elif folder not in known:
                known.add(folder)
                yield folder
        if words and files and not known and words <= _words(parts[-1]):
            alike.append(one)
    if not known:
        yield from other_case or alike


def _words(name: str) -> set[str]:
    """Return the words of a name, of letters and digits, without a plural `s`."""
    return {
        word.removesuffix("s") if len(word) > 3 else word
        for word in re.split(r"[\W_]+", name.casefold())
        if word
    }


# ------------------------------------------------------------------------------------- errors
# The model sees each of these after "error: ". All but the last few are called with the path.

no_such_file = "no such file: {}".format
no_such_folder = "no such folder: {}".format
no_such_path = "no such file or folder: {}".format
not_a_file = "not a file: {} is a folder".format
not_a_folder = "not a folder: {} is a file".format
not_regular = "not a regular file: {}".format
outside_workspace = "outside the workspace: {}".format


def link_to_nothing(link: str) -> str:
    """Return the suffix of an error about a path through a dangling symlink.

    Not with "is", behind which the embedded model looks for another path.
    """
    return f" (the link {link} leads to nothing)"


def binary_file(path: str, size: int) -> str:
    return f"binary file: {path} ({size:,} bytes)"


def past_the_end(path: str, lines: int, start: int) -> str:
    return f"{path} has {plural(lines, 'line')}; start={start} is past its end"


def file_too_large(path: str, size: int, line: int, budget: int) -> str:
    start = f"its first {budget // 2**20} MiB"
    return f"file too large: {path} ({size:,} bytes); line {line} does not end within {start}"
