"""A simulated fleet of machines that run programs: routing, shards, processes, results.

Machines meet only where a conversation is given to one, so a fleet is cut into shards that are
simulated apart, on as many processes as there are cores; the result depends on the seed alone.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...errors import SettingError
from ...traces.end_with_parent import end_with_parent
from .clock import Clock, Corrections
from .forecaster import Forecaster
from .machine_sim import Policy, SimulatedMachine
from .programs import Mix, Program, arrivals, repeated
from .tally import Tally

Route = Literal["two", "turns", "random"]
SHARDS = 16  # of a fleet at most
GOALS = 2.0, 0.1  # seconds of TTFT and TPOT that goodput asks for, as of `bench serve`


@dataclass(frozen=True)
class Scenario:
    """The inputs of a simulation."""

    forecaster: Forecaster
    seen: Corrections = field(default_factory=Corrections)
    """The model on a machine, and corrections of its predicted pass times."""
    machines: int = 1
    """Number of machines, all equal."""
    programs: Sequence[Program] = ()
    """Programs to draw from; else `mix` generates them."""
    mix: Mix | None = None
    count: int = 1000
    """Number of conversations."""
    rate: float = 0.0
    """Conversations that arrive in a second, over all machines; 0: all at once."""
    policy: Policy = field(default_factory=Policy)
    goals: tuple[float, float] = GOALS
    route: Route = "two"
    """Routing of conversations: the less loaded of ``two`` machines, in ``turns``, or any."""
    seed: int = 1
    exact: bool = False
    in_order: bool = False
    """Run each of `programs` once, in this order, in place of `count` drawn ones."""

    def __post_init__(self) -> None:
        if self.machines < 1 or self.count < 1:
            raise SettingError("a plan needs at least one machine and one conversation")
        if not self.programs and self.mix is None:
            raise SettingError("there are no programs to simulate")
        free = self.policy.memory
        if free is not None and free < self.forecaster.cost.kv_bytes * 256:
            raise SettingError(
                f"{free / 1e9:.3g} GB of memory for KV caches hold no page of "
                f"{self.forecaster.name}"
            )

    @property
    def shards(self) -> int:
        """Number of parts of the fleet that are simulated separately."""
        return min(SHARDS, self.machines)


@dataclass
class Result:
    """The results of a simulated fleet."""

    scenario: Scenario
    seconds: float
    """Seconds from the first arrival to the last end."""
    tally: Tally
    """The statistics of all machines."""

    def quantile(self, what: str, share: float) -> float:
        """Return a quantile of ``ttft``, ``tpot`` or ``finished``, in seconds."""
        values = np.frombuffer(getattr(self.tally, what), np.float32)
        return float(np.quantile(values, share)) if len(values) else 0.0

    @property
    def requests(self) -> int:
        """Number of answered requests."""
        return len(self.tally.ttft)

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second."""
        return self.tally.written / self.seconds

    @property
    def good(self) -> float:
        """Share of the requests that met the TTFT and TPOT goals."""
        return self.tally.good / max(1, self.requests)

    @property
    def goodput(self) -> float:
        """Requests a second that met the TTFT and TPOT goals."""
        return self.tally.good / self.seconds

    @property
    def used(self) -> float:
        """Share of the machines' time in use."""
        tally = self.tally
        return (tally.busy_s + tally.host_s) / (self.seconds * self.scenario.machines)

    @property
    def kv_mean(self) -> float:
        """Mean bytes of KV caches of a machine while it is busy."""
        return self.tally.kv_s / max(1e-9, self.tally.busy_s + self.tally.host_s)

    @property
    def bounds(self) -> dict[str, float]:
        """Share of the machines' time by bound; ``host`` and ``idle`` among them."""
        whole = self.seconds * self.scenario.machines
        found = {name: s / whole for name, s in sorted(self.tally.bound_s.items())}
        found["host"] = self.tally.host_s / whole
        found["idle"] = max(0.0, 1.0 - sum(found.values()))
        return found


