"""Forecasts the time left of a run: the latency model's estimate, calibrated on observations.

Before the first row is done there is only the prediction; with each that is, it counts less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.engine import Engine

TYPICAL_PROMPT, TYPICAL_RESULT, TYPICAL_REPLY = 400, 400, 64
"""Tokens of a typical row: of its prompt, of a tool's result, and of each of two replies."""
WEIGHT = 4  # rows of each worker for which the prediction counts


def predict_row_s(engine: Engine, slots: int) -> float:
    """Predict the seconds of a typical row on an engine shared by `slots` agents.

    A row is a prompt, a call, its result and an answer. 0 where the engine is not calibrated.
    """
    known = engine.loaded.calibration
    if known is None:
        return 0.0
    context = TYPICAL_PROMPT + TYPICAL_RESULT
    read = known.estimate(engine.loaded.cost, TYPICAL_PROMPT, 0).seconds
    read += known.estimate(engine.loaded.cost, TYPICAL_RESULT, TYPICAL_PROMPT).seconds
    step = known.estimate(engine.loaded.cost, 1, context // 2, batch=slots).seconds / slots
    return read + 2 * TYPICAL_REPLY * step


def predict_left_s(
    rows: int, finished: int, seconds: float, row_s: float, workers: int
) -> float | None:
    """Predict the seconds for `rows` more rows; None where nothing is known.

    Args:
        rows: that are left.
        finished: rows that are done, in `seconds`.
        row_s: seconds that a row is expected to keep an engine busy; 0: unknown.
        workers: engines that take rows.
    """
    if not rows:
        return 0.0
    engines = max(1, workers)
    weight = WEIGHT * engines if row_s else 0  # of so many rows
    if not weight + finished:
        return None
    return rows * (weight * row_s / engines + seconds) / (weight + finished)
