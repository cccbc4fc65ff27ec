"""An online A/B test of whether decode is faster with another number of threads.

A profile may not know: one core may draw all that the memory gives, or a hundred barriers may cost
more than a second thread brings. So after a while a few passes are run with the next number of
threads. It is kept only if it wins every round by a margin; then the next one in that direction is
tried, else that direction is given up for good. So the number only ever moves one way, and at most
once for each number that there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WAIT = 128  # passes before the first trial; twice as many before each further one
BLOCK = 4  # passes in a row with one number; the first only fills the caches
ROUNDS = 3  # of two blocks; all have to be won
MARGIN = 0.97  # of the time that it took before: to win a round


class OnlineABTest:
    """An A/B test that chooses the number of threads of one kind of pass.

    Attributes:
        threads: the number that is known as the best.
        todo: numbers that are left to be tried, by direction.
        timed: whether the seconds of the pass after the last `next` are to be given to `took`.
        changes: each change, as a line.
    """

    def __init__(self, threads: int, directions: Sequence[Sequence[int]]) -> None:
        """directions: numbers to be tried, nearest first, for each direction."""
        self.threads = threads
        self.timed = False
        self.changes: list[str] = []
        self.todo = [list(numbers) for numbers in directions if numbers]
        self._wait = self._waiting = WAIT
        self._times: tuple[list[float], list[float]] = ([], [])
        self._count = self._won = 0

    def next(self) -> int:
        """Return the number of threads for the next pass."""
        self.timed = False
        if not self.todo:
            return self.threads
        if self._waiting:
            self._waiting -= 1
            return self.threads
        self.timed = True
        return self.todo[0][0] if self._count // BLOCK % 2 else self.threads

    def took(self, seconds: float) -> None:
        """Record the seconds of the pass that ran on the threads that `next` returned."""
        block, place = divmod(self._count, BLOCK)
        self._count += 1
        if place:
            self._times[block % 2].append(seconds)
        if self._count == 2 * BLOCK:
            self._judge()

    def interrupted(self) -> None:
        """Restart the trial later: another process had a core, so its passes say nothing."""
        if self._count or self._won:
            self._again(self._wait)

    def _judge(self) -> None:
        now, other = (float(np.median(times)) for times in self._times)
        self._clear()
        if other > MARGIN * now:
            del self.todo[0]
            self._again(2 * self._wait)
            return
        self._won += 1
        if self._won < ROUNDS:
            return
        number = self.todo[0].pop(0)
        self.changes.append(
            f"decode on {number} threads, not {self.threads}: {now / other - 1:.0%} faster"
        )
        self.threads = number
        self.todo = [self.todo[0]] if self.todo[0] else []
        self._again(2 * self._wait)

    def _again(self, wait: int) -> None:
        self._wait = self._waiting = wait
        self._won = 0
        self._clear()

    def _clear(self) -> None:
        self._times = ([], [])
        self._count = 0
