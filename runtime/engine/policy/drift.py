"""Drift of phases from the calibration: what those before say of the next one's time and experts.

The clock and memory change for a while, and the tokens of a text choose their experts less
differently than the random ones of a calibration. Phases that other work disturbed do not count, so
a busy machine leaves predictions as they were.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....traces.events import Bound, PhaseEvent
    from ...physics.calibration import Calibration
    from ...physics.costs import ModelCost

LEARNED = 0.2  # of what a phase says, and the rest stays
MAX_LOG = 0.4  # of the logarithm of a phase's factor: a larger one counts as this
FULL = 0.9  # of a layer's experts: more do not show how differently tokens chose


class PhaseDrift:
    """Running means of recent phases, by bound: the clock drifts apart from memory."""

    def __init__(self) -> None:
        self._logs: dict[Bound, float] = {}  # of the factors
        self._diversities: deque[float] = deque(maxlen=9)

    def factor(self, bound: Bound) -> float:
        """Return the factor for the predicted seconds of a phase with that bound."""
        return math.exp(self._logs.get(bound, 0.0))

    def calibration(self, known: Calibration) -> Calibration:
        """Return a calibration with the `expert_diversity` that recent phases showed."""
        seen = [*self._diversities]
        return replace(known, expert_diversity=median(seen)) if seen else known

    def learn(self, event: PhaseEvent, model: ModelCost) -> None:
        """Learn from a phase that had its passes for itself."""
        if event.phase == "decode" and event.tokens - event.passes not in (0, 1):
            return  # drafts: its passes had more rows
        if not event.contended and event.wall_s > 0 < event.predicted_wall_s:
            ratio = math.log(event.wall_s * event.predicted_factor / event.predicted_wall_s)
            before = self._logs.get(event.predicted, 0.0)
            change = min(MAX_LOG, max(-MAX_LOG, ratio)) - before
            self._logs[event.predicted] = before + LEARNED * change
        rows, touched = event.computed_tokens, event.experts
        if event.passes == 1 < rows and touched is not None and touched < FULL * model.experts:
            self._diversities.append(model.diversity(rows, touched))
