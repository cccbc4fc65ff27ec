"""One simulated machine: closed forms of queues, conservation of tokens, memory, jumps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.planned import FixedClock, forecaster

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.engine.passes.scheduler import Scheduler
from triplepoint.runtime.engine.policy.pass_policy import PassPolicy, urgency
from triplepoint.runtime.physics.costs import Part
from triplepoint.runtime.planning.clock import Clock, Timed
from triplepoint.runtime.planning.machine_sim import Policy, SimulatedMachine
from triplepoint.runtime.planning.programs import Mix, Program, Request, arrivals
from triplepoint.runtime.planning.tally import Tally


def _one(new: int = 100, reply: int = 1) -> Program:
    return Program((Request(0.0, new, reply),))


def test_the_policy_is_the_engines_own() -> None:
    """Who is in a pass is decided by the code that the scheduler runs."""
    for name in ("_pick", "_part", "aim_s"):
        assert getattr(SimulatedMachine, name) is getattr(PassPolicy, name)
        assert getattr(Scheduler, name) is getattr(PassPolicy, name)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_of_an_m_d_1_queue(load: float) -> None:
    """Requests of one pass each, one after the other: mean waiting rho / (2 (1 - rho)) services.

    Ten thousand requests; within 12 % (of a mean whose samples depend on each other).
    """
    service = 0.5
    machine = SimulatedMachine(FixedClock(lambda rows: service), Policy(parallel=1))
    for at in arrivals(10_000, load / service, 3):
        machine.advance(at)
        machine.arrive(_one(), at)
    tally = machine.finish()
    waiting = np.mean(tally.ttft) - service
    assert waiting == pytest.approx(service * load / (2 * (1 - load)), rel=0.12)
    assert tally.busy_s == pytest.approx(10_000 * service)
    assert tally.passes == tally.done == 10_000


def test_one_conversation_by_hand() -> None:
    """Two requests: chunks of the prompt, a token with the last, one a pass; a pause between."""
    clock = FixedClock(lambda rows: 0.001 * rows)
    program = Program((Request(0.0, 300, 5), Request(2.0, 10, 3)))
    for exact in (True, False):
        machine = SimulatedMachine(clock, Policy(), exact=exact)
        machine.arrive(program, 1.0)
        tally = machine.finish()
        assert tally.ttft.tolist() == pytest.approx([0.3, 0.011])
        assert tally.tpot.tolist() == pytest.approx([0.001, 0.001])
        # 300 rows, 4 tokens, 2 s, the last token and 10 new ones, 2 tokens
        assert tally.last_s == pytest.approx(1.0 + 0.3 + 0.004 + 2.0 + 0.011 + 0.002)
        assert (tally.computed, tally.written, tally.adopted) == (311, 8, 304)
        assert tally.bound_s["memory"] == pytest.approx(0.75 * tally.busy_s)
        assert sum(tally.bound_s.values()) == pytest.approx(tally.busy_s)


def test_batches_share_passes() -> None:
    """Eight decodes at once take as long as one, where a pass takes as long for all."""
    clock = FixedClock(lambda rows: 0.01)
    tallies = []
    for count in (1, 8):
        machine = SimulatedMachine(clock, Policy())
        for _ in range(count):
            machine.arrive(_one(new=10, reply=101), 0.0)
        tallies.append(machine.finish())
    one, eight = tallies
    assert one.last_s == pytest.approx(0.01 + 100 * 0.01)
    assert eight.last_s == pytest.approx(one.last_s, rel=0.1)
    assert eight.shared > 90


def test_a_beginning_is_computed_once() -> None:
    """Ten agents with the same system prompt: one computes it, the others wait and take it over."""
    clock = FixedClock(lambda rows: 0.001 * rows)
    programs = [Program((Request(0.0, 1100, 4),), shared=1000, group=0)] * 10
    machine = SimulatedMachine(clock, Policy())
    for program in programs:
        machine.arrive(program, 0.0)
    tally = machine.finish()
    assert (tally.computed, tally.adopted) == (1000 + 10 * 100, 9 * 1000)
    alone = SimulatedMachine(clock, Policy(share=False))
    for program in programs:
        alone.arrive(program, 0.0)
    assert alone.finish().computed == 11_000


def test_memory_without_sharing() -> None:
    """Each conversation has pages of its own, for the beginning too, and all are given back."""
    machines = []
    for group in (0, -1):
        machine = SimulatedMachine(FixedClock(lambda rows: 0.01), Policy(share=False))
        for _ in range(3):
            machine.arrive(Program((Request(0.0, 20 * PAGE, 50),), 16 * PAGE, group), 0.0)
        tally = machine.finish()
        machines.append((tally.peak, tally.kv_s))
        assert machine._used == 0
    assert machines[0] == machines[1]


def _busy(policy: Policy, *, exact: bool, seed: int = 1, count: int = 60) -> Tally:
    machine = SimulatedMachine(Clock(forecaster()), policy, exact=exact)
    mix = Mix(shared=600, new=300, reply=30, requests=3, tool_s=0.3)
    programs = list(mix.draw(count, seed))
    for program, at in zip(programs, arrivals(count, 0.5, seed), strict=True):
        machine.advance(at)
        machine.arrive(program, at)
    tally = machine.finish()
    requests = sum(len(one.requests) for one in programs)
    written = sum(one.written for one in programs)
    assert (tally.arrived, tally.done, tally.failed) == (count, count, 0)
    assert (len(tally.ttft), tally.written) == (requests, written)
    assert machine._used == machine._known.get(0, 0) // PAGE, "pages are given back"
    assert machine._decoding == 0
    return tally


def test_tokens_are_conserved() -> None:
    """What came in is computed or found, without memory to spare as well; all replies are whole."""
    mix = list(Mix(shared=600, new=300, reply=30, requests=3, tool_s=0.3).draw(60, 1))
    # A prompt is what requests add and what was written before it, at each request.
    prompts = 0
    for program in mix:
        length = 0
        for request in program.requests:
            length += request.new
            prompts += length
            length += request.reply
    tally = _busy(Policy(), exact=True)
    assert tally.computed + tally.adopted == prompts
    tight = _busy(Policy(memory=24 * forecaster().cost.kv_bytes * PAGE), exact=True)
    assert tight.evicted + tight.preempted > 0
    assert tight.computed > tally.computed
    assert tight.peak <= 24 * forecaster().cost.kv_bytes * PAGE


@pytest.mark.slow
def test_the_same_seed_gives_the_same() -> None:
    """Every figure, twice."""
    assert _busy(Policy(), exact=False) == _busy(Policy(), exact=False)
    assert _busy(Policy(), exact=False, seed=2) != _busy(Policy(), exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jumps_change_little(seed: int) -> None:
    """Passes in jumps or one by one: the same tokens; times within some per cent."""
    one, other = (_busy(Policy(), exact=exact, seed=seed) for exact in (True, False))
    assert (one.computed, one.written) == (other.computed, other.written)
    assert other.last_s == pytest.approx(one.last_s, rel=0.03)
    assert other.busy_s == pytest.approx(one.busy_s, rel=0.04)
    for share, error in ((0.5, 0.12), (0.9, 0.2)):
        for name in ("ttft", "tpot"):
            mine, exact = (np.quantile(getattr(t, name), share) for t in (other, one))
            assert mine == pytest.approx(exact, rel=error), name


def test_a_deadline_bounds_gaps() -> None:
    """Beside a long prompt tokens come within the deadline, and later where it is later."""
    clock = Clock(forecaster())
    seen = {}
    for deadline in (0.05, 0.4):
        machine = SimulatedMachine(clock, Policy(deadline_s=deadline), exact=True)
        machine.arrive(_one(new=50, reply=40), 0.0)
        machine.arrive(_one(new=6000, reply=1), 0.2)
        tally = machine.finish()
        seen[deadline] = tally.tpot[0], max(tally.ttft)
    assert seen[0.05][0] < 0.05
    assert seen[0.4][0] > seen[0.05][0]


class _SlowDecodes(FixedClock):
    """A row of a decode takes 20 times as long as one of a prompt: long contexts."""

    def seconds(self, parts: Sequence[Part]) -> Timed:
        taken = 0.001 * sum(part[0] + 19 * (part[0] == part[2] == 1) for part in parts)
        return taken, {"memory": 0.75, "compute": 0.25}


def test_prompts_do_not_starve_beside_decodes() -> None:
    """Ten decodes take twice the deadline: a prompt gets a third of each pass all the same."""
    machine = SimulatedMachine(_SlowDecodes(lambda rows: 0.001 * rows), Policy(), exact=True)
    for _ in range(10):
        machine.arrive(_one(new=20, reply=400), 0.0)
    machine.arrive(_one(new=1500, reply=1), 1.0)
    tally = machine.finish()
    assert tally.done == 11
    assert max(tally.ttft) < 1500 / 100 * 0.31 + 1.0
    assert max(tally.tpot) < 0.31, "and the decodes two thirds"


def test_who_can_be_in_time_goes_first() -> None:
    """A prompt that came later but is short passes one that is late; in the end that one's turn
    comes before every other."""
    assert urgency(0.5, 0.0) < urgency(1.0, 0.0) < urgency(0.6, 2.0) < urgency(3.0, 0.0)
    assert urgency(1.9, 0.0) < urgency(0.1, 5.0), "the longer one can be in time"
    assert urgency(30.0, 1000.0) < urgency(0.0, 0.0)


def test_what_never_fits_fails() -> None:
    """A conversation longer than the context or the memory is refused, the others go on."""
    page = forecaster().cost.kv_bytes * PAGE
    machine = SimulatedMachine(Clock(forecaster()), Policy(memory=4 * page, context=4000))
    for new in (100, 5000, 2000, 200):
        machine.arrive(_one(new=new, reply=4), 0.0)
    tally = machine.finish()
    assert (tally.failed, tally.done) == (2, 2)


def test_more_requests_than_places_wait() -> None:
    """Two places, ten requests: they get them in the order in which they came."""
    clock = FixedClock(lambda rows: 0.01)
    machine = SimulatedMachine(clock, Policy(parallel=2))
    for n in range(10):
        machine.arrive(_one(new=10, reply=11), 0.001 * n)
    tally = machine.finish()
    assert tally.done == 10
    assert tally.ttft.tolist() == sorted(tally.ttft)


@pytest.mark.slow
def test_random_programs_always_end() -> None:
    """Any sizes, any memory that holds the largest, any number of places: all is answered."""
    chance = random.Random(7)
    page = forecaster().cost.kv_bytes * PAGE
    clock = Clock(forecaster())
    for seed in range(20):
        mix = Mix(
            shared=chance.choice([0, 300, 2000]),
            new=chance.randint(1, 900),
            reply=chance.randint(1, 90),
            requests=chance.randint(1, 6),
            tool_s=chance.choice([0.0, 0.2, 3.0]),
        )
        programs = list(mix.draw(40, seed))
        pages = -(-max(one.length for one in programs) // PAGE) + 12
        policy = Policy(
            memory=pages * page * chance.choice([1, 2, 9]), parallel=chance.randint(1, 40)
        )
        policy = replace(policy, share=chance.random() < 0.8)
        machine = SimulatedMachine(clock, policy, exact=chance.random() < 0.5)
        for program, at in zip(programs, arrivals(40, chance.choice([0, 1, 5]), seed), strict=True):
            machine.advance(at)
            machine.arrive(program, at)
        tally = machine.finish()
        assert (tally.done, tally.failed) == (40, 0), seed
        assert tally.written == sum(one.written for one in programs), seed
