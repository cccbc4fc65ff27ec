"""The system's resource limits on this process: cgroups, which containers use, and `ulimit -v`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from ..errors import ModelError

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def folders(
    controller: str, proc: Path = PROC, cgroups: Path = CGROUPS
) -> Iterator[tuple[Literal[1, 2], Path]]:
    """Yield version and folder of each cgroup that limits this process through `controller`."""
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


def address_space_left(proc: Path = PROC) -> int | None:
    """Return the bytes that this process may still map under `ulimit -v`; None without a limit."""
    if os.name != "posix":  # it has no such limit
        return None
    import resource

    left = resource.getrlimit(resource.RLIMIT_AS)[0]
    if left == resource.RLIM_INFINITY:
        return None
    with contextlib.suppress(OSError):  # macOS has no such file
        left -= int((proc / "self/statm").read_text().split()[0]) * resource.getpagesize()
    return max(0, left)


def require_address_space(nbytes: int, what: str) -> None:
    """Raise ModelError if fewer than `nbytes` bytes of address space are left under `ulimit -v`."""
    if (left := address_space_left()) is not None and left < nbytes:
        raise ModelError(
            f"{what} needs about {nbytes / 1e6:,.0f} MB of address space, and the limit of this "
            f"process (ulimit -v) leaves {left / 1e6:,.0f} MB; raise the limit"
        )


def cpu_quota(proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """Return the CPU seconds per second that this process may use; None if not limited.

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
