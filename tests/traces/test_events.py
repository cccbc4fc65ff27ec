"""The event schema."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from triplepoint.traces.events import (
    EVENT_TYPES,
    REGIMES,
    AnyEvent,
    Bound,
    PhaseEvent,
    PhaseName,
    ToolEvent,
    UnknownEvent,
)
from triplepoint.traces.reader import parse_event

PHASE = {"phase": "decode", "predicted": "memory", "observed": "dispatch", "tokens": 8}
PHASE |= {"kv_before": 3, "kv_after": 10, "wall_s": 0.5}


def test_each_event_survives_json(run_events: list[AnyEvent]) -> None:
    """Dumped to JSON and parsed again, an event is the same event of the same class."""
    for event in run_events:
        again = parse_event(json.loads(json.dumps(event.model_dump())))

        assert again == event
        assert type(again) is type(event)


def test_every_known_event_is_registered() -> None:
    """The table of types holds every class of the union under the name that it writes."""
    classes = set(get_args(AnyEvent)) - {UnknownEvent}

    assert set(EVENT_TYPES.values()) == classes
    for name, kind in EVENT_TYPES.items():
        assert kind.event == name


def test_each_phase_and_bound_has_a_regime() -> None:
    """A name for each pair, no two the same; the regime goes by what was observed."""
    pairs = {(phase, bound) for phase in get_args(PhaseName) for bound in get_args(Bound)}

    assert set(REGIMES) == pairs
    assert len(set(REGIMES.values())) == len(REGIMES)
    phase = PhaseEvent.model_validate(PHASE)
    assert phase.regime == "dispatch-bound decode"
    assert phase.predicted_regime == "memory-bound decode"
    assert phase.tokens_per_s == 16.0


def test_a_line_holds_the_computed_fields() -> None:
    """Other programs read regime and tok/s from the line; reading it back computes them anew."""
    line = PhaseEvent.model_validate(PHASE).model_dump()
    assert line["regime"] == "dispatch-bound decode"

    again = PhaseEvent.model_validate(line | {"regime": "a lie", "wall_s": 1.0})

    assert again.regime == "dispatch-bound decode"
    assert again.tokens_per_s == 8.0
    assert again.model_dump()["regime"] == "dispatch-bound decode"


def test_a_phase_without_time_has_no_rate() -> None:
    """A phase of no tokens and no time divides nothing by zero."""
    assert PhaseEvent.model_validate(PHASE | {"wall_s": 0, "tokens": 0}).tokens_per_s == 0.0


def test_a_tool_event_hashes_its_result() -> None:
    """The hash is of the text's UTF-8, even of a text with a lone surrogate; a given one stays."""
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    assert ToolEvent(name="t").result_sha256 == empty
    assert len(ToolEvent(name="t", result="\ud800").result_sha256) == 64
    assert ToolEvent(name="t", result="x", result_sha256="abc").result_sha256 == "abc"


def test_an_unknown_bound_is_refused() -> None:
    """A bound is one of three words."""
    with pytest.raises(ValidationError, match="observed"):
        PhaseEvent.model_validate(PHASE | {"observed": "luck"})


@pytest.mark.parametrize(("share", "contended"), [(None, False), (0.1, False), (0.11, True)])
def test_a_phase_is_contended_without_a_core(share: float | None, contended: bool) -> None:
    """For more than a tenth of the time; a trace that says nothing of it reads as before."""
    fields = PHASE if share is None else PHASE | {"run_delay_share": share}
    phase = PhaseEvent.model_validate(fields)
    assert phase.run_delay_share == share
    assert phase.model_dump()["contended"] is contended
    assert phase.regime == "dispatch-bound decode"
    assert phase.label == phase.regime + " (contended)" * contended


CALIBRATED = {"predicted_by": "calibration", "predicted_wall_s": 1.0, "wall_s": 1.6}


@pytest.mark.parametrize(
    ("fields", "contended", "taken"),
    [
        ({"others_share": 0.4}, True, "other processes took 40% of the CPU"),
        ({"others_share": 0.0}, False, ""),
        ({}, False, ""),
        ({"others_share": 0.4, "wall_s": 1.0}, False, "other processes took 40% of the CPU"),
        (
            {"others_share": 0.4, "predicted_by": "roofline"},
            False,
            "other processes took 40% of the CPU",
        ),
        ({"run_delay_share": 0.5, "wall_s": 1.0}, True, ""),
    ],
)
def test_a_busy_machine_is_told_from_a_slow_one(
    fields: dict[str, Any], contended: bool, taken: str
) -> None:
    """Slow is what takes much longer than calibrated; busy, if others took the CPU meanwhile.

    Others on cores that the phase did not need, and bounds of a roofline, say nothing.
    """
    phase = PhaseEvent.model_validate(PHASE | CALIBRATED | fields)
    assert (phase.contended, phase.taken) == (contended, taken)


def test_a_drifted_prediction_hides_no_slow_phase() -> None:
    """The factor from the phases before is no part of what was calibrated."""
    drifted = {"predicted_wall_s": 1.5, "predicted_factor": 1.5}
    assert PhaseEvent.model_validate(PHASE | CALIBRATED | drifted).slow
