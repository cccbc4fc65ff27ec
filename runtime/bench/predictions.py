"""Validation of predicted latencies: each point is predicted, then measured.

The limits are probed just before, since those of another minute may not hold; what kernels reach of
them is the calibration's. A point that lies between two different machines, because the limits
changed while it was measured, is measured again a few times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.engine_timer import EngineTimer
from ..physics.calibrate import TRIES, Sampler, case
from ..physics.observation import observe

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..physics.calibration import Calibration
    from ..physics.latency_model import LatencyEstimate
    from ..physics.machine import MachineProfile, RooflineProbe


@dataclass(frozen=True, slots=True)
class Checked:
    """A phase that was predicted, then measured."""

    tokens: int
    start: int
    expected: LatencyEstimate
    """Prediction with the limits probed just before, and the calibrated efficiency."""
    seconds: float
    """Measured seconds, the median of the repeats."""
    bound: str
    """The observed bound, from time stamps."""
    dram_gbps: float = 0.0
    int8_gops: float = 0.0
    """DRAM bandwidth and int8 peak probed just before."""
    phase_errors: tuple[float, ...] = ()
    """Relative errors of the engine's own predictions of repeats that were not contended."""

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.1 for 10 % too much."""
        return self.expected.seconds / self.seconds - 1


def check(
    engine: Engine,
    found: Calibration,
    points: Sequence[tuple[int, int]],
    repeat: int = 3,
    limits: RooflineProbe | None = None,
) -> Iterator[Checked]:
    """Measure points (tokens, KV length), and compare them with their predictions.

    Raises:
        EngineError: a point does not fit the context.
    """
    cases = {case(*point): point for point in points}
    sampler = Sampler(EngineTimer(engine), list(cases), limits)
    for todo in sorted(cases, key=lambda c: (-c.depth, cases[c])):  # the cache is filled once
        samples = sampler.take(todo, repeat, TRIES)
        middle = sorted(samples, key=lambda s: s.wall_s)[len(samples) // 2]
        before = middle.before or middle.machine
        expected = found.estimate(
            engine.loaded.cost, middle.tokens, middle.start, probed(found, before)
        )
        rows_s = middle.parts["rows"]
        seen = observe(expected.least, middle.wall_s, middle.kernel_s, expected.attained, rows_s)
        yield Checked(
            *cases[todo],
            expected,
            middle.wall_s,
            seen.bound,
            before.read_gbps["DRAM"],
            before.int8_gops,
            tuple(s.forecast - 1 for s in samples if s.forecast),
        )


def probed(found: Calibration, now: MachineProfile) -> MachineProfile:
    """Return the calibration's machine profile with newly probed limits.

    A neighbor may take memory's bandwidth, the last cache, or the other half of a core, within
    minutes. What a barrier costs is the calibration's own.
    """
    return dataclasses.replace(
        found.machine,
        read_gbps=now.read_gbps,
        int8_gops=now.int8_gops,
        bf16_gflops=now.bf16_gflops,
        fp32_gflops=now.fp32_gflops,
    )
