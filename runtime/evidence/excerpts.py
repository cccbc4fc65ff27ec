"""Which lines of a long file are shown, and how: numbered, with how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...errors import ToolError
from ...tools.formats import MAX_LINE, cut_text
from ...tools.paths import printable
from .reading import Text

BEFORE, AFTER, BELOW = 2, 3, 7
"""Lines shown before and after a good one; and below one that is a heading."""
HEADED = 512 << 10  # characters of a file whose headings are looked for
MAX_SPANS = 60
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def spans(numbers: Iterable[int]) -> str:
    """Format line numbers as compact ranges: ``1-3,17``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def numbers_in(text: str, last: int) -> Iterator[int]:
    """Yield the line numbers up to `last` from text that `spans` wrote.

    Raises:
        ToolError: it is not of that form.
    """
    for part in text.split(",")[: MAX_SPANS * 4]:
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise ToolError(f"lines must be numbers such as 1-3,17, not {printable(text[:40])}")
        yield from range(int(match[1]), min(int(match[2] or match[1]), last) + 1)


def numbered(lines: Sequence[str], number: int) -> str:
    """Return a line with its number, as read_file shows it."""
    return f"{number}\t{cut_text(lines[number - 1], MAX_LINE)}"


def excerpt(lines: Sequence[str], wanted: str, more: bool) -> str:
    """Return what read_file shows for some lines of a file.

    Args:
        lines: of the file.
        wanted: which, see `spans`.
        more: whether the file has further lines that were not read.
    """
    numbers = sorted({n for n in numbers_in(wanted, len(lines)) if 1 <= n <= len(lines)})
    shown = [numbered(lines, number) for number in numbers]
    of = f"{'more than ' if more else ''}{len(lines)}"
    return "\n".join([*shown, f"[cut: {len(numbers)} of {of} lines shown]"])


def passage(text: Text, number: int) -> set[int]:
    """Return a line's neighbors and its parent heading; for a heading, the lines below it."""
    lines = text.lines
    parents = text.parents if len(text.whole) <= HEADED else [-1] * len(lines)
    heads = any(parents[at] == number - 1 for at in (number, number + 1) if at < len(lines))
    first, last = (number, number + BELOW) if heads else (number - BEFORE, number + AFTER)
    found = set(range(max(first, 1), min(last, len(lines)) + 1))
    return found | {parents[number - 1] + 1} - {0}


def chosen(
    text: Text, first: Iterable[int], good: Iterable[int], room: float, per_char: float
) -> set[int]:
    """Choose lines for an excerpt within a token budget.

    Args:
        text: of the file.
        first: numbers of lines that are shown in any case.
        good: further ones, the best first; each with its passage, or alone where that is too long.
        room: tokens.
        per_char: tokens of a character.
    """
    taken, last = set[int](), len(text.lines)
    for numbers in [
        *({n} for n in first),
        *(each for n in good if n <= last for each in (passage(text, n), {n})),
    ]:
        new = {n for n in numbers if 1 <= n <= last} - taken
        # Its number and a tab cost something, too.
        price = sum((min(len(text.lines[n - 1]), MAX_LINE) + 1) * per_char + 3 for n in new)
        if price <= room:
            room -= price
            taken |= new
    return taken
