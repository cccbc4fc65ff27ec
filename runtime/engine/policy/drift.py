"""Drift of phases from the calibration: what those before say of the next one's time and experts.

A clock that changes, or memory that others read, makes all passes of a size slower or faster for a
while. And the tokens of a text choose their experts less differently than the random tokens of a
calibration. Both are told by the phases themselves. One that other work disturbed says nothing of
the next, so a busy machine leaves predictions as they were.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....traces.events import PhaseEvent
    from ...physics.calibration import Calibration
    from ...physics.costs import ModelCost

LEARNED = 0.2  # of what a phase says, and the rest stays
MOST = 0.3  # of the logarithm of its factor: what is believed at most
FULL = 0.9  # of a layer's experts: how many more tokens would choose cannot be told
FEW, SEEN = 2, 9  # phases that say how experts are chosen: at least, at most


class PhaseDrift:
    """Running means of recent phases against what a calibration predicts of them.

    One factor for phases of all sizes: what drifts is the clock, or memory.
    """

    def __init__(self) -> None:
        self._log = 0.0  # of the factor
        self._diversities: deque[float] = deque(maxlen=SEEN)

    @property
    def factor(self) -> float:
        """The factor for the predicted seconds of the next phase."""
        return math.exp(self._log)

    def calibration(self, known: Calibration) -> Calibration:
        """Return a calibration with the `expert_diversity` that recent phases showed."""
        seen = [*self._diversities]
        if len(seen) < FEW:
            return known
        return dataclasses.replace(known, expert_diversity=statistics.median(seen))

    def learn(self, event: PhaseEvent, model: ModelCost) -> None:
        """Learn from a phase that had its passes for itself."""
        if event.phase == "decode" and event.tokens - event.passes not in (0, 1):
            return  # drafts: its passes had more rows
        if not event.contended and event.wall_s > 0 < event.predicted_wall_s:
            ratio = math.log(event.wall_s * event.predicted_factor / event.predicted_wall_s)
            self._log += LEARNED * (min(MOST, max(-MOST, ratio)) - self._log)
        rows, touched = event.computed_tokens, event.experts
        if event.passes == 1 < rows and touched is not None and touched < FULL * model.experts:
            self._diversities.append(model.diversity(rows, touched))
