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
        """Tokens in the KV cache before: a decode needs at least one."""
        return self.depth if self.prompt else max(self.depth, 1)

    @property
    def end(self) -> int:
        """Maximum tokens of the session: a decode samples one more than it computes."""
        return self.start + self.tokens + 1

    @property
    def name(self) -> str:
        """``pp512``, ``tg32 @ d2048``."""
        test = f"pp{self.prompt}" if self.prompt else f"tg{self.generate}"
        return f"{test} @ d{self.depth}" if self.depth else test


@dataclass(frozen=True, slots=True)
class Timing:
    """One repetition of a case, every pass of it run by all threads."""

    seconds: float
    """Of the case's passes."""
    parts: Mapping[str, float]
    """Seconds that a thread was in products, head, attention and rows, on average; of a decode in
    one of its passes."""
    experts: float | None = None
    """How many of a layer's experts were used, on average; None where there are none."""


class PassTimer(Protocol):
    """A runner of a model's timed passes."""

    name: str
    cost: ModelCost
    """Of the model."""
    machine: MachineProfile
    """The best limits that this machine has shown."""
    kv: str
    """Format of the KV cache."""
    context: int
    """Positions that a case may reach."""

    @property
    def passes(self) -> Passes:
        """How the work of the cases is split into passes."""
        ...

    def prepare(self, cases: Sequence[Case]) -> None:
        """Make room for cases.

        Raises:
            SettingError: one does not fit the context.
        """

    def time(self, case: Case) -> Timing:
        """Run a prepared case."""
        ...

    def probe(self) -> RooflineProbe:
        """Return a sampler of the machine's limits, on the same threads."""
        ...

    def use(self, found: Calibration | None) -> None:
        """Predict with a calibration from now on, or with none."""
