"""What phases say of the next: a factor for its time, and how tokens choose their experts."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

from triplepoint.runtime.engine.policy.drift import PhaseDrift
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.costs import ModelCost
from triplepoint.runtime.physics.latency_model import Efficiency, Passes
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.traces.events import PhaseEvent

MODEL = ModelCost(4, 8, 64, 1000, 100, 500, 50, 64.0, True, experts=64, experts_used=4)


def _phase(**fields: Any) -> PhaseEvent:
    """A prefill of 8 tokens that took the second that was predicted, but for `fields`."""
    usual = {"phase": "prefill", "predicted": "compute", "observed": "compute", "tokens": 8}
    times = {"kv_before": 0, "kv_after": 8, "wall_s": 1.0, "predicted_wall_s": 1.0, "passes": 1}
    return PhaseEvent.model_validate({**usual, **times, **fields})


def test_a_slower_clock_is_learned() -> None:
    """Phases that take 1.2 × as long: after a few the next is expected to; then no longer."""
    drift = PhaseDrift()
    factor = partial(drift.factor, "compute")
    for _ in range(12):
        phase = _phase(wall_s=1.2, predicted_wall_s=factor(), predicted_factor=factor())
        drift.learn(phase, MODEL)
    assert factor() == pytest.approx(1.2, rel=0.02)
    assert drift.factor("memory") == 1.0
    for _ in range(20):
        drift.learn(_phase(), MODEL)
    assert factor() == pytest.approx(1.0, rel=0.01)


def test_one_outlier_changes_little() -> None:
    """A phase of ten times its time makes the next one's at most 9 % longer."""
    drift = PhaseDrift()
    drift.learn(_phase(wall_s=10.0), MODEL)
    assert 1.0 < drift.factor("compute") < 1.09


@pytest.mark.parametrize(
    "busy",
    [
        {"run_delay_share": 0.4},
        {"others_share": 0.4, "predicted_by": "calibration"},
    ],
)
def test_a_busy_machine_says_nothing_of_the_next(busy: dict[str, Any]) -> None:
    """Twice the time while others took the CPU: predictions stay, so they drift for nobody."""
    drift = PhaseDrift()
    drift.learn(_phase(wall_s=2.0, **busy), MODEL)
    assert drift.factor("compute") == 1.0
    assert _phase(wall_s=2.0, **busy).contended


def test_drafts_say_nothing_of_single_tokens() -> None:
    """A decode of 9 tokens in 4 passes had more rows in a pass than were predicted."""
    drift = PhaseDrift()
    drift.learn(_phase(phase="decode", tokens=9, passes=4, wall_s=2.0), MODEL)
    assert drift.factor("compute") == 1.0


def test_the_experts_of_a_text_are_expected_of_the_next() -> None:
    """8 tokens that use 10 experts, not the 26 of independent choices; all 64 say nothing."""
    machine = MachineProfile("", 1, "avx2", 1, {}, {"DRAM": 20.0}, 1e3, 1e2, 1e2, 1e-6)
    found = Calibration("", Efficiency(), Passes(128, 8, 10, 10), machine, "")
    drift = PhaseDrift()
    assert drift.calibration(found) is found
    for _ in range(3):
        drift.learn(_phase(experts=10.0), MODEL)
    for _ in range(9):
        drift.learn(_phase(experts=64.0), MODEL)
    spread = drift.calibration(found).expert_diversity
    assert 0 < spread < 0.5
    model = dataclasses.replace(MODEL, expert_diversity=spread)
    assert model.expected_experts(8) / model.sparse_layers == pytest.approx(10.0)
