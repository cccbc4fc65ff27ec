"""Contention: keeps passes running while another process occupies a core.

All threads of a usual pass meet a few hundred times in it, so one that has to wait for its core
holds up all the others: with one core of two taken, a pass went at a quarter to a half of its
speed.

The kernel of Linux counts for each thread the time that it was ready and had no core (`schedstat`).
When a thread lost more than `STARVED` of two looks in a row, the passes that follow are elastic:
they continue without threads that have no core (`jit/elastic_executor.py`). Where there are many
threads, which would hinder each other there, the starved one is left out instead.
Later all is as before; where that fails, the next attempt waits twice as long. So the cost of
looking is bounded, and nothing can swing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...physics.run_delay import delay_of

LOOK_S = 0.05  # at most so often, between two passes
STALE_S = 1.0  # after a longer silence than this, what was counted says nothing about now
STARVED = 0.2  # share of the time without a core that counts as starved
PATIENCE_S, PATIENCE_MOST_S = 1.0, 30.0  # until all threads are tried again: first, at most
ELASTIC_MOST = 4  # threads: of more, one that is left out is missed less than elastic passes cost


class ThreadSet(Protocol):
    """The threads that run passes: see `jit.pool.Pool`."""

    @property
    def threads(self) -> int: ...
    @property
    def active(self) -> int: ...
    @active.setter
    def active(self, count: int) -> None: ...
    @property
    def worker_ids(self) -> Sequence[int]: ...
    @property
    def elastic(self) -> bool: ...
    @elastic.setter
    def elastic(self, on: bool) -> None: ...
    def put_last(self, worker: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the threads that run passes."""

    at: float
    """Time of the change, by `time.perf_counter`."""
    threads: int
    """Threads that run passes from then on."""
    starved: float
    """Share of the time without a core that caused it; 0: all threads are tried again."""
    elastic: bool = False
    """Whether passes run on without threads that have no core."""

    @property
    def text(self) -> str:
        """The change as a line, for traces and users."""
        why = f"{self.starved:.0%} of the time without a core" if self.starved else "again"
        return f"threads: {self.threads}, {'elastic passes, ' * self.elastic}{why}"


class ContentionMonitor:
    """A monitor of one pool's threads, which sets how many of them run.

    Attributes:
        changes: the last of them, newest at the end.
        on: whether it may change anything.
        next_look: when `look` is worth a call again, on its clock.
    """

    def __init__(
        self,
        pool: ThreadSet,
        *,
        delay: Callable[[int], int | None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.pool = pool
        self.changes: list[Change] = []
        self._delay, self._clock = delay or delay_of, clock
        self.on = pool.threads > 1 and self._delay(threading.get_native_id()) is not None
        self.next_look = 0.0
        self._looked = 0.0
        self._delays: dict[int, int] = {}
        self._suspects: set[int] = set()
        self._patience = PATIENCE_S
        self._again = 0.0  # when all threads are to be tried again

    def look(self) -> None:
        """Check for contention; call it between two passes: nearly always it returns at once."""
        now = self._clock()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_S
        if self.on:
            self._look(now)

    def _look(self, now: float) -> None:
        caller = threading.get_native_id()
        active_threads = [caller, *self.pool.worker_ids[: self.pool.active - 1]]
        delays = {tid: self._delay(tid) or 0 for tid in active_threads}
        passed, self._looked = now - self._looked, now
        before, self._delays = self._delays, delays
        if passed > STALE_S:
            self._suspects = set()
            self._again = max(self._again, now + 3 * LOOK_S)  # nothing says that the cores are free
        else:
            shares = {t: (d - before[t]) / 1e9 / passed for t, d in delays.items() if t in before}
            starved = {tid for tid, share in shares.items() if share > STARVED}
            held, self._suspects = starved & self._suspects, starved
            if held and self.pool.elastic:
                self._again = now + self._patience
            elif held and self.pool.active > 1:
                self._react(now, held - {caller}, max(shares[tid] for tid in held))
                return
        usual = self.pool.active == self.pool.threads and not self.pool.elastic
        if not usual and now >= self._again:
            self._change(now, self.pool.threads, 0.0)
        elif usual and now > self._again + 2 * self._patience:
            self._patience = PATIENCE_S

    def _react(self, now: float, workers: set[int], share: float) -> None:
        """Switch to elastic passes, or to one thread fewer.

        That is a starved worker's core, or, if the caller starves, any worker's.
        """
        failed = self.changes and now - self._again < 10 * LOOK_S
        self._patience = min(2 * self._patience, PATIENCE_MOST_S) if failed else self._patience
        self._again = now + self._patience
        if self.pool.threads <= ELASTIC_MOST:
            self._change(now, self.pool.active, share, elastic=True)
            return
        starved = [n for n, tid in enumerate(self.pool.worker_ids) if tid in workers]
        if starved:
            self.pool.put_last(starved[0])
        self._change(now, self.pool.active - 1, share)

    def _change(self, now: float, threads: int, share: float, elastic: bool = False) -> None:
        self.pool.active, self.pool.elastic = threads, elastic
        self._suspects, self._delays = set(), {}
        self.changes = [*self.changes[-99:], Change(now, threads, round(share, 3), elastic)]
