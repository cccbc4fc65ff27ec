"""The kinds of cores and pages of this machine, as the system reports them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from .machine import physical_cores, usable_cores

_CPUS = Path("/sys/devices/system/cpu")
_PAGES = Path("/sys/kernel/mm")


@dataclass(frozen=True, slots=True)
class Topology:
    """The cores of this machine, and its page sizes."""

    usable: int
    physical: int
    """Cores that this process may run on: with and without SMT siblings."""
    slow: int
    """Number of cores below nine tenths of the fastest one's capacity or top frequency."""
    mhz: tuple[float, float]
    """Reported clock rates of the usable cores, lowest and highest; 0: unknown."""
    page_bytes: int
    huge_page_bytes: tuple[int, ...]
    """Sizes of pages, the usual one first."""
    transparent: str
    """Mode of transparent huge pages, e.g. ``madvise``; empty: unknown."""


def topology() -> Topology:
    """Read the topology; clock rates may change within a second."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    rates = _clock_rates(cores)
    return Topology(
        usable=usable_cores(),
        physical=physical_cores(),
        slow=slow_cores([_strength(core) for core in cores]),
        mhz=(min(rates, default=0.0), max(rates, default=0.0)),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        huge_page_bytes=tuple(
            sorted(
                int(folder.name.removeprefix("hugepages-").removesuffix("kB")) << 10
                for folder in (_PAGES / "hugepages").glob("hugepages-*kB")
            )
        ),
        transparent=chosen(_text(_PAGES / "transparent_hugepage" / "enabled")),
    )


def slow_cores(strengths: list[float]) -> int:
    """Count the cores well below the strongest; 0 if their strengths are unknown."""
    strongest = max(strengths, default=0.0)
    return sum(0 < strength < 0.9 * strongest for strength in strengths)


def chosen(text: str) -> str:
    """Parse the selected option in brackets: ``always [madvise] never`` is ``madvise``."""
    _, opened, rest = text.partition("[")
    return rest.partition("]")[0] if opened else ""


def _strength(core: int) -> float:
    """Return a core's capacity, or its top frequency; 0 where the system reports neither."""
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        with contextlib.suppress(ValueError):
            return float(_text(_CPUS / f"cpu{core}" / name))
    return 0.0


def _clock_rates(cores: list[int]) -> list[float]:
    """Return the MHz of each core: from the frequency driver, or as /proc/cpuinfo has it."""
    rates: list[float] = []
    for core in cores:
        with contextlib.suppress(ValueError):
            rates.append(float(_text(_CPUS / f"cpu{core}/cpufreq/scaling_cur_freq")) / 1e3)
    if rates:
        return rates
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.lower().startswith("cpu mhz"):
            with contextlib.suppress(ValueError):
                rates.append(float(line.partition(":")[2]))
    return rates


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
