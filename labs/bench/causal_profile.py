"""Causal profiling: halve each resource, and compare the largest effect with the named bound.

At each point of a grid a pass is timed as it is and with half of the bytes, half of the products,
or half of the barriers (`perturbed_graph.py`), in turns. The resource whose half takes the most off
the time is what the pass was bound by; the bound that the stamps of the unchanged pass named is
validated against it. A point agrees when no other resource moves the time more than the named one
does, by more than the noise: `TIE` of the pass's time, or two standard errors of the difference.
"""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from triplepoint.errors import EngineError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.engine.engine_timer import all_threads, parts_of
from triplepoint.runtime.engine.passes.request import Request
from triplepoint.runtime.physics.costs import Bound, PassCost, part_times, pass_cost
from triplepoint.runtime.physics.latency_model import attainable
from triplepoint.runtime.physics.machine import RooflineProbe
from triplepoint.runtime.physics.observation import Observation, observe

from .perturbed_graph import Perturbation, PerturbedGraph, perturbed

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.model.plan import Plan
    from triplepoint.runtime.engine.session import Session
    from triplepoint.runtime.physics.machine import MachineProfile

TIE = 0.03  # of the time: what two resources differ by less is a tie
NAMES: tuple[Perturbation, ...] = ("", "control", "memory", "compute", "dispatch")
AGAINST: dict[Bound, Perturbation] = {"memory": "control", "compute": "control", "dispatch": ""}
SINGLES = 8  # passes of one token that are timed together, as many positions on
MIN_ROUNDS, MAX_ROUNDS = 3, 15
ROUNDS_S = 1.5  # of a point, if that makes no fewer than the least


@dataclass(frozen=True)
class Point:
    """One point of the grid.

    Attributes:
        seconds: of the pass as it is, the median of the rounds.
        effects: share of the time that half of a resource takes off; noise: its standard error.
        seen: what the stamps of the unchanged passes say; its `bound` is what is tested.
        parts: seconds of a thread in products, head, attention and rows, a pass.
        machine: the limits around the point.
        rounds: seconds of a pass in each round, by what was halved.
    """

    tokens: int
    start: int
    seconds: float
    effects: Mapping[Bound, float]
    noise: Mapping[Bound, float]
    seen: Observation
    parts: Mapping[str, float]
    machine: MachineProfile
    rounds: Mapping[str, Sequence[float]]

    @property
    def most(self) -> Bound:
        """The resource whose halving saves the most."""
        return max(self.effects, key=lambda name: self.effects[name])

    @property
    def agrees(self) -> bool:
        """Whether no resource moves the time more than the named one, within noise."""
        top, bound = self.most, self.seen.bound
        both = (self.noise[top] ** 2 + self.noise[bound] ** 2) ** 0.5
        return self.effects[top] - self.effects[bound] <= max(TIE, 2 * both)


def measure(
    engine: Engine, points: Sequence[tuple[int, int]], limits: RooflineProbe | None = None
) -> Iterator[Point]:
    """Time each of `points`, tokens and cached positions, with each resource halved.

    More tokens than a pass takes are several; the first and the last stand for all of them.

    Raises:
        EngineError: a point does not fit the context.
    """
    most = max(tokens + start for tokens, start in points) + SINGLES
    if most > engine.context:
        raise EngineError(f"{most} positions do not fit a context of {engine.context}")
    limits = limits or RooflineProbe(engine.loaded.library, engine.loaded.pool)
    session = engine.session(context=most)
    _fill(session, most)
    with engine.loaded.lock, all_threads(engine):
        for tokens in dict.fromkeys(tokens for tokens, _ in points):
            turns = _Turns(session, min(tokens, session.phases.max_tokens))
            for start in (start for n, start in points if n == tokens):
                yield _point(engine, turns, tokens, start, limits)


