"""What a model's kernels reach of this machine's limits, measured in a few seconds and kept.

Six kinds of passes, each for the figure that it shows best (`Efficiency`):

    1 token, little cache       share of the bandwidth that products read at; dispatch; rows
    1 token, a long cache       the same of attention
    4 tokens                    dispatch in a prefill
    16 tokens                   what it costs to unpack weights, beside what each token does
    some hundred tokens         share of the peak that products reach; rows; waiting
    128 tokens, a long cache    the same of attention

The limits are sampled beside every pass: shares are of what the machine could do just then. The
bandwidth of a machine with neighbors moves within minutes, so the limits that a prediction is
made with matter more than these shares; `Calibration.machine` has those of its own time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..physics.calibration import Calibration, busy, load, path_of, save, slowed
from ..physics.calibration_fit import Sample, fastest, fit, steady, together
from ..physics.latency_model import Efficiency, Passes, estimate
from ..physics.machine import log
from ..physics.roofline_probe import RooflineProbe
from .runner import Case, Runner, part_of

if TYPE_CHECKING:
    from ...jit.tape import TapeTimes
    from ..inference.engine import Engine
    from ..inference.plan import Plan

DEPTH = 1024  # positions in the cache for what is measured with a long one
DECODES = 8  # passes of one token that are timed together
REPEATS = 9
QUICK_REPEATS = 3
LONG_S = 2.0  # of one measurement: one is enough, caches and noise are a small part of it
RETRY_S = 600.0  # until a calibration that was disturbed is made again
DATE = "%Y-%m-%dT%H:%M:%SZ"
CHEAP_S = 0.3  # of passes: a calibration that takes no longer is done unasked
TRIES = 4  # to measure between two alike, and of a calibration that other work disturbs


@contextlib.contextmanager
def all_threads(engine: Engine) -> Iterator[None]:
    """Every pass is run by all threads, and nothing is corrected meanwhile."""
    tuning, fixed = engine.tuning, engine.tuning.fixed
    always = tuning._always
    tuning.fixed = dataclasses.replace(fixed, threads=engine.threads, adaptive=False)
    tuning._always = engine.threads
    try:
        yield
    finally:
        tuning.fixed, tuning._always = fixed, always


class Sampler:
    """Times passes of an engine and takes the limits beside them."""

    def __init__(
        self, engine: Engine, cases: Sequence[Case], limits: RooflineProbe | None = None
    ) -> None:
        """Raises `EngineError` if a case does not fit the context."""
        self.engine = engine
        self.limits = limits or RooflineProbe(engine.library, engine.pool)
        self._runner = Runner(engine, cases)

    @property
    def passes(self) -> Passes:
        """How the engine cuts its work."""
        session, plans = self._runner.session, self.engine.plans
        return Passes(
            chunk=session.most_tokens,
            tile=self.engine.attention_tile,
            decode_barriers=plans.decode.tape.barriers,
            prefill_barriers=plans.prefill.tape.barriers,
        )

    def take(self, case: Case, repeat: int, tries: int = 1) -> list[Sample]:
        """Measure so many times in a row, after one time that does not count.

        What takes longer than `LONG_S` is measured once. Where the limits were others afterwards
        than before, all is done again, up to so many `tries`.
        """
        with all_threads(self.engine):
            first = self._runner.measure(case)
            while True:
                before = self.limits.sample()
                if first < LONG_S:
                    self._runner.measure(case)  # the probes have had the caches
                taken = [self._once(case) for _ in range(repeat if first < LONG_S else 1)]
                after, tries = self.limits.sample(), tries - 1
                if steady(before, after) or not tries:
                    break
        around = before.merged(after)
        return [dataclasses.replace(s, machine=around, before=before) for s in taken]

    def spread(self, case: Case) -> float:
        """How differently the tokens of a prefill choose their experts: see `ModelCost`."""
        model = self.engine.cost
        self._runner.measure(case)
        phase = self._runner.session.last_phase
        assert phase is not None, "a phase has just ended"
        if not model.experts or phase.experts is None or case.prompt < 2:
            return 1.0
        left = max(0.5 / model.experts, 1.0 - phase.experts / model.experts)
        choosing = math.log(left) / math.log(1.0 - model.experts_used / model.experts)
        return min(1.0, max(0.0, (choosing - 1.0) / (case.prompt - 1)))

    def _once(self, case: Case) -> Sample:
        seconds = self._runner.measure(case)
        session = self._runner.session
        phase = session.last_phase
        assert phase is not None, "a phase has just ended"
        each = 1.0 / phase.passes if case.generate else 1.0
        active_threads = session.metrics.spent().active_threads
        found = parts_of(session.measured, active_threads)
        parts = {name: seconds * each for name, seconds in found.items()}
        start = case.start + (case.generate - 1) // 2 if case.generate else case.start
        tokens = 1 if case.generate else case.prompt
        machine = self.limits.samples[-1]
        return Sample(tokens, start, parts, seconds / (case.generate or 1), machine)


_PARTS = ("products", "head", "attention", "rows")


def parts_of(measured: Mapping[Plan[Any], TapeTimes], active_threads: float) -> dict[str, float]:
    """Seconds that each of `active threads` threads was in each part, in a session's passes."""
    parts: dict[str, float] = dict.fromkeys(_PARTS, 0.0)
    for plan, times in measured.items():
        work = times.work_seconds().sum(axis=0) / active_threads
        for op, value in zip(plan.graph.tape.ops, work, strict=True):
            parts[_part(op.kernel.source.name, op.name)] += float(value)
    return parts


