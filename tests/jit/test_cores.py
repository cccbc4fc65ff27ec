"""Topologies of machines with many cores, and the threads that each regime gets on them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from helpers.sysfs import EPYC_2X64, I9_13900K, M3_ULTRA, RK3588, RYZEN_7900, Tree

from triplepoint.jit.cores import Cpu, order, parse_list, plan, usable_cpus

MACHINES = {
    "7900": RYZEN_7900,
    "13900K": I9_13900K,
    "EPYC": EPYC_2X64,
    "M3": M3_ULTRA,
    "RK3588": RK3588,
}


def _cpus(tree: Tree, root: Path, allowed: list[int] | None = None) -> tuple[Cpu, ...]:
    return usable_cpus(tree.write(root), tree.cpus if allowed is None else allowed)


@pytest.mark.parametrize(
    ("name", "physical", "strong", "domains", "nodes"),
    [
        ("7900", 12, 12, 2, 1),
        ("13900K", 24, 8, 1, 1),
        ("EPYC", 128, 128, 16, 2),
        ("M3", 28, 20, 6, 1),
        ("RK3588", 8, 4, 1, 1),
    ],
)
def test_what_machines_have(
    name: str, physical: int, strong: int, domains: int, nodes: int, tmp_path: Path
) -> None:
    """Cores, strong cores, groups with a shared cache and nodes, by the machines' data sheets."""
    cpus = _cpus(MACHINES[name], tmp_path)
    cores = [cpu for cpu in cpus if not cpu.sibling]

    assert len(cores) == len({cpu.core for cpu in cpus}) == physical
    assert sum(cpu.strong for cpu in cores) == strong
    assert len({cpu.domain for cpu in cpus}) == domains
    assert len({cpu.node for cpu in cpus}) == nodes


def test_without_caches_clusters_are_domains(tmp_path: Path) -> None:
    """Kernels that describe no caches of an RK3588 still name its three clusters."""
    cpus = _cpus(dataclasses.replace(RK3588, caches={}), tmp_path)

    assert [cpu.domain for cpu in cpus] == [0, 0, 0, 0, 4, 4, 6, 6]
    assert plan(cpus, "decode").cpus == (4, 6, 5, 7)


def test_decode_spreads_over_ccds() -> None:
    """By hand: two nodes of two domains of two cores: nodes alternate, then domains."""
    cpus = [Cpu(n, core=n, domain=n // 2 * 2, node=n // 4) for n in range(8)]

    assert plan(cpus, "decode").cpus == order(cpus) == (0, 4, 2, 6, 1, 5, 3, 7)
    assert plan(cpus, "short prefill").cpus == (0, 1, 2, 3, 4, 5, 6, 7)


def test_a_ryzen(tmp_path: Path) -> None:
    """Decode takes one core of each CCD in turn, short prefills fill one; siblings come last."""
    cpus = _cpus(RYZEN_7900, tmp_path)

    assert plan(cpus, "decode").cpus == (0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11)
    assert plan(cpus, "decode").counts == (1, 2, 4, 6, 8, 12)
    assert plan(cpus, "short prefill").cpus == tuple(range(12))
    assert plan(cpus, "short prefill").counts == (1, 2, 3, 4, 6, 12)
    assert set(order(cpus)[12:]) == set(range(12, 24))


def test_an_i9(tmp_path: Path) -> None:
    """Only a long prefill uses E cores, after the P cores; favored cores count as usual."""
    cpus = _cpus(I9_13900K, tmp_path)
    p_cores = tuple(range(0, 16, 2))

    assert plan(cpus, "decode").cpus == plan(cpus, "short prefill").cpus == p_cores
    assert plan(cpus, "decode").counts == (1, 2, 3, 4, 6, 8)
    assert plan(cpus, "prefill").cpus == (*p_cores, *range(16, 32))
    assert {8, 24} <= set(plan(cpus, "prefill").counts)
    assert order(cpus)[-8:] == tuple(range(1, 16, 2))


def test_two_sockets(tmp_path: Path) -> None:
    """Decode alternates between nodes and reaches all 16 CCDs; a fill stays inside."""
    cpus = _cpus(EPYC_2X64, tmp_path)
    node = {cpu.number: cpu.node for cpu in cpus}
    domain = {cpu.number: cpu.domain for cpu in cpus}
    spread, filled = plan(cpus, "decode"), plan(cpus, "short prefill")

    assert [node[cpu] for cpu in spread.cpus[:4]] == [0, 1, 0, 1]
    assert len({domain[cpu] for cpu in spread.cpus[:16]}) == 16
    assert all(n % 16 == 0 for n in spread.counts if n > 16)
    assert {domain[cpu] for cpu in filled.cpus[:8]} == {0}
    assert {node[cpu] for cpu in filled.cpus[:64]} == {0}


def test_p_cores_alone_decode(tmp_path: Path) -> None:
    """An M3 Ultra decodes on its 20 P cores, one of each cluster first."""
    found = plan(_cpus(M3_ULTRA, tmp_path), "decode")

    assert found.cpus[:4] == (4, 9, 18, 23)
    assert found.counts == (1, 2, 3, 4, 8, 12, 16, 20)


@pytest.mark.parametrize("name", MACHINES)
def test_every_cpu_has_one_turn(name: str, tmp_path: Path) -> None:
    """Orders are permutations, and the counts of a plan never exceed its CPUs."""
    cpus = _cpus(MACHINES[name], tmp_path)
    for fill in (False, True):
        assert sorted(order(cpus, fill=fill)) == MACHINES[name].cpus
    for regime in ("decode", "short prefill", "prefill"):
        found = plan(cpus, regime)
        assert found.counts == tuple(sorted(set(found.counts)))
        assert 1 <= found.counts[0] <= found.counts[-1] == len(found.cpus)


def test_limits_of_a_container(tmp_path: Path) -> None:
    """Only allowed CPUs count: a second sibling whose first is not allowed is a core of its own."""
    cpus = _cpus(RYZEN_7900, tmp_path, [1, 13, 14, 20])
    assert [(cpu.number, cpu.sibling, cpu.domain) for cpu in cpus] == [
        (1, 0, 0),
        (13, 1, 0),
        (14, 0, 0),
        (20, 0, 6),
    ]
    assert plan(cpus, "decode").cpus == (1, 20, 14)

    e_cores = _cpus(I9_13900K, tmp_path / "i9", list(range(20, 24)))
    assert plan(e_cores, "decode").cpus == (20, 21, 22, 23)


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    """Without sysfs all CPUs are equal cores in the order of their numbers."""
    cpus = usable_cpus(tmp_path, [3, 1, 2])

    assert order(cpus) == order(cpus, fill=True) == (1, 2, 3)
    assert plan(cpus, "decode").counts == (1, 2, 3)


def test_this_machine() -> None:
    """Its CPUs are those of the process's affinity."""
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("threads have no affinity here")
    assert {cpu.number for cpu in usable_cpus()} == os.sched_getaffinity(0)


def test_lists_of_cpus() -> None:
    assert parse_list("0-3,8,10-11") == [0, 1, 2, 3, 8, 10, 11]
    assert parse_list("") == parse_list("none") == []
