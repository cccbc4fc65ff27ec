"""Calibration: how close a model's kernels come to this machine's limits, measured in seconds.

Six kinds of passes, each for the figure that it shows best (`Efficiency`):

    1 token, little cache       share of the bandwidth that products read at; dispatch; rows
    1 token, a long cache       the same of attention
    4 tokens                    dispatch in a prefill
    16 tokens                   cost of unpacking weights, apart from that of each token
    some hundred tokens         share of the peak that products reach; rows; waiting
    128 tokens, a long cache    the same of attention

The limits are sampled beside every pass: shares are of what the machine could do just then. The
bandwidth of a machine with neighbors moves within minutes, so the limits that a prediction is
made with matter more than these shares; `Calibration.machine` has those of its own time.
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Sequence
from pathlib import Path

from .calibration import Calibration, busy, load, path_of, save, slowed
from .calibration_fit import Sample, fastest, fit, steady, together
from .latency_model import Efficiency, Passes, estimate
from .machine import RooflineProbe, log, now
from .timed_passes import Case, PassTimer

DEPTH = 1024  # positions in the cache for what is measured with a long one
DECODES = 8  # passes of one token that are timed together
REPEATS = 9
QUICK_REPEATS = 3
LONG_S = 2.0  # of one measurement: one is enough, caches and noise are a small part of it
RETRY_S = 600.0  # until a calibration that was disturbed is made again
CHEAP_S = 0.3  # of passes: a calibration that takes no longer is done unasked
TRIES = 4  # to measure between two alike, and of a calibration that other work disturbs


class Sampler:
    """A timer of passes that also measures the machine's limits around each pass."""

    def __init__(
        self, timer: PassTimer, cases: Sequence[Case], limits: RooflineProbe | None = None
    ) -> None:
        """Prepare the cases; raises `SettingError` if one does not fit the context."""
        self.timer = timer
        self.limits = limits or timer.probe()
        timer.prepare(cases)

    def take(self, case: Case, repeat: int, tries: int = 1) -> list[Sample]:
        """Time a case `repeat` times in a row, after a warm-up.

        What takes longer than `LONG_S` is measured once. Where the limits were others afterwards
        than before, all is done again, up to so many `tries`.
        """
        first = self.timer.time(case).seconds
        while True:
            before = self.limits.sample()
            if first < LONG_S:
                self.timer.time(case)  # the probes have had the caches
            taken = [self._once(case) for _ in range(repeat if first < LONG_S else 1)]
            after, tries = self.limits.sample(), tries - 1
            if steady(before, after) or not tries:
                break
        around = before.merged(after)
        return [dataclasses.replace(s, machine=around, before=before) for s in taken]

    def spread(self, case: Case) -> float:
        """Measure how differently the tokens of a prefill choose their experts: see `ModelCost`."""
        model, used = self.timer.cost, self.timer.time(case).experts
        if not model.experts or used is None or case.prompt < 2:
            return 1.0
        return model.diversity(case.prompt, used)

    def _once(self, case: Case) -> Sample:
        found = self.timer.time(case)
        start = case.start + (case.generate - 1) // 2 if case.generate else case.start
        tokens = 1 if case.generate else case.prompt
        wall_s = found.seconds / (case.generate or 1)
        forecast = found.predicted_s / found.seconds
        return Sample(
            tokens, start, dict(found.parts), wall_s, self.limits.samples[-1], forecast=forecast
        )


def case(tokens: int, start: int) -> Case:
    """Return the case for `tokens` tokens at context `start`: single ones are decoded."""
    if tokens == 1:
        return Case(generate=DECODES, depth=start)
    return Case(prompt=tokens, depth=start)


def calibrated(
    timer: PassTimer, *, recalibrate: bool = False, folder: Path | None = None
) -> Calibration:
    """Return the calibration of this model on this machine; measure it if none is saved.

    What was measured at a lower peak than usual is not kept. What other work disturbed is kept, and
    measured again by later calls, `TRIES` times in all at most.
    """
    path = path_of(timer.cost, timer.machine, timer.kv, folder)
    known = None if recalibrate else load(path)
    tries = 0 if known is None or known.quick else known.machine.samples
    if known is not None and tries >= (TRIES if known.machine.doubtful else 1):
        return known
    log.info(
        "measuring what kernels reach with %s (kept for later runs, about %.0f s) …",
        *(timer.name, max(1.0, _roughly_s(timer, REPEATS))),
    )
    found = calibrate(timer)
    limits = dataclasses.replace(found.machine, samples=tries + 1)
    found = dataclasses.replace(found, machine=limits)
    timer.use(found)
    if not slowed(found, timer.machine):
        save(found, path)
    return found


def quick_calibrate(timer: PassTimer, folder: Path | None = None) -> Calibration | None:
    """Return the saved calibration, or a quick one where that takes about half a second.

    None where it would take longer: `calibrated` does it then. One that other work disturbed
    serves for a few minutes.
    """
    path = path_of(timer.cost, timer.machine, timer.kv, folder)
    known = load(path)
    if known is not None and busy(known, timer.machine):
        known = known if _age_s(known) < RETRY_S else None
    if known is None and _roughly_s(timer) < CHEAP_S:
        known = dataclasses.replace(calibrate(timer, repeat=QUICK_REPEATS), quick=True)
        save(known, path)
    timer.use(known)
    return known


def _age_s(found: Calibration) -> float:
    return time.time() - datetime.datetime.fromisoformat(found.date).timestamp()


def _roughly_s(timer: PassTimer, repeats: int = QUICK_REPEATS) -> float:
    """Estimate the seconds of a calibration's passes on typical kernels."""
    model, usual = timer.cost, Passes(512, 16, 5 * timer.cost.layers, 10 * timer.cost.layers)
    points = [(1, DEPTH)] * 2 * DECODES + [(4, 0), (16, 0), (128, DEPTH), (256, 0)]
    once = sum(
        estimate(model, timer.machine, Efficiency(), usual, *point).seconds for point in points
    )
    return (repeats + 2) * once + estimate(
        model, timer.machine, Efficiency(), usual, DEPTH, 0
    ).seconds


def calibrate(
    timer: PassTimer, limits: RooflineProbe | None = None, repeat: int = REPEATS
) -> Calibration:
    """Calibrate a model's kernels: a few seconds for half a billion parameters."""
    room = timer.context - DECODES - 2
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
    sampler = Sampler(timer, points, limits)
    spread = sampler.spread(case(min(16, many), 0)) if timer.cost.experts else 1.0
    model = dataclasses.replace(timer.cost, expert_diversity=spread)
    taken: dict[Case, list[Sample]] = {}
    for point in sorted(points, key=lambda c: -c.depth):  # the cache is filled once
        taken[point] = sampler.take(point, repeat, TRIES if repeat > QUICK_REPEATS else 1)
    machines = [samples[0].machine for samples in taken.values()]
    best = together(machines)
    found = [fastest(taken[point], best) for point in points]
    return Calibration(
        model=timer.name,
        efficiency=fit(model, timer.passes, found),
        expert_diversity=spread,
        passes=timer.passes,
        machine=best,
        date=now(),
        steady=min(m.int8_gops for m in machines) / max(m.int8_gops for m in machines),
    )
