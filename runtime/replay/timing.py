"""Benchmarks the schedule of a recorded run, repeated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...traces.events import PhaseEvent
from .simulate import run_workload

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..engine.engine import Engine


@dataclass
class Timed:
    """Repeated measurements of one phase of a schedule, or of all of a kind.

    Attributes:
        name: ``1.2 answer``, or ``decode``.
        kind: ``prefill``, ``decode`` or ``engine``.
        tokens: fed or decoded in one repetition.
        kv: positions in the KV cache before; None for several phases together.
        seconds: of each repetition.
        observed: the phase of each repetition.
    """

    name: str
    kind: str
    tokens: int
    kv: int | None = None
    seconds: list[float] = field(default_factory=list)
    observed: list[PhaseEvent] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [self.tokens / seconds if seconds > 0 else 0.0 for seconds in self.seconds]

    @property
    def median(self) -> float:
        """Median tokens per second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation of the tokens per second; 0 for one repetition."""
        return statistics.stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def regime(self) -> str:
        """Most frequent regime; empty for several phases together."""
        return statistics.mode(p.regime for p in self.observed) if self.observed else ""

    @property
    def share(self) -> float | None:
        """Median share of the regime's limit; None for several phases together."""
        return statistics.median(p.limit_share for p in self.observed) if self.observed else None


def measure(
    trace: Trace,
    engine: Engine,
    *,
    repeat: int = 5,
    run: int = -1,
    between: Callable[[], object] | None = None,
) -> list[Timed]:
    """Time the schedule of one run after a warm-up, without waiting for tools.

    Args:
        between: called before each repetition and after the last, e.g. to sample limits.

    Returns:
        The phases in order, then all prefills, all decodes, and the whole.

    Raises:
        ReplayError: the run does not fit the engine; names the field.
    """
    run_workload(trace, engine, run=run, waits=False)
    phases: list[Timed] = []
    for _ in range(repeat):
        if between is not None:
            between()
        report = run_workload(trace, engine, run=run, waits=False)
        for n, phase in enumerate(report.phases):
            if n == len(phases):
                was = phase.recorded
                name = f"{was.turn}.{was.step} {was.purpose.replace('_', ' ')}"
                phases.append(Timed(name, was.phase, was.tokens, was.kv_before))
            phases[n].seconds.append(phase.now.wall_s)
            phases[n].observed.append(phase.now)
    if between is not None:
        between()
    return [*phases, *_sums(phases)]


def _sums(phases: list[Timed]) -> Iterator[Timed]:
    for kind in ("prefill", "decode", "engine"):
        chosen = [p for p in phases if kind in (p.kind, "engine")]
        if chosen:
            seconds = [sum(times, 0.0) for times in zip(*(p.seconds for p in chosen), strict=True)]
            yield Timed(kind, kind, sum(p.tokens for p in chosen), None, seconds)
