"""A simulated machine whose memory for KV caches is just enough, or not even that."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from helpers.planned import FixedClock, forecaster

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.planning.fleet import Scenario, simulate
from triplepoint.runtime.planning.machine_sim import Policy, SimulatedMachine
from triplepoint.runtime.planning.programs import Mix, Program, Request

KV = forecaster().cost.kv_bytes * PAGE  # bytes of a page
CLOCK = FixedClock(lambda rows: 0.01 + 0.001 * rows)


def test_two_that_ask_at_the_same_time() -> None:
    """Neither came before the other in virtual time: one of them goes on all the same."""
    machine = SimulatedMachine(CLOCK, Policy(memory=5 * KV))
    machine.arrive(Program((Request(0.0, 10, 50),)), 0.0)
    for _ in range(2):
        machine.arrive(Program((Request(0.0, 250, 900),)), 0.1)
    tally = machine.finish()
    assert (tally.done, tally.failed) == (3, 0)
    assert tally.written == 50 + 2 * 900


def test_a_beginning_larger_than_the_memory() -> None:
    """All fail, each once; the time that was spent on them is time that they took."""
    policy = Policy(memory=3 * KV, parallel=8)
    mix = Mix(shared=1500, new=20, reply=2, requests=2, tool_s=0.5)
    plan = Scenario(forecaster(), machines=2, mix=mix, count=10, rate=1.0, policy=policy)
    result = simulate(plan, 1)
    assert (result.tally.failed, result.tally.done) == (10, 0)
    assert 0 < result.used <= 1.0
    assert sum(result.bounds.values()) == pytest.approx(1.0)


def test_a_beginning_that_nobody_goes_on_from_is_let_go() -> None:
    """Two groups that fit one after the other: the first one's beginning makes room."""
    machine = SimulatedMachine(CLOCK, Policy(memory=7 * KV))
    for group in range(3):
        machine.arrive(Program((Request(0.0, 1600, 20),), 1500, group), 30.0 * group)
    tally = machine.finish()
    assert (tally.done, tally.failed) == (3, 0)
    assert tally.peak <= 7 * KV


def _programs(chance: random.Random) -> list[Program]:
    """Of three groups, and of none."""
    shared = [chance.choice([0, 100, 256, 300, 900, 1500]) for _ in range(3)]
    found = []
    for _ in range(chance.choice([2, 5, 20])):
        group = chance.randrange(-1, 3)
        first = shared[group] if group >= 0 else 0
        requests = [
            Request(
                chance.choice([0.0, 0.5, 5.0]),
                chance.choice([1, 50, 300, 700]) + (0 if n else first),
                chance.choice([1, 2, 20, 400]),
            )
            for n in range(chance.choice([1, 2, 4]))
        ]
        found.append(Program(tuple(requests), first, group if first else -1))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_memory_of_the_largest_conversation_is_enough(seed: int) -> None:
    """Whatever they are and share: all is answered, and no page is given out twice."""
    chance = random.Random(seed)
    programs = _programs(chance)
    pages = max(-(-one.length // PAGE) for one in programs) + chance.choice([0, 0, 1, 3])
    policy = Policy(memory=pages * KV, parallel=chance.choice([1, 2, 8]))
    policy = replace(policy, share=chance.random() < 0.8)
    machine = SimulatedMachine(CLOCK, policy, exact=chance.random() < 0.3)
    at = 0.0
    for program in programs:
        at += chance.choice([0.0, 0.0, 0.1, 3.0])
        machine.arrive(program, at)
    tally = machine.finish()
    assert (tally.done, tally.failed) == (len(programs), 0)
    assert tally.written == sum(one.written for one in programs)
    assert tally.peak <= pages * KV * (1 + 1e-9)
