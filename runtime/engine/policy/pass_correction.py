"""Corrections of predicted pass times by measured ones: how far off the cost model is.

It errs by the number of rows: kernels have steps, memory is as fast as its other users let it be.
So passes of about as many rows count most, and those of late count more than older ones. It is a
median, since a pass that another process held up says nothing about the next.
"""

from __future__ import annotations

import math
from functools import cache

SEEN = 9  # passes of a kind that are remembered
REACH = 1  # kinds up to which others count
FAR = 0.8  # weight of a pass of the next kind
OLD = 0.9  # weight of a pass after one more pass
MOST = 4.0  # times as long, or as short: what is believed at most


@cache
def kind_of(rows: int) -> int:
    """Return the class of passes with about as many rows: two classes for each doubling."""
    return round(2.0 * math.log2(rows))


_OLD = [OLD**age for age in range(100)]


class PassCorrection:
    """Running medians of measured over predicted pass times, by number of rows."""

    def __init__(self) -> None:
        # By kind: number of the pass, ratio. Never changed in place: other threads look at them.
        self._seen: dict[int, tuple[tuple[int, float], ...]] = {}
        self._passes = 0

    @property
    def kinds(self) -> set[int]:
        """The classes (`kind_of`) of recorded passes."""
        return set(self._seen)

    def add(self, rows: int, ratio: float) -> None:
        """Record that a pass took `ratio` times as long as was predicted."""
        kind = kind_of(rows)
        self._passes += 1
        one = self._passes, min(MOST, max(1.0 / MOST, ratio))
        self._seen[kind] = (*self._seen.get(kind, ())[1 - SEEN :], one)

    def factor(self, rows: int) -> float:
        """Return the factor that corrects the prediction of a pass of `rows` rows."""
        seen, now = self._seen, self._passes
        if not seen:
            return 1.0
        kind = kind_of(rows)
        weighted: list[tuple[float, float]] = []
        for other in range(kind - REACH, kind + REACH + 1):
            if other in seen:
                near = FAR ** abs(other - kind)
                for number, ratio in seen[other]:
                    age = max(0, now - number)  # one more may have come meanwhile
                    weighted.append((ratio, near * _OLD[age if age < 100 else -1]))
        if not weighted:  # none of about as many rows
            nearest = min(tuple(seen), key=lambda other: abs(other - kind))
            weighted = [(ratio, 1.0) for _, ratio in seen[nearest]]
        weighted.sort()
        left = 0.5 * sum([weight for _, weight in weighted])
        for ratio, weight in weighted:
            left -= weight
            if left <= 0.0:
                return ratio
        return weighted[-1][0]
