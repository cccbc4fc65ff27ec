"""Timed passes of calibration and benchmarks: their cases and results.

An engine stands above this folder. Calibration asks it for a `PassTimer`; `EngineTimer` in
`inference/engine_timer.py` is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .calibration import Calibration
from .costs import ModelCost
from .latency_model import Passes
from .machine import MachineProfile, RooflineProbe


@dataclass(frozen=True)
class Case:
    """A timed case: ``prompt`` tokens to prefill or ``generate`` to decode, after ``depth``."""

    prompt: int = 0
    generate: int = 0
    depth: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that one repetition computes."""
        return self.prompt or self.generate

    @property
    def start(self) -> int:
        """Tokens in the KV cache before the case: a decode needs at least one."""
        return self.depth if self.prompt else max(self.depth, 1)

    @property
    def end(self) -> int:
        """Session tokens that the case needs: a decode samples one more than it computes."""
        return self.start + self.tokens + 1

    @property
    def name(self) -> str:
        """The name as in llama-bench, such as ``pp512`` or ``tg32 @ d2048``."""
        test = f"pp{self.prompt}" if self.prompt else f"tg{self.generate}"
        return f"{test} @ d{self.depth}" if self.depth else test


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one repetition of a case, with all threads in every pass."""

    seconds: float
    """Seconds of the case's passes."""
    parts: Mapping[str, float]
    """Seconds by part (products, head, attention, rows), as the mean over the threads; of a decode,
    for one pass."""
    experts: float | None = None
    """Mean number of experts that a layer used; None without experts."""
    predicted_s: float = 0.0
    """Seconds that the engine predicted from the passes before them, too; 0: contended."""


class PassTimer(Protocol):
    """A runner of a model's timed passes."""

    name: str
    cost: ModelCost
    """The cost model's inputs for the model."""
    machine: MachineProfile
    """The best measured limits of this machine."""
    kv: str
    """Format of the KV cache."""
    context: int
    """Maximum positions of a case."""

    @property
    def passes(self) -> Passes:
        """The partition of the cases into passes."""
        ...

    def prepare(self, cases: Sequence[Case]) -> None:
        """Prepare a session that has room for all cases.

        Raises:
            SettingError: one does not fit the context.
        """

    def time(self, case: Case) -> Timing:
        """Time a prepared case."""
        ...

    def probe(self) -> RooflineProbe:
        """Return a sampler of the machine's limits, on the same threads."""
        ...

    def use(self, found: Calibration | None) -> None:
        """Set the calibration for predictions; None: none."""
