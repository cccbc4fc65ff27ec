"""The kinds of cores and pages of this machine, as the system reports them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from ...jit.cores import read_text, usable_cpus
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
    """Number of CPUs well below the strongest one's capacity or top frequency, such as E cores."""
    mhz: tuple[float, float]
    """Reported clock rates of the usable cores, lowest and highest; 0: unknown."""
    page_bytes: int
    huge_page_bytes: tuple[int, ...]
    """Sizes of pages, the usual one first."""
    transparent: str
    """Mode of transparent huge pages, e.g. ``madvise``; empty: unknown."""
    domains: int = 1
    nodes: int = 1
    """Groups of CPUs that share their last cache, and NUMA nodes."""


def topology() -> Topology:
    """Read the topology; clock rates may change within a second."""
    cpus = usable_cpus()
    rates = _clock_rates([cpu.number for cpu in cpus])
    return Topology(
        usable=usable_cores(),
        physical=physical_cores(),
        slow=sum(not cpu.strong for cpu in cpus),
        mhz=(min(rates, default=0.0), max(rates, default=0.0)),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        huge_page_bytes=tuple(
            sorted(
                int(folder.name.removeprefix("hugepages-").removesuffix("kB")) << 10
                for folder in (_PAGES / "hugepages").glob("hugepages-*kB")
            )
        ),
        transparent=chosen(read_text(_PAGES / "transparent_hugepage" / "enabled")),
        domains=len({cpu.domain for cpu in cpus}),
        nodes=len({cpu.node for cpu in cpus}),
    )


def chosen(text: str) -> str:
    """Parse the selected option in brackets: ``always [madvise] never`` is ``madvise``."""
    _, opened, rest = text.partition("[")
    return rest.partition("]")[0] if opened else ""


def _clock_rates(cores: list[int]) -> list[float]:
    """Return the MHz of each core: from the frequency driver, or as /proc/cpuinfo has it."""
    rates: list[float] = []
    for core in cores:
        with contextlib.suppress(ValueError):
            rates.append(float(read_text(_CPUS / f"cpu{core}/cpufreq/scaling_cur_freq")) / 1e3)
    if rates:
        return rates
    for line in read_text(Path("/proc/cpuinfo")).splitlines():
        if line.lower().startswith("cpu mhz"):
            with contextlib.suppress(ValueError):
                rates.append(float(line.partition(":")[2]))
    return rates