def simulate(scenario: Scenario, processes: int | None = None) -> Result:
    """Simulate a scenario; processes: by default one for each core, where that pays."""
    shards = scenario.shards
    count = processes if processes is not None else min(shards, os.cpu_count() or 1)
    if scenario.count < 2000 and processes is None:
        count = 1
    if count <= 1:
        tallies = [run_shard(scenario, n) for n in range(shards)]
    else:
        import multiprocessing

        with multiprocessing.get_context("spawn").Pool(count, end_with_parent) as pool:
            work = [(scenario, n) for n in range(shards)]
            tallies = pool.starmap(run_shard, work, chunksize=1)
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return Result(scenario, max(whole.last_s - whole.first_s, 1e-9), whole)


def run_shard(scenario: Scenario, number: int) -> Tally:
    """Simulate one shard of the fleet: its machines, and their part of the conversations."""
    clock = _clock(scenario)
    machines = [
        SimulatedMachine(clock, scenario.policy, scenario.goals, exact=scenario.exact)
        for _ in _machines(scenario, number)
    ]
    chance = random.Random(scenario.seed * 1_000_003 + number)
    turns = itertools.cycle(machines)
    for program, at in zip(_programs(scenario, number), _arrivals(scenario, number), strict=True):
        _choose(machines, scenario.route, chance, turns, at).arrive(program, at)
    whole = Tally()
    for machine in machines:
        whole.add(machine.finish())
    return whole


_CLOCKS: list[tuple[Forecaster, Corrections, Clock]] = []  # of this process: they learn by use


def _clock(scenario: Scenario) -> Clock:
    """Return the clock of this model on this machine; its cache serves all shards."""
    for forecaster, seen, clock in _CLOCKS:
        if forecaster == scenario.forecaster and seen == scenario.seen:
            return clock
    del _CLOCKS[:-3]
    clock = Clock(scenario.forecaster, scenario.seen)
    _CLOCKS.append((scenario.forecaster, scenario.seen, clock))
    return clock


def _machines(scenario: Scenario, number: int) -> range:
    """Return the numbers of a shard's machines."""
    return range(number, scenario.machines, scenario.shards)


def _count(scenario: Scenario, number: int) -> int:
    """Return the conversations of a shard: each machine's part of them."""
    whole = len(scenario.programs) if scenario.in_order else scenario.count
    of_each = (len(range(m, whole, scenario.machines)) for m in _machines(scenario, number))
    return sum(of_each)


def _programs(scenario: Scenario, number: int) -> Iterator[Program]:
    count, seed = _count(scenario, number), scenario.seed * 65_537 + number
    if scenario.in_order:
        machines, shards = scenario.machines, scenario.shards
        listed = enumerate(scenario.programs)
        return (one for n, one in listed if n % machines % shards == number)
    if scenario.mix is not None:
        return scenario.mix.draw(count, seed)
    return repeated(scenario.programs, count, seed)


def _arrivals(scenario: Scenario, number: int) -> Iterator[float]:
    """Draw arrivals: the shards' Poisson processes together are one of the whole rate."""
    seed = scenario.seed * 65_537 + number
    part = len(_machines(scenario, number)) / scenario.machines
    return arrivals(_count(scenario, number), scenario.rate * part, seed)


def _choose(
    machines: Sequence[SimulatedMachine],
    route: Route,
    chance: random.Random,
    turns: Iterator[SimulatedMachine],
    at: float,
) -> SimulatedMachine:
    """Choose the machine for a conversation that arrives at this time."""
    if len(machines) == 1:
        return machines[0]
    if route == "turns":
        return next(turns)
    one = machines[int(chance.random() * len(machines))]
    if route == "random":
        return one
    other = machines[int(chance.random() * len(machines))]
    for machine in (one, other):
        machine.advance(at)
    return one if one.load <= other.load else other
