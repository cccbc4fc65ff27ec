"""This machine's limits, measured again and again beside what is validated against them.

A limit that was measured an hour ago says little on a machine with neighbors: a peak moves within
minutes. `RooflineProbe` keeps its probes loaded, so one `sample` takes a few hundredths of a second
and can stand before and after everything that is timed.
"""

from __future__ import annotations

from ...jit.compile import Library
from ...jit.pool import Pool
from .machine import RUNS, MachineProfile, Probes


class RooflineProbe(Probes):
    """The probes, loaded for many samples.

    Attributes:
        samples: every sample taken so far.
    """

    def __init__(self, library: Library, pool: Pool) -> None:
        super().__init__(library, pool, ("int8", "w8a8", "fp32"))
        self.samples: list[MachineProfile] = []

    def sample(self, repeats: int = RUNS) -> MachineProfile:
        """The limits now. The caches hold the probes' data afterwards."""
        self.samples.append(super().sample(repeats))
        return self.samples[-1]
