"""Compares a recorded run with the same work executed or predicted elsewhere."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...traces.events import PhaseEvent

MIN_S = 0.05  # a phase that is shorter says little about how well times repeat


@dataclass(frozen=True)
class PerfPhase:
    """A phase as recorded, and as it was executed or predicted now."""

    number: int
    """Index among the phases of its run, from 1."""
    recorded: PhaseEvent
    now: PhaseEvent
    wait_s: float = 0.0
    """Seconds that tools took before it."""

    @property
    def ratio(self) -> float:
        """Time now, divided by the recorded time."""
        return self.now.wall_s / self.recorded.wall_s if self.recorded.wall_s > 0 else 1.0

    @property
    def alike(self) -> bool:
        """Whether both are in the same regime."""
        return self.now.regime == self.recorded.regime


@dataclass(frozen=True)
class Sums:
    """The total tokens and time of some phases."""

    phases: int
    tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second; 0 for none."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def sums(phases: Iterable[PhaseEvent]) -> Sums:
    """Return the totals of some phases."""
    chosen = list(phases)
    return Sums(len(chosen), sum(p.tokens for p in chosen), sum(p.wall_s for p in chosen))


@dataclass
class PerfReport:
    """A run's schedule of passes, executed or predicted, compared with the recording."""

    run: str
    settings: list[tuple[str, object, object]]
    """Name, recorded value and value now of each setting that differs."""
    predicted: bool = False
    """Whether the phases were predicted by the cost model; nothing was run."""
    phases: list[PerfPhase] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def wait_s(self) -> float:
        """Seconds spent in tools."""
        return sum(phase.wait_s for phase in self.phases)

    @property
    def recorded(self) -> list[PhaseEvent]:
        """Recorded phases."""
        return [phase.recorded for phase in self.phases]

    @property
    def now(self) -> list[PhaseEvent]:
        """Phases as executed or predicted now."""
        return [phase.now for phase in self.phases]

    @property
    def regime_changes(self) -> list[PerfPhase]:
        """Phases whose regime has changed."""
        return [phase for phase in self.phases if not phase.alike]

    @property
    def alike(self) -> float:
        """Share of phases in the recorded regime, 0 to 1."""
        return 1 - len(self.regime_changes) / len(self.phases) if self.phases else 1.0

    def regimes(self) -> list[tuple[str, Sums, Sums]]:
        """Return each regime with its recorded and present totals, longest recorded first."""
        names = {phase.regime: None for phase in (*self.recorded, *self.now)}
        found = [
            (
                name,
                sums(p for p in self.recorded if p.regime == name),
                sums(p for p in self.now if p.regime == name),
            )
            for name in names
        ]
        return sorted(found, key=lambda row: (-row[1].seconds, -row[2].seconds))

    def time_error(self, min_s: float = MIN_S) -> float | None:
        """Return the median relative time error of phases of at least `min_s` (0.1 is 10 %).

        None when no phase was as long.
        """
        errors = [abs(p.ratio - 1) for p in self.phases if p.recorded.wall_s >= min_s]
        return statistics.median(errors) if errors else None
