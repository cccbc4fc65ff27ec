"""Sysfs trees of machines with many cores, as their kernels write them: from public facts.

Numbers of CPUs, caches and nodes follow `lscpu -e` and `lstopo` of such machines as they are
published; M3 Ultra is the shape that Linux on its predecessors shows, two dies of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Group = Sequence[int]


@dataclass
class Tree:
    """A machine's CPUs: groups of them that share something, and numbers of each."""

    siblings: Sequence[Group]
    caches: Mapping[int, Sequence[Group]] = field(default_factory=dict)
    clusters: Sequence[Group] = ()
    packages: Sequence[Group] = ()
    nodes: Sequence[Group] = ()
    capacity: Mapping[int, int] = field(default_factory=dict)
    max_khz: Mapping[int, int] = field(default_factory=dict)
    kinds: Mapping[str, Group] = field(default_factory=dict)

    @property
    def cpus(self) -> list[int]:
        return sorted(cpu for group in self.siblings for cpu in group)

    def write(self, root: Path) -> Path:
        """Write the tree below `root`, and return it."""
        devices = root / "devices"
        for name, groups in (
            ("thread_siblings_list", self.siblings),
            ("cluster_cpus_list", self.clusters),
            ("package_cpus_list", self.packages),
        ):
            for cpu, group in _members(groups):
                _put(devices / f"system/cpu/cpu{cpu}/topology/{name}", _list(group))
        for level, groups in self.caches.items():
            for cpu, group in _members(groups):
                cache = devices / f"system/cpu/cpu{cpu}/cache/index{level}"
                _put(cache / "level", str(level))
                _put(cache / "type", "Unified")
                _put(cache / "shared_cpu_list", _list(group))
        for number, group in enumerate(self.nodes):
            _put(devices / f"system/node/node{number}/cpulist", _list(group))
        for cpu, value in self.capacity.items():
            _put(devices / f"system/cpu/cpu{cpu}/cpu_capacity", str(value))
        for cpu, value in self.max_khz.items():
            _put(devices / f"system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq", str(value))
        for name, group in self.kinds.items():
            _put(devices / name / "cpus", _list(group))
        return root


def _members(groups: Iterable[Group]) -> Iterable[tuple[int, Group]]:
    return ((cpu, group) for group in groups for cpu in group)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _list(group: Group) -> str:
    """Write a list as the kernel does: ``0-5,12-17``."""
    parts: list[list[int]] = []
    for cpu in sorted(group):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _pairs(cores: Iterable[int], step: int) -> list[Group]:
    return [(core, core + step) for core in cores]


def _alone(cpus: Iterable[int]) -> list[Group]:
    return [(cpu,) for cpu in cpus]


RYZEN_7900 = Tree(
    siblings=_pairs(range(12), 12),
    caches={
        2: _pairs(range(12), 12),
        3: [(*range(6), *range(12, 18)), (*range(6, 12), *range(18, 24))],
    },
    packages=[range(24)],
    nodes=[range(24)],
    max_khz=dict.fromkeys(range(24), 5_482_000),
)
"""12 cores in two CCDs, SMT siblings 12 further on."""

I9_13900K = Tree(
    siblings=[*((n, n + 1) for n in range(0, 16, 2)), *_alone(range(16, 32))],
    caches={
        2: [
            *((n, n + 1) for n in range(0, 16, 2)),
            *(range(n, n + 4) for n in range(16, 32, 4)),
        ],
        3: [range(32)],
    },
    packages=[range(32)],
    nodes=[range(32)],
    max_khz=dict.fromkeys(range(16), 5_500_000)
    | dict.fromkeys(range(8, 12), 5_800_000)
    | dict.fromkeys(range(16, 32), 4_300_000),
    kinds={"cpu_core": range(16), "cpu_atom": range(16, 32)},
)
"""Eight P cores with two CPUs each, two of them favored; 16 E cores; one L3."""

EPYC_2X64 = Tree(
    siblings=_pairs(range(128), 128),
    caches={
        2: _pairs(range(128), 128),
        3: [(*range(n, n + 8), *range(n + 128, n + 136)) for n in range(0, 128, 8)],
    },
    packages=[(*range(64), *range(128, 192)), (*range(64, 128), *range(192, 256))],
    nodes=[(*range(64), *range(128, 192)), (*range(64, 128), *range(192, 256))],
    max_khz=dict.fromkeys(range(256), 3_529_052),
)
"""Two sockets of 64 cores as one node each (NPS1), eight CCDs a socket."""

_M3_CLUSTERS = [range(4), range(4, 9), range(9, 14), range(14, 18), range(18, 23), range(23, 28)]
M3_ULTRA = Tree(
    siblings=_alone(range(28)),
    caches={2: _M3_CLUSTERS},
    clusters=_M3_CLUSTERS,
    packages=[range(28)],
    capacity=dict.fromkeys(range(28), 1024) | dict.fromkeys((*range(4), *range(14, 18)), 360),
)
"""On each of two dies a cluster of four E cores and two of five P cores; L2 by cluster, no L3."""

RK3588 = Tree(
    siblings=_alone(range(8)),
    caches={2: _alone(range(8)), 3: [range(8)]},
    clusters=[range(4), (4, 5), (6, 7)],
    packages=[range(8)],
    nodes=[range(8)],
    capacity=dict.fromkeys(range(4), 397) | dict.fromkeys(range(4, 8), 1024),
)
"""Four A55 and two pairs of A76 with an L3 for all."""