def _part(kernel: str, op: str) -> str:
    """The part of an `LatencyEstimate` that an op belongs to."""
    part = part_of(kernel)
    if part == "products":
        return "products" if op.startswith("blk.") else "head"
    return part if part == "attention" else "rows"


def case(tokens: int, start: int) -> Case:
    """The benchmark's case for `tokens` tokens at context `start`: single ones are decoded."""
    if tokens == 1:
        return Case(generate=DECODES, depth=start)
    return Case(prompt=tokens, depth=start)


def calibrated(
    engine: Engine, *, recalibrate: bool = False, folder: Path | None = None
) -> Calibration:
    """What was measured for this model on this machine; measured now where nothing is kept.

    What was measured at a lower peak than usual is not kept. What other work disturbed is kept, and
    measured again by later calls, `TRIES` times in all at most.
    """
    path = path_of(engine.cost, engine.machine, engine.kv, folder)
    known = None if recalibrate else load(path)
    tries = 0 if known is None or known.quick else known.machine.samples
    if known is not None and tries >= (TRIES if known.machine.doubtful else 1):
        return known
    log.info(
        "measuring what kernels reach with %s (kept for later runs, about %.0f s) …",
        *(engine.model.name, max(1.0, _roughly_s(engine, REPEATS))),
    )
    found = calibrate(engine)
    limits = dataclasses.replace(found.machine, samples=tries + 1)
    found = dataclasses.replace(found, machine=limits)
    engine.apply_calibration(found)
    if not slowed(found, engine.machine):
        save(found, path)
    return found


def quick_calibrate(engine: Engine, folder: Path | None = None) -> Calibration | None:
    """What is kept of this model, or a quick measurement where that takes about half a second.

    None where it would take longer: `calibrated` does it then. One that other work disturbed
    serves for a few minutes.
    """
    path = path_of(engine.cost, engine.machine, engine.kv, folder)
    known = load(path)
    if known is not None and busy(known, engine.machine):
        known = known if _age_s(known) < RETRY_S else None
    if known is None and _roughly_s(engine) < CHEAP_S:
        known = dataclasses.replace(calibrate(engine, repeat=QUICK_REPEATS), quick=True)
        save(known, path)
    if known is None or known == engine.calibration:
        engine.calibration = known
    else:  # the settings were chosen without it when the model was loaded
        engine.apply_calibration(known)
    return known


def _age_s(found: Calibration) -> float:
    return time.time() - datetime.datetime.fromisoformat(found.date).timestamp()


def _roughly_s(engine: Engine, repeats: int = QUICK_REPEATS) -> float:
    """Seconds of the passes of a calibration on kernels as they usually are."""
    model, usual = engine.cost, Passes(512, 16, 5 * engine.cost.layers, 10 * engine.cost.layers)
    points = [(1, DEPTH)] * 2 * DECODES + [(4, 0), (16, 0), (128, DEPTH), (256, 0)]
    once = sum(
        estimate(model, engine.machine, Efficiency(), usual, *point).seconds for point in points
    )
    return (repeats + 2) * once + estimate(
        model, engine.machine, Efficiency(), usual, DEPTH, 0
    ).seconds


def calibrate(
    engine: Engine, limits: RooflineProbe | None = None, repeat: int = REPEATS
) -> Calibration:
    """Measure; a few seconds for a model of half a billion parameters."""
    room = engine.context - DECODES - 2
    depth = min(DEPTH, room // 2)
    many = min(256, room)
    points = [
        case(1, 0),
        case(1, depth),
        case(4, 0),
        case(min(16, room), 0),
        case(min(128, max(1, room - depth)), depth),
        case(many, 0),
    ]
    sampler = Sampler(engine, points, limits)
    spread = sampler.spread(case(min(16, many), 0)) if engine.cost.experts else 1.0
    model = dataclasses.replace(engine.cost, expert_diversity=spread)
    taken: dict[Case, list[Sample]] = {}
    for point in sorted(points, key=lambda c: -c.depth):  # the cache is filled once
        taken[point] = sampler.take(point, repeat, TRIES if repeat > QUICK_REPEATS else 1)
    machines = [samples[0].machine for samples in taken.values()]
    found = [fastest(taken[point]) for point in points]
    return Calibration(
        model=engine.model.name,
        efficiency=fit(model, sampler.passes, found),
        expert_diversity=spread,
        passes=sampler.passes,
        machine=together(machines),
        date=time.strftime(DATE, time.gmtime()),
        steady=min(m.int8_gops for m in machines) / max(m.int8_gops for m in machines),
    )