class _Turns:
    """Passes of one size, run in turns.

    Attributes:
        max_tokens: tokens of a pass at most.
        measured: what the passes of each plan took.
    """

    def __init__(self, session: Session, tokens: int) -> None:
        self.plans: dict[Perturbation, Plan[PerturbedGraph]] = {
            name: perturbed(session, name, tokens) for name in NAMES
        }
        self.measured = session.sequence.measured
        session.phases.metrics.reset()  # they count the experts of each layer
        self.max_tokens = tokens
        self._session = session
        self._pages = session.sequence.cache.pages.copy()
        self._shared = self._pages.copy()  # neighboring pages are one
        self._shared[1::2] = self._shared[: len(self._shared) - 1 : 2][: len(self._shared) // 2]
        chance = np.random.default_rng(1)
        self._ids = chance.integers(0, session.phases.core.loaded.outputs.n_vocab, tokens).tolist()

    def run(self, name: Perturbation, todo: Sequence[tuple[int, int, int]]) -> float:
        """Return the seconds of passes of (tokens, start, outputs)."""
        sequence, plan = self._session.sequence, self.plans[name]
        phases = self._session.phases
        scheduler = phases.core.scheduler
        sequence.cache.pages[:] = self._shared if name == "memory" else self._pages
        twice = name == "dispatch"  # its tape holds a pass twice
        if twice and todo[0][0] == 1:
            todo = todo[::2]
        started = time.perf_counter()
        for tokens, start, outputs in todo:  # as `Prefill.run` does, its accounts included
            sequence.n_cached = start
            result = scheduler.run_on(plan, Request(sequence, start, self._ids[:tokens], outputs))
            phases.metrics.cost(result, start)
        seconds = time.perf_counter() - started
        return seconds / 2 if twice and todo[0][0] > 1 else seconds


def _point(engine: Engine, turns: _Turns, tokens: int, start: int, limits: RooflineProbe) -> Point:
    todo = _passes(tokens, start, turns.max_tokens)
    before = limits.sample()
    first = {name: turns.run(name, todo) for name in NAMES}
    count = int(ROUNDS_S / sum(first.values()))
    count = min(MAX_ROUNDS, max(MIN_ROUNDS, count))
    whole = turns.plans[""]
    times = turns.measured[whole]
    stamps: list[dict[str, float]] = []
    rounds: dict[Perturbation, list[float]] = {name: [] for name in NAMES}
    for _ in range(count):
        times.reset()
        for name in NAMES:
            rounds[name].append(turns.run(name, todo))
        stamps.append(parts_of({whole: times}, engine.loaded.pool.active))
    machine = before.merged(limits.sample())
    effects: dict[Bound, float] = {}
    noise: dict[Bound, float] = {}
    for bound in AGAINST:
        effects[bound], noise[bound] = _effect(rounds, bound)
    cost = _cost(engine, whole, todo)
    # Of the round in the middle: one that lost its core says nothing of the others.
    middle = sorted(range(count), key=lambda n: rounds[""][n])[count // 2]
    wall, spent = rounds[""][middle], stamps[middle]
    parts = {name: value / len(todo) for name, value in spent.items()}
    _, reached = engine.loaded.attained
    times = part_times(cost, engine.loaded.cost, machine, len(todo))
    minimum, rates = times.minimum, attainable(times, reached)
    return Point(
        tokens,
        start,
        statistics.median(rounds[""]) / len(todo),
        effects,
        noise,
        observe(minimum, wall, sum(parts.values()) * len(todo), rates, parts["rows"] * len(todo)),
        parts,
        machine,
        {name or "whole": [s / len(todo) for s in found] for name, found in rounds.items()},
    )


def _passes(tokens: int, start: int, most: int) -> list[tuple[int, int, int]]:
    if tokens == 1:
        return [(1, start + n, 1) for n in range(SINGLES)]
    if tokens <= most:
        return [(tokens, start, 1)]
    return [(most, start, 0), (most, start + tokens - most, 1)]


def _effect(rounds: Mapping[Perturbation, Sequence[float]], bound: Bound) -> tuple[float, float]:
    """Return the gain of half a resource: the median over the rounds, and its standard error."""
    pairs = zip(rounds[bound], rounds[AGAINST[bound]], strict=True)
    found = [1.0 - half / whole for half, whole in pairs]
    middle = statistics.median(found)
    spread = 1.48 * statistics.median(abs(value - middle) for value in found)
    return middle, 1.25 * spread / len(found) ** 0.5


def _cost(
    engine: Engine, whole: Plan[PerturbedGraph], todo: Sequence[tuple[int, int, int]]
) -> PassCost:
    """Count the unchanged passes together."""
    tile, barriers = engine.loaded.attention_tile, whole.tape.barriers
    counts = [int(count[0]) for count in whole.graph.experts_hit]  # of the last pass
    read = float(sum(counts)) if counts and not whole.graph.decode else None
    total = PassCost()
    for tokens, start, outputs in todo:
        total += pass_cost(engine.loaded.cost, tokens, start, outputs, barriers, tile, read)
    return total


def _fill(session: Session, positions: int) -> None:
    """Create pages for so many positions, and write to them: untouched ones are one zero page."""
    cache = session.sequence.cache
    cache.reserve(positions)
    for address in cache.pages[: -(-positions // PAGE)].tolist():
        page = (ctypes.c_uint8 * cache.page_bytes).from_address(address)
        np.ctypeslib.as_array(page)[:] = 0x3C  # small numbers in every format


def as_fields(point: Point) -> dict[str, object]:
    """Return a point as plain numbers, for JSON."""
    return {
        **dataclasses.asdict(point),
        "bound": point.seen.bound,
        "most": point.most,
        "agrees": point.agrees,
    }
