"""Other work on this process's cores: the CPU time of other processes, and what a host took.

They slow passes also without any wait for a core (`run_delay.py`): through its other thread, or
memory. Linux counts all work by core (`/proc/stat`); less this process's own it is others'.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
MIN_S = 0.25  # of a measurement: less is a few steps of the counters, of 10 ms


class CpuTimes(NamedTuple):
    """Seconds since the start of the system, as the mean of the usable cores."""

    all_s: float
    busy_s: float
    own_s: float
    """Busy with all processes, interrupts and a virtual machine's host; with this process."""


def cpu_times() -> CpuTimes | None:
    """Return the times of the usable cores; None where the system does not count them."""
    try:
        usable = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        lines = (line.split() for line in STAT.read_text().splitlines())
        # user, nice, system, idle, iowait, irq, softirq, steal
        counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in usable]
        step = 1.0 / os.sysconf("SC_CLK_TCK") / len(counts)
        all_s, idle_s = sum(map(sum, counts)) * step, sum(sum(one[3:5]) for one in counts) * step
        return CpuTimes(all_s, all_s - idle_s, time.process_time() / len(counts))
    except (AttributeError, OSError, ValueError, IndexError, ZeroDivisionError):
        return None


class OtherWork:
    """A meter of other work, from now on."""

    def __init__(self, times: Callable[[], CpuTimes | None] = cpu_times) -> None:
        self._times, self._before = times, times()

    def share(self) -> float | None:
        """Return the share of the cores' time that other work took, 0 to 1.

        None where the system does not count it, or in less than `MIN_S` seconds.
        """
        before, now = self._before, self._times()
        if before is None or now is None or now.all_s - before.all_s < MIN_S:
            return None
        whole, busy, own = (b - a for a, b in zip(before, now, strict=True))
        return round(min(1.0, max(0.0, (busy - own) / whole)), 3)
