"""The CPUs of a machine as sysfs describes them, and the order in which threads take them.

A *domain* is the CPUs that share the last cache: a CCD, a cluster, a socket. Barriers inside of one
are cheap, and each has a link of its own to the memory. So threads that read much spread over
domains and nodes, and threads that meet often fill one domain before the next. Strong cores come
first, then weak ones, SMT siblings last.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SYSFS = Path("/sys")
STRONG = 0.8  # of the strongest core: a P core with a low boost clock has more, an E core less
Regime = Literal["decode", "short prefill", "prefill"]
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU that this process may run on."""

    number: int
    sibling: int = 0
    """Its index among the usable SMT siblings of its core."""
    core: int = 0
    """The first CPU of its core."""
    strength: float = 1.0
    """Capacity or top clock rate, relative to the strongest CPU; 1 if not reported."""
    domain: int = 0
    """The first CPU of those that share its last cache."""
    node: int = 0
    """NUMA node."""

    @property
    def strong(self) -> bool:
        return self.strength >= STRONG


@dataclass(frozen=True, slots=True)
class ThreadPlan:
    """CPUs for the threads of one regime, best first, and the thread counts worth a try."""

    cpus: tuple[int, ...]
    counts: tuple[int, ...]


EQUAL_CORES = ThreadPlan((), _COUNTS)
"""A plan that rules nothing out."""


def plan(cpus: Sequence[Cpu], regime: Regime) -> ThreadPlan:
    """Plan the threads of a regime from the topology alone.

    Decode and short prefill use strong cores, a long prefill all; none of them SMT siblings. Decode
    and prefill spread over domains, a short prefill fills them.
    """
    used = [cpu for cpu in cpus if not cpu.sibling and (cpu.strong or regime == "prefill")]
    fill = regime == "short prefill"
    sizes = Counter(cpu.domain for cpu in used if cpu.strong).values()
    step = min(sizes) if fill else len(sizes)  # its multiples use all domains alike
    counts = {n for n in _COUNTS if n < len(used) and (n <= step or n % step == 0)}
    return ThreadPlan(order(used, fill=fill), tuple(sorted(counts | {step, sum(sizes), len(used)})))


def order(cpus: Iterable[Cpu], *, fill: bool = False) -> tuple[int, ...]:
    """Order CPUs for pinning: strong, weak, SMT siblings; domain by domain, or spread over them."""
    cpus = sorted(cpus, key=lambda cpu: cpu.number)
    nodes: dict[int, list[int]] = {}  # and their domains
    for cpu in cpus:
        domains = nodes.setdefault(cpu.node, [])
        if cpu.domain not in domains:
            domains.append(cpu.domain)
    ranks: Counter[tuple[int, bool, int]] = Counter()
    keys = []
    for cpu in cpus:
        group = (min(cpu.sibling, 1), not cpu.strong)
        among = nodes[cpu.node].index(cpu.domain)
        rank = ranks[*group, cpu.domain]
        ranks[*group, cpu.domain] += 1
        within = (cpu.node, among, rank) if fill else (rank, among, cpu.node)
        keys.append((*group, *within, cpu.number))
    return tuple(key[-1] for key in sorted(keys))


def usable_cpus(root: Path = SYSFS, allowed: Collection[int] | None = None) -> tuple[Cpu, ...]:
    """Read the usable CPUs from sysfs: those that affinity and cpuset allow.

    root: where sysfs is mounted. allowed: CPU numbers; by default the process's affinity, or all
    where the system has none.
    """
    if allowed is None:
        known = hasattr(os, "sched_getaffinity")
        allowed = os.sched_getaffinity(0) if known else range(os.cpu_count() or 1)
    return _read(root, frozenset(allowed))


@functools.lru_cache(maxsize=8)
def _read(root: Path, allowed: frozenset[int]) -> tuple[Cpu, ...]:
    devices = root / "devices"
    atoms = allowed.intersection(
        parse_list(read_text(devices / "cpu_atom/cpus"))
    )  # Intel's E cores
    nodes = {
        cpu: int(folder.name.removeprefix("node"))
        for folder in (devices / "system/node").glob("node[0-9]*")
        for cpu in parse_list(read_text(folder / "cpulist"))
    }
    rates = {cpu: _rate(devices / f"system/cpu/cpu{cpu}") for cpu in allowed}
    best = max(rates.values(), default=0.0)
    found = []
    for cpu in sorted(allowed):
        folder = devices / f"system/cpu/cpu{cpu}"
        siblings = parse_list(read_text(folder / "topology/thread_siblings_list"))
        strength = rates[cpu] / best if rates[cpu] else 1.0
        if cpu in atoms and atoms != allowed:
            strength = min(strength, STRONG / 2)
        found.append(
            Cpu(
                cpu,
                sum(one < cpu and one in allowed for one in siblings),
                min(siblings, default=cpu),
                strength,
                min(_sharing(folder, siblings), default=0),
                nodes.get(cpu, 0),
            )
        )
    return tuple(found)


def _sharing(folder: Path, siblings: list[int]) -> list[int]:
    """Return the CPUs that share a CPU's last cache with it.

    Where no cache is shared by several cores, those of its cluster, or of its socket.
    """
    caches: dict[int, list[int]] = {}
    for index in (folder / "cache").glob("index*"):
        with contextlib.suppress(ValueError):
            caches[int(read_text(index / "level"))] = parse_list(
                read_text(index / "shared_cpu_list")
            )
    last = caches[max(caches)] if caches else []
    if len(last) > len(siblings):
        return last
    for name in ("cluster_cpus_list", "package_cpus_list"):
        listed = parse_list(read_text(folder / "topology" / name))
        if len(listed) > len(siblings):
            return listed
    return last


def _rate(folder: Path) -> float:
    """Return a CPU's capacity, or its top frequency; 0 where the system reports neither."""
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        with contextlib.suppress(ValueError):
            return float(read_text(folder / name))
    return 0.0


def parse_list(text: str) -> list[int]:
    """Parse a list of CPUs such as ``0-3,8``; an empty list if it is none."""
    found: list[int] = []
    with contextlib.suppress(ValueError):
        for part in text.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def read_text(path: Path) -> str:
    """Return a file's text without its line end; empty if there is none."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
