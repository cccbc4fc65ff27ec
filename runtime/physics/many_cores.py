"""Limits of machines with many cores, simulated from their topology and public figures.

With n threads on CPUs in some order, and soft(a, b) = (a^-2 + b^-2)^(-1/2) for a bus that slows
down before it is full:

    clock        min(boost clock, all-core clock * (cores / busy cores)^(1/3)): power is its cube,
                 and weak cores draw little
    arithmetic   clock * operations a cycle * sum of the threads' rates
    DRAM         sum over nodes of soft(node, sum over domains of soft(link, one core * cores))
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import SettingError
from ...jit.cores import Cpu, plan
from .machine import MachineProfile

DRAM_SHARE = 0.8  # of a memory's theoretical bandwidth that reads reach
_NEAR_GBPS = {"L1": 200.0, "L2": 100.0}  # of one core


@dataclass(frozen=True)
class ManyCores:
    """A machine: its CPUs, and public figures."""

    cpu: str
    target: str
    cpus: tuple[Cpu, ...]
    boost_ghz: float
    all_core_ghz: float
    ops: float
    """int8 operations a cycle and strong core."""
    core_gbps: float
    link_gbps: float
    node_gbps: float
    """Bandwidth of one core, of a domain's link, and of a node's memory in theory."""

    def clock_ghz(self, chosen: Sequence[Cpu]) -> float:
        """Return the clock rate of strong cores when these CPUs work."""
        busy, of = (len({c.core for c in some if c.strong}) for some in (chosen, self.cpus))
        return min(self.boost_ghz, self.all_core_ghz * (of / max(1, busy)) ** (1 / 3))

    def limits(self, chosen: Sequence[Cpu], *, static: bool = False) -> MachineProfile:
        """Return the limits of one thread on each of these CPUs.

        static: threads get equal parts of the work, and all wait for the slowest.
        """
        busy = Counter(cpu.core for cpu in chosen)
        rates = [(1.0 if cpu.strong else cpu.strength) / busy[cpu.core] for cpu in chosen]
        cores = {(cpu.node, cpu.domain, cpu.core) for cpu in chosen}
        rate = len(rates) * min(rates) if static else sum(rates)
        ops = self.clock_ghz(chosen) * self.ops * rate
        nodes: dict[int, float] = defaultdict(float)
        for (node, _), count in Counter(at[:2] for at in cores).items():
            nodes[node] += _soft(self.link_gbps, self.core_gbps * count)
        dram = sum(_soft(DRAM_SHARE * self.node_gbps, rate) for rate in nodes.values())
        near = {level: each * len(cores) for level, each in _NEAR_GBPS.items()}
        n, caches = len(chosen), {"L1": 32 << 10, "L2": 1 << 20, "L3": 0}
        return MachineProfile(
            f"{self.cpu}, {n} threads (simulated)", len(self.cpus), self.target, n, caches,
            {**near, "L3": dram, "DRAM": dram}, ops, ops / 4, ops / 2, 1e-7 * n,
        )  # fmt: skip


def _soft(a: float, b: float) -> float:
    return (a**-2 + b**-2) ** -0.5


def simulated(name: str) -> MachineProfile | None:
    """Return the limits of a known machine, ``NAME`` or ``NAME:THREADS``; None: there is none.

    Raises:
        SettingError: it has not as many cores.
    """
    name, colon, count = name.partition(":")
    if (machine := machines().get(name)) is None:
        return None
    threads = plan(machine.cpus, "prefill").cpus
    n = int(count) if count.isascii() and count.isdigit() else 0 if colon else len(threads)
    if not 1 <= n <= len(threads):
        raise SettingError(f"{name} has 1 to {len(threads)} threads, not {count!r}")
    by_number = {cpu.number: cpu for cpu in machine.cpus}
    return machine.limits([by_number[number] for number in threads[:n]])


@functools.cache
def machines() -> dict[str, ManyCores]:
    """Return the known machines by name, from `machines.toml`."""
    text = Path(__file__).with_name("machines.toml").read_text(encoding="utf-8")
    return {name: _machine(entry) for name, entry in tomllib.loads(text).items()}


def _machine(entry: dict[str, Any]) -> ManyCores:
    """Return a machine from its entry; CPUs are numbered kind by kind, and SMT siblings last."""
    cores, nodes = entry["cores"], entry.get("nodes", 1)
    found, first = [], {}
    total = sum(kind["domains"] * kind["each"] for kind in cores)
    for kind in cores:
        own = kind is not cores[0] and kind.get("apart", True)
        for domain in (n for n in range(kind["domains"]) for _ in range(kind["each"])):
            n, strength = len(found), kind.get("strength", 1.0)
            at = first.setdefault((own, domain), n)
            found.append(Cpu(n, 0, n, strength, at, n * nodes // total))
    smt = found[: cores[0]["domains"] * cores[0]["each"]] if cores[0].get("smt") else []
    found += [replace(cpu, number=total + n, sibling=1) for n, cpu in enumerate(smt)]
    return ManyCores(entry["cpu"], entry["target"], tuple(found), **entry["figures"])
