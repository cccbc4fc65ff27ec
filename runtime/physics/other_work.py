"""Other work on this process's cores: the CPU time of other processes, and what a host took.

A core that others use half of the time, the other thread of a core, or memory that others read
makes passes slow without any wait for a core (`run_delay.py`). So a busy machine is told from a
slow one by what Linux counts for each core (`/proc/stat`, in steps of 10 ms) less this process's
own time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
MIN_S = 0.25  # of a measurement: less is a few steps of the counters


class CpuTimes(NamedTuple):
    """Seconds since the start of the system, added up over the usable cores."""

    all_s: float
    busy_s: float
    """Of all processes together, and of interrupts."""
    stolen_s: float
    """In which the host of this virtual machine let something else run."""
    cores: int


class OtherShares(NamedTuple):
    """Shares of the time of the usable cores, 0 to 1."""

    others: float
    stolen: float


def cpu_times() -> CpuTimes | None:
    """Return the times of the usable cores; None where the system does not count them."""
    try:
        lines = [line.split() for line in STAT.read_text().splitlines() if line.startswith("cpu")]
        usable = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in usable]
        step = 1.0 / os.sysconf("SC_CLK_TCK")
        # user, nice, system, idle, iowait, irq, softirq, steal
        sums = [sum(column) * step for column in zip(*counts, strict=True)]
        idle, stolen = sums[3] + sums[4], sums[7]
    except (AttributeError, OSError, ValueError, IndexError):
        return None
    return CpuTimes(sum(sums), sum(sums) - idle - stolen, stolen, len(counts))


class OtherWork:
    """A meter of other work, from now on.

    Args:
        times: returns the times of the cores; own: the seconds of this process, of all threads.
    """

    def __init__(
        self,
        times: Callable[[], CpuTimes | None] = cpu_times,
        own: Callable[[], float] = time.process_time,
    ) -> None:
        self._times, self._own = times, own
        self._before, self._own_before = times(), own()

    def shares(self) -> OtherShares | None:
        """Return the shares since this object was made.

        None where the system does not count them, or in less than `MIN_S` seconds.
        """
        before, now = self._before, self._times()
        if before is None or now is None or now.all_s - before.all_s < MIN_S * now.cores:
            return None
        whole, own = now.all_s - before.all_s, self._own() - self._own_before
        others, stolen = now.busy_s - before.busy_s - own, now.stolen_s - before.stolen_s
        return OtherShares(*(min(1.0, max(0.0, s / whole)) for s in (others, stolen)))
