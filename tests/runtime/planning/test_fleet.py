"""Fleets: the result depends on the seed alone; more machines help; routing does."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from helpers.planned import forecaster

from triplepoint.errors import SettingError
from triplepoint.runtime.planning.fleet import (
    Scenario,
    _arrivals,
    _machines,
    _programs,
    simulate,
)
from triplepoint.runtime.planning.machine_sim import Policy
from triplepoint.runtime.planning.programs import Mix, Program, Request, arrivals

MIX = Mix(shared=300, new=200, reply=20, requests=2, tool_s=0.2)


def _scenario(**changes: object) -> Scenario:
    whole = Scenario(forecaster(), machines=4, mix=MIX, count=200, rate=4.0)
    return replace(whole, **changes)  # pyright: ignore[reportArgumentType]


def test_the_seed_alone_decides() -> None:
    """Twice the same, whatever was simulated between; another seed is another."""
    one = simulate(_scenario(), 1)
    simulate(_scenario(seed=5), 1)
    assert simulate(_scenario(), 1).tally == one.tally
    assert simulate(_scenario(seed=2), 1).tally != one.tally


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    """Shards on two processes give what they give on one."""
    one, two = (simulate(_scenario(machines=3), n) for n in (1, 2))
    assert one.tally == two.tally


def test_more_machines_help() -> None:
    """Twice the machines for the same work: shorter waiting, less use."""
    few, many = simulate(_scenario(machines=2, rate=3.0)), simulate(_scenario(machines=6, rate=3.0))
    assert many.quantile("ttft", 0.99) < few.quantile("ttft", 0.99)
    assert many.used < few.used
    assert many.tally.written == few.tally.written or few.scenario.shards != many.scenario.shards
    assert sum(many.bounds.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("machines", [5, 16, 24, 31, 40])
def test_each_machine_gets_its_part(machines: int, in_order: bool) -> None:
    """Also where the fleet is no multiple of its shards: none gets twice what another gets."""
    programs = tuple(MIX.draw(310, 1))
    plan = _scenario(machines=machines, count=310, in_order=in_order, programs=programs)
    drawn = [[*_programs(plan, shard)] for shard in range(plan.shards)]
    counts = [len([*_machines(plan, shard)]) for shard in range(plan.shards)]

    assert sum(map(len, drawn)) == 310
    for shard, number in zip(drawn, counts, strict=True):
        assert 310 // machines * number <= len(shard) <= (310 // machines + 1) * number
        assert len([*_arrivals(plan, drawn.index(shard))]) == len(shard)
    if in_order:
        assert sorted(map(id, itertools.chain(*drawn))) == sorted(map(id, programs))


def test_routing_by_load_helps() -> None:
    """The less loaded of two machines keeps waiting shorter than any of them by chance."""
    found = {
        route: simulate(_scenario(machines=32, count=800, rate=20.0, route=route))
        for route in ("two", "turns", "random")
    }
    assert found["two"].quantile("ttft", 0.99) < found["random"].quantile("ttft", 0.99)
    assert {one.tally.done for one in found.values()} == {800}


def test_recorded_programs_in_order() -> None:
    """Each once."""
    programs = [Program((Request(0, 100 + n, 3),)) for n in range(9)]
    result = simulate(_scenario(mix=None, programs=programs, in_order=True, machines=2, rate=0.0))
    assert result.tally.done == 9
    assert result.tally.computed == sum(one.prompt for one in programs)


def test_time_before_the_first_conversation_does_not_count() -> None:
    """One a thousand seconds: the machine that waited for it was not slow."""
    result = simulate(_scenario(machines=1, count=1, rate=1e-3), 1)
    assert result.tally.first_s > 10
    assert result.seconds == pytest.approx(result.tally.finished[0], rel=1e-3)


def test_arrivals_are_a_poisson_process() -> None:
    """Mean and variance of the gaps are those of the rate; 0 is all at once."""
    times = list(arrivals(20_000, 5.0, 1))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.2, rel=0.03)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(0.04, rel=0.08)
    assert set(arrivals(5, 0.0, 1)) == {0.0}


@pytest.mark.parametrize(
    "wrong",
    [{"machines": 0}, {"count": 0}, {"mix": None}, {"policy": Policy(memory=1000.0)}],
)
def test_what_makes_no_sense(wrong: dict[str, object]) -> None:
    """Refused before anything runs."""
    with pytest.raises(SettingError):
        _scenario(**wrong)
