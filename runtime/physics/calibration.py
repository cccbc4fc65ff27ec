"""A saved calibration of a model's kernels on a machine, from which predictions are made.

`calibrate.py` measures, `calibration_fit.py` fits the efficiency to the times; here are the result,
its file, and the predictions of phases made with it. A file belongs to
one machine, model, set of kernels, number of threads and format of the cache: a change of any of
these leads to another file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...jit.compile import source_hash
from .costs import ModelCost
from .latency_model import Efficiency, LatencyEstimate, Passes, estimate
from .machine import MachineProfile, load_fields, profile_folder, save_fields

VERSION = 8
BUSY = 0.85  # of the best int8 peak: below it someone else was at work


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model's efficiency on a machine, and the machine's limits when it was measured."""

    model: str
    efficiency: Efficiency
    passes: Passes
    machine: MachineProfile
    date: str
    steady: float = 1.0
    """The lowest arithmetic peak during the calibration, over the highest."""
    quick: bool = False
    """Whether it is a quick measurement, with few repeats."""
    expert_diversity: float = 1.0
    """How independently tokens choose their experts; see `ModelCost`."""

    def estimate(
        self,
        cost: ModelCost,
        tokens: int,
        start: int,
        machine: MachineProfile | None = None,
        batch: int = 1,
    ) -> LatencyEstimate:
        """Predict a phase's time, with the limits of the calibration unless `machine` is given.

        batch: number of sequences that compute an equal phase at once.
        """
        model = cost
        if cost.expert_diversity != self.expert_diversity:  # a copy takes a while
            model = dataclasses.replace(cost, expert_diversity=self.expert_diversity)
        limits = machine or self.machine
        return estimate(model, limits, self.efficiency, self.passes, tokens, start, batch)

    @property
    def name(self) -> str:
        """The name of the predictor in a trace."""
        return "quick calibration" if self.quick else "calibration"


def busy(found: Calibration, best: MachineProfile) -> bool:
    """Return whether the limits were disturbed, or the peak well below this machine's best."""
    return found.machine.doubtful or slowed(found, best)


def slowed(found: Calibration, best: MachineProfile) -> bool:
    """Return whether the arithmetic peak was well below this machine's best for a time."""
    return found.machine.int8_gops * found.steady < BUSY * best.int8_gops


def path_of(model: ModelCost, machine: MachineProfile, kv: str, folder: Path | None = None) -> Path:
    """Return the calibration file of a model on `machine`, with KV format `kv`."""
    key = (
        VERSION,
        source_hash(),
        platform.node(),
        machine.cpu,
        machine.target,
        machine.threads,
        kv,
        dataclasses.astuple(model),
    )
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    return (folder or profile_folder()) / f"kernels-{machine.target}-{name}.json"


def save(found: Calibration, path: Path) -> None:
    """Save a calibration; if that fails, it is measured again next time."""
    save_fields(path, found)


def load(path: Path) -> Calibration | None:
    """Load a saved calibration; None if there is none, or it is not readable."""
    return load_fields(path, _of_fields)


def _of_fields(fields: dict[str, Any]) -> Calibration:
    kinds = {"efficiency": Efficiency, "passes": Passes, "machine": MachineProfile}
    return Calibration(**fields | {name: kind(**fields[name]) for name, kind in kinds.items()})
