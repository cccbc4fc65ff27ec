"""The run delay that Linux counts: how long threads were runnable without a core."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable


def delay_of(tid: int) -> int | None:
    """Return the nanoseconds that a thread of this process was runnable without a core, or None."""
    try:
        file = os.open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY)  # half the price of `open`
        try:
            return int(os.read(file, 100).split()[1])
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return None


class RunDelay:
    """A meter of the run delay of the calling thread and of `workers`, from now on."""

    def __init__(self, workers: Iterable[int]) -> None:
        threads = (threading.get_native_id(), *workers)
        self._before = {tid: ns for tid in threads if (ns := delay_of(tid)) is not None}
        self._began = time.perf_counter()

    def share(self, seconds: float | None = None) -> float | None:
        """Return the largest share of the time that one of the threads had no core, 0 to 1.

        Args:
            seconds: the time; default: all of it since this object was made.

        Returns:
            None where the system does not count it.
        """
        seconds = time.perf_counter() - self._began if seconds is None else seconds
        now = {tid: delay_of(tid) for tid in self._before}
        waited = [ns - self._before[tid] for tid, ns in now.items() if ns is not None]
        if not waited or seconds <= 0:
            return None
        return min(1.0, max(0, *waited) / 1e9 / seconds)
