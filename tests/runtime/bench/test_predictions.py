"""Predictions validated against the clock, on the embedded model."""

from __future__ import annotations

import dataclasses
from itertools import chain, repeat

import pytest

from triplepoint import Engine
from triplepoint.runtime.bench import predictions
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.machine import MachineProfile, RooflineProbe


class Moments(RooflineProbe):
    """A machine whose arithmetic peak is another at each look."""

    def __init__(self, engine: Engine, peaks: list[float]) -> None:
        super().__init__(engine.loaded.library, engine.loaded.pool)
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
    """With half of the peak a pass of many tokens is expected to take longer."""
    fast, slow = (
        next(predictions.check(engine, found, [(300, 0)], 1, Moments(engine, [peak])))
        for peak in (found.machine.int8_gops, found.machine.int8_gops / 2)
    )
    assert slow.expected.products_s == pytest.approx(2 * fast.expected.products_s, rel=0.1)
    assert slow.int8_gops == fast.int8_gops / 2
