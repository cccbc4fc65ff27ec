"""Prices over use, and what moves them, as one SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .charts import Bar, Bars, Lines, Series, document, number
from .cost import DAYS, Sensitivity, Speeds, Usage, api_day, break_even, day_of, machine_choice
from .prices import Hardware, PriceBook

_POINTS = 120


def picture(
    hardware: Hardware,
    speeds: Speeds,
    usage: Usage,
    book: PriceBook,
    gpus: Sequence[tuple[str, Callable[[float], float]]],
    moves: Sequence[Sensitivity],
) -> str:
    """Dollars a month over questions a day; and a question's price with half and twice of an input.

    gpus: name, and dollars a day by questions a day.
    """
    mine = day_of(hardware, speeds, usage, book.kwh)
    apis = [(api.name, api_day(api, usage)) for api in book.apis.values()]
    days = [(hardware.name, mine), *gpus, *apis]
    low, high = min(1.0, usage.turns / 100), max(1e5, usage.turns * 100)
    turns = [low * (high / low) ** (n / _POINTS) for n in range(_POINTS + 1)]
    marks = []
    for name, day in apis:
        even = break_even(mine, day, high)
        if even is not None and even > 1.01:
            marks.append((even, DAYS * mine(even), f"{number(even)} per day: {name}"))
    told = (
        f"{number(usage.computed)} + {number(usage.cached)} cached in, {number(usage.output)} out"
    )
    now = machine_choice(hardware, speeds, usage, book.kwh).question
    lines = Lines(
        "Cost per month",
        "questions per day",
        "dollars per month",
        [
            Series(name, [(t, DAYS * day(t)) for t in turns], dashed=n > len(gpus))
            for n, (name, day) in enumerate(days)
        ],
        log_x=True,
        log_y=True,
        notes=[f"per question: {told}; prices as of {book.checked}"],
        marks=marks,
    )
    bars = Bars(
        f"What changes the cost per question on {hardware.name}",
        "cents per question",
        [
            Bar(
                one.name,
                100 * one.low,
                100 * one.high,
                (number(100 * one.low), number(100 * one.high)),
                n,
            )
            for n, one in enumerate(moves)
        ],
        base=100 * now,
        log=True,
        notes=[
            f"each at half and twice its value, the rest unchanged: {number(100 * now)} cents now"
        ],
    )
    return document([lines, bars], 640, 460)
