"""What Linux control groups allow this process: containers set their limits there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def folders(
    controller: str, proc: Path = PROC, cgroups: Path = CGROUPS
) -> Iterator[tuple[Literal[1, 2], Path]]:
    """Version and folder of each group that this process is in, for one kind of limit."""
    try:
        lines = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, kinds, path = line.split(":", 2)
        version: Literal[1, 2]
        if number == "0" and not kinds:
            version, root = 2, cgroups
        elif controller in kinds.split(","):
            version, root = 1, cgroups / controller
        else:
            continue
        parts = Path(path.lstrip("/")).parts
        for depth in range(len(parts), -1, -1):  # each group above sets a limit too
            yield version, root.joinpath(*parts[:depth])


def cpu_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Seconds of CPU time a second that this process may take; None: all that there are.

    Beyond them the kernel stops all of its threads for the rest of a period, of 100 ms mostly.
    """
    found = []
    for version, folder in folders("cpu", proc, cgroups):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        with contextlib.suppress(OSError, ValueError):
            texts = [(folder / name).read_text(encoding="utf-8") for name in names]
            quota, period = map(int, " ".join(texts).split())  # the word max is no number
            if quota > 0 and period > 0:
                found.append(quota / period)
    return min(found, default=None)
