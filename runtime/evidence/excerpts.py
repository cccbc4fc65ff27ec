"""Which lines of a long file are shown, and how: numbered, with how many there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ...errors import ToolError
from ...tools.formats import MAX_LINE, cut_text
from ...tools.paths import printable

FIRST = 8  # good lines that are shown before more is shown of what stands around the best
BESIDE = 1  # lines shown before and after a good one
MAX_SPANS = 60
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def spans(numbers: Iterable[int]) -> str:
    """Numbers of lines as a person writes them: ``1-3,17``."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def numbers_in(text: str, most: int) -> Iterator[int]:
    """The numbers up to `most` that `spans` wrote.

    Raises:
        ToolError: it is not of that form.
    """
    for part in text.split(",")[: MAX_SPANS * 4]:
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise ToolError(f"lines must be numbers such as 1-3,17, not {printable(text[:40])}")
        yield from range(int(match[1]), min(int(match[2] or match[1]), most) + 1)


def numbered(lines: Sequence[str], number: int) -> str:
    """A line as read_file shows it."""
    return f"{number}\t{cut_text(lines[number - 1], MAX_LINE)}"


def excerpt(lines: Sequence[str], wanted: str, more: bool) -> str:
    """What read_file returns for some lines of a file.

    Args:
        lines: of the file.
        wanted: which, see `spans`.
        more: whether the file has further lines that were not read.
    """
    numbers = sorted({n for n in numbers_in(wanted, len(lines)) if 1 <= n <= len(lines)})
    shown = [numbered(lines, number) for number in numbers]
    of = f"{'more than ' if more else ''}{len(lines)}"
    return "\n".join([*shown, f"[cut: {len(numbers)} of {of} lines shown]"])


def chosen(
    lines: Sequence[str], first: Iterable[int], good: Iterable[int], room: float, per_char: float
) -> set[int]:
    """Lines for an excerpt, as many as there is room for.

    Args:
        lines: of the file.
        first: numbers of lines that are shown in any case.
        good: further ones, the best first; each with those beside it.
        room: tokens.
        per_char: tokens of a character.
    """
    taken: set[int] = set()

    def cost(number: int) -> float:
        return (min(len(lines[number - 1]), MAX_LINE) + 1) * per_char + 3  # its number, and a tab

    def take(numbers: Collection[int]) -> bool:
        nonlocal room
        new = [n for n in numbers if 1 <= n <= len(lines) and n not in taken]
        price = sum(map(cost, new))
        if price > room:
            return False
        room -= price
        taken.update(new)
        return True

    def beside(number: int) -> None:
        """Take a line with those beside it, or where there is no room for them, alone."""
        if not take(range(number - BESIDE, number + BESIDE + 1)):
            take([number])

    for number in first:
        take([number])
    good = list(good)
    # First the best lines with those beside them, then what stands below these: the text under
    # a heading, the body under a name. Then further lines.
    for number in good[:FIRST]:
        beside(number)
    for below in (3, 6, 12):
        for number in good[: FIRST // 2]:
            take(range(number - below // 2, number + below + 1))
    for number in good[FIRST:]:
        beside(number)
    if good:
        take(range(good[0], good[0] + 24))
    take(range(1, 12))
    return taken
