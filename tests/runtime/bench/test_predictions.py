"""Predictions validated against the clock, on the embedded model."""

from __future__ import annotations

import dataclasses
from itertools import chain, repeat

import pytest

from triplepoint import Engine
from triplepoint.runtime.bench import predictions
from triplepoint.runtime.bench.calibration import Sampler, case
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.physics.roofline_probe import RooflineProbe


class Moments(RooflineProbe):
    """A machine whose arithmetic peak is another at each look."""

    def __init__(self, engine: Engine, peaks: list[float]) -> None:
        super().__init__(engine.library, engine.pool)
        self._known = super().sample()
        self.samples.clear()
        self._next = chain(peaks, repeat(peaks[-1]))

    def sample(self, repeats: int = 1) -> MachineProfile:
        now = dataclasses.replace(self._known, int8_gops=next(self._next))
        self.samples.append(now)
        return now


@pytest.mark.slow
def test_each_point_is_held_against_the_clock(engine: Engine, found: Calibration) -> None:
    """Each point once, the deepest first, with what was expected of just this point."""
    points = [(1, 0), (9, 40), (9, 0), (1, 40)]
    checked = list(predictions.check(engine, found, points, repeat=1))

    assert [(c.tokens, c.start) for c in checked] == [(1, 40), (9, 40), (1, 0), (9, 0)]
    for point in checked:
        assert point.expected.tokens == point.tokens
        assert point.error == point.expected.seconds / point.seconds - 1
        assert point.bound in ("compute", "memory", "dispatch")


@pytest.mark.slow
def test_the_limits_of_the_moment_count(engine: Engine, found: Calibration) -> None:
    """With half of the peak a pass of many tokens is expected to take longer, but for the kept."""
    fast, slow = (
        next(predictions.check(engine, found, [(300, 0)], 1, Moments(engine, [peak])))
        for peak in (found.machine.int8_gops, found.machine.int8_gops / 2)
    )
    assert slow.expected.products_s == pytest.approx(2 * fast.expected.products_s, rel=0.1)
    assert slow.kept == fast.kept
    assert slow.int8_gops == fast.int8_gops / 2


@pytest.mark.slow
def test_what_lies_between_two_machines_is_measured_again(engine: Engine) -> None:
    """Until the limits before and after are alike, but no more often than was said."""
    todo = case(4, 0)
    limits = Moments(engine, [100.0, 200.0, 200.0, 190.0])
    taken = Sampler(engine, [todo], limits).take(todo, 2, tries=3)
    assert len(limits.samples) == 4
    assert len(taken) == 2
    assert all(s.before is not None and s.before.int8_gops == 200.0 for s in taken)

    limits = Moments(engine, [100.0, 200.0] * 9)
    Sampler(engine, [todo], limits).take(todo, 2, tries=3)
    assert len(limits.samples) == 6
