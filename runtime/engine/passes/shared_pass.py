"""A pass with rows of several sequences: its time and cost, and each sequence's share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ....traces.events import PassEvent
from ...physics.costs import Part, PassCost, part_cost, part_times
from ...physics.latency_model import LatencyEstimate, attainable
from ...physics.observation import observe
from ...physics.run_delay import delay_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...forward.shared_prefix import Together
    from ..model.loaded_model import LoadedModel
    from ..model.plan import Plan

GOAL = 0.15  # error of a prediction that is good enough
HELD_NS = 1_000_000  # without a core: a pass was held up


@dataclass(eq=False)
class SharedPass:
    """A pass with rows of several sequences, and each sequence's share of its time and work."""

    loaded: LoadedModel = field(repr=False)
    number: int
    """Number among the shared passes of the engine, from 1."""
    labels: Sequence[str]
    """Labels of the sequences, in the order of `parts`."""
    parts: Sequence[Part]
    """Rows of each sequence, and the positions before them."""
    together: Sequence[Together]
    """Cached positions that each sequence read together with others; empty if none did."""
    why: str
    """Why the pass has no more rows: see `PassEvent.why`."""
    plan: Plan = field(repr=False)
    expected: LatencyEstimate
    """The cost model's estimate."""
    expected_s: float
    """The predicted seconds, corrected by earlier passes."""
    ended: float
    """When it ended, in Unix seconds."""
    seconds: float
    """Seconds of the pass."""
    kernel_s: float
    """Seconds of a thread inside kernels."""
    elementwise_s: float
    """Seconds of a thread in kernels that neither multiply by weights nor attend."""
    threads: int
    """Threads that ran it."""
    experts: Sequence[int]
    """Distinct experts that each layer of a mixture used."""

    @cached_property
    def rows(self) -> int:
        """Rows of all sequences."""
        return sum(part.tokens for part in self.parts)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.parts)

    def share(self, place: int) -> float:
        """Return one sequence's share of the pass's time, by rows."""
        return self.parts[place].tokens / self.rows

    def cost(self, place: int) -> PassCost:
        """Return one sequence's part of the pass's cost; the parts add up to the whole."""
        model, tile = self.loaded.cost, self.loaded.attention_tile
        read = float(sum(self.experts)) if model.experts else None
        return part_cost(model, self._joined, place, self.plan.tape.barriers, tile, read)

    @cached_property
    def _joined(self) -> Sequence[Part]:
        """Its parts with what they read together."""
        if not self.together:
            return self.parts
        pairs = zip(self.parts, self.together, strict=True)
        return [part._replace(together=one[0], readers=one[1]) for part, one in pairs]

    def event(self, place: int) -> PassEvent:
        """Build the event of this pass for the trace of one sequence."""
        cost, share = self.cost(place), self.share(place)
        return PassEvent(
            ts=self.ended,
            own=place,
            share_s=share * self.seconds,
            share_flops=cost.flops,
            share_bytes=cost.bytes,
            **self._common,
        )

    @cached_property
    def _common(self) -> dict[str, Any]:
        """The fields that the events of all sequences have in common."""
        loaded, total = self.loaded, PassCost()
        for place in range(self.sequences):
            total += self.cost(place)
        machine, reached = loaded.attained
        times = part_times(total, loaded.cost, machine)
        seen = observe(
            times.minimum,
            self.seconds,
            self.kernel_s,
            attainable(times, reached),
            self.elementwise_s,
        )
        return {
            "number": self.number,
            "sequences": list(self.labels),
            "rows": [part.tokens for part in self.parts],
            "kv": [part.start for part in self.parts],
            "why": self.why,
            "plan": self.plan.name,
            "threads": self.threads,
            "predicted": self.expected.seen.bound,
            "observed": seen.bound,
            "predicted_wall_s": self.expected_s,
            "wall_s": self.seconds,
            "flops": total.flops,
            "bytes": total.bytes,
        }


class Forecasts:
    """Prediction errors of passes that several sequences shared.

    Attributes:
        ratios: measured over predicted seconds of each recorded pass.
        held: whether a thread waited for a core in it or just before, as far as the system
            reports it: what the pass took then could not be predicted.
    """

    def __init__(self) -> None:
        self.ratios: list[float] = []
        self.held: list[bool] = []
        self._alike: dict[tuple[int, ...], list[float]] = {}  # seconds by rows of each sequence
        self._waited: dict[int, int] = {}  # ns by thread, so far

    def add(self, done: SharedPass) -> None:
        """Record measured against predicted seconds of a pass; see `Runner.observe_shared`."""
        self.ratios.append(done.seconds / done.expected_s)
        rows = tuple(part.tokens for part in done.parts)
        self._alike.setdefault(rows, []).append(done.seconds)
        threads = threading.get_native_id(), *done.loaded.pool.worker_ids
        waited = {thread: delay_of(thread) or 0 for thread in threads}
        before = self._waited
        longest = max(ns - before.get(thread, ns) for thread, ns in waited.items())
        self._waited = {**before, **waited}
        self.held.append(longest > HELD_NS)

    def within(self, error: float) -> float:
        """Return the share of passes no further than `error` from their prediction, 0 to 1."""
        return _within(self.ratios, error)

    def alike(self, error: float) -> float:
        """Return the share of passes no further than `error` from the median of equal rows.

        What one prediction for all of them could have reached at best.
        """
        medians = {rows: float(np.median(times)) for rows, times in self._alike.items()}
        return _within(
            [s / medians[rows] for rows, times in self._alike.items() for s in times], error
        )

    def describe(self) -> str:
        """Describe the prediction errors in one line."""
        if not self.ratios:
            return "no pass had rows of several sequences"
        errors = np.abs(np.array(self.ratios) - 1.0)
        p50, p90 = np.quantile(errors, (0.5, 0.9))
        free = [ratio for ratio, held in zip(self.ratios, self.held, strict=True) if not held]
        told = (
            f"{len(errors):,} shared passes: {self.within(GOAL):.0%} took within {GOAL:.0%} of "
            f"what was predicted (error p50 {p50:.0%}, p90 {p90:.0%})"
        )
        if not free or len(free) == len(errors):
            return told
        share = _within(free, GOAL)
        return f"{told}; {share:.0%} of the {len(free):,} in which no thread waited for a core"


def _within(ratios: Sequence[float], error: float) -> float:
    return sum(abs(ratio - 1.0) <= error for ratio in ratios) / len(ratios)
