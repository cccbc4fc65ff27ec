"""A made-up machine and a model on it, and a clock whose passes take what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triplepoint.runtime.physics.costs import Part
from triplepoint.runtime.physics.latency_model import Efficiency
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.planning.clock import Clock, Corrections, Timed
from triplepoint.runtime.planning.forecaster import Forecaster, of_name

MACHINE = MachineProfile(
    "made up",
    8,
    "avx512-bf16",
    8,
    {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
    {"L1": 2000.0, "L2": 1000.0, "L3": 400.0, "DRAM": 60.0},
    4000.0,
    800.0,
    1600.0,
    1e-6,
)


def forecaster(name: str = "qwen3:0.6b") -> Forecaster:
    """A known model on the made-up machine."""
    found = of_name(name, MACHINE, reached=Efficiency())
    assert found is not None
    return found


class FixedClock(Clock):
    """A pass takes what a function of its rows says, and the host nothing."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        super().__init__(forecaster(), Corrections(pass_s=0.0, row_s=0.0))
        self._seconds = seconds

    def pass_s(self, tokens: int, start: int) -> float:
        """By rows."""
        return self._seconds(tokens)

    def seconds(self, parts: Sequence[Part]) -> Timed:
        """By rows."""
        return self._seconds(sum(part[0] for part in parts)), {"memory": 0.75, "compute": 0.25}
