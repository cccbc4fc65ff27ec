"""Selects and formats excerpts of long files: numbered lines, with the number of all lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...errors import ToolError
from ...tools.formats import MAX_LINE, cut_text
from ...tools.paths import printable
from .reading import Text

BEFORE, AFTER, BELOW = 2, 3, 7
"""Number of lines shown before and after a matching line, and below a matching heading."""
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
    """Parse ranges as formatted by `spans`; yield the line numbers up to `last`.

    Raises:
        ToolError: `text` has another form.
    """
    for part in text.split(",")[: MAX_SPANS * 4]:
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise ToolError(f"lines must be numbers such as 1-3,17, not {printable(text[:40])}")
        yield from range(int(match[1]), min(int(match[2] or match[1]), last) + 1)


def numbered(lines: Sequence[str], number: int) -> str:
    """Format a line with its number, as read_file shows it."""
    return f"{number}\t{cut_text(lines[number - 1], MAX_LINE)}"


def excerpt(lines: Sequence[str], wanted: str, more: bool) -> str:
    """Format some lines of a file as read_file shows them.

    Args:
        lines: all lines of the file.
        wanted: line numbers to show, in the form of `spans`.
        more: whether the file has further lines that were not read.
    """
    numbers = sorted({n for n in numbers_in(wanted, len(lines)) if 1 <= n <= len(lines)})
    shown = [numbered(lines, number) for number in numbers]
    of = f"{'more than ' if more else ''}{len(lines)}"
    return "\n".join([*shown, f"[cut: {len(numbers)} of {of} lines shown]"])


def passage(text: Text, number: int) -> set[int]:
    """Return the line numbers around a line and of its heading; for a heading, those below it."""
    lines = text.lines
    parents = text.parents if len(text.whole) <= HEADED else [-1] * len(lines)
    heads = any(parents[at] == number - 1 for at in (number, number + 1) if at < len(lines))
    first, last = (number, number + BELOW) if heads else (number - BEFORE, number + AFTER)
    found = set(range(max(first, 1), min(last, len(lines)) + 1))
    return found | {parents[number - 1] + 1} - {0}


def chosen(
    text: Text, first: Iterable[int], good: Iterable[int], room: float, per_char: float
) -> set[int]:
    """Choose line numbers for an excerpt within a token budget.

    Args:
        text: of the file.
        first: line numbers to take first, without neighbors.
        good: further ones, the best first; each with its passage, or alone where that is too long.
        room: token budget.
        per_char: average tokens per character.
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
