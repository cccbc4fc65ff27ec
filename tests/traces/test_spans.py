"""Spans nest exactly, whatever the clock did."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from triplepoint.traces import Trace, export_otlp, tables
from triplepoint.traces.events import AnyEvent, PassEvent, PhaseEvent, RunEnd, ToolEvent
from triplepoint.traces.spans import RunSpan, nanoseconds, of_runs


def check_nested(run: RunSpan) -> None:
    """Children lie in their parents, one after the other."""
    at = run.start
    for turn in run.turns:
        assert at <= turn.start <= turn.end <= run.end
        at = turn.start
        for step in turn.steps:
            assert at <= step.start <= step.end <= turn.end
            at = step.start
            for leaf in step.leaves:
                assert at <= leaf.start <= leaf.end <= step.end
                at = leaf.end
        at = turn.end


def timed(events: list[AnyEvent], times: list[float]) -> Trace:
    """The events, recorded at these times."""
    for event, ts in zip(events, times, strict=True):
        event.ts = ts
    return Trace(events)


def test_a_phase_ends_where_it_was_recorded(run_events: list[AnyEvent]) -> None:
    """It begins its own length before that; a message that comes before its phase cuts nothing."""
    trace = timed(run_events, [100 + 0.1 * i for i in range(len(run_events))])

    (run,) = of_runs(trace)

    check_nested(run)
    (turn,) = run.turns
    assert turn.question == "What's the error in app.log?"
    for leaf in run.leaves:
        took = leaf.event.wall_s if isinstance(leaf.event, PhaseEvent) else leaf.event.duration_s
        assert leaf.end == nanoseconds(leaf.event.ts)
        assert leaf.end - leaf.start == nanoseconds(took)
    assert [type(leaf.event) for leaf in run.leaves] == [
        *(PhaseEvent, PhaseEvent, ToolEvent, PhaseEvent, PhaseEvent)
    ]


@pytest.mark.parametrize(
    "times",
    [
        [100.0] * 9,
        [100, 99, 98, 97, 96, 95, 94, 93, 92],
        [100, 100, 1e12, 3, math.nan, -5, math.inf, 100.001, 0],
    ],
    ids=["all at once", "backwards", "nonsense"],
)
def test_spans_nest_when_the_clock_was_set(run_events: list[AnyEvent], times: list[float]) -> None:
    """Times that make no sense give empty spans, not overlapping ones."""
    trace = timed(run_events, [float(t) for t in times])
    for phase in trace.phases:
        phase.wall_s = 1e6

    (run,) = of_runs(trace)

    check_nested(run)
    assert len(list(run.leaves)) == 5


def test_a_turn_has_its_own_outcome(run_events: list[AnyEvent]) -> None:
    """Also in the exports; a question that failed before it was recorded ends no turn."""
    start, message, *_, close, end = run_events
    events = [
        start,
        message,
        RunEnd(status="error", message="no memory", totals={"turn": 1}),
        message.model_copy(update={"turn": 2}),
        close.model_copy(update={"turn": 2}),
        end.model_copy(update={"totals": {"turn": 2}}),
        RunEnd(status="cancelled", totals={"turn": 3}),
    ]
    trace = Trace(events)

    assert [row["status"] for row in tables.rows(trace, "turns")] == ["error", "answered"]
    first, second = export_otlp.document([trace])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {"key": "error.type", "value": {"stringValue": "error"}} in first["attributes"]
    assert first["status"]["message"] == "no memory"
    assert "status" not in second


def test_each_run_has_its_own(tmp_path: Path, run_events: list[AnyEvent]) -> None:
    """Two runs in one file give two."""
    for _ in range(2):
        with Trace.to_file(tmp_path / "t.jsonl") as trace:
            for event in run_events:
                trace.write(event.model_copy(deep=True))

    runs = of_runs(Trace.load(tmp_path / "t.jsonl"))

    assert len(runs) == 2
    assert runs[0].run != runs[1].run
    for run in runs:
        check_nested(run)


def test_shared_passes_lie_in_their_phase(shared_events: list[AnyEvent]) -> None:
    """They belong to the phase that follows them, one after the other, at their own times."""
    (run,) = of_runs(Trace(shared_events))

    check_nested(run)
    prefill, decode = run.leaves
    assert not prefill.passes
    assert [one.event.number for one in decode.passes] == [7, 8, 9]
    at = decode.start
    for one in decode.passes:
        assert at <= one.start <= one.end <= decode.end
        assert one.end == nanoseconds(one.event.ts)
        assert one.end - one.start == pytest.approx(1e7, rel=0.01)
        at = one.end


def test_shared_passes_stay_in_their_phase_when_the_clock_is_set(
    shared_events: list[AnyEvent],
) -> None:
    """Whatever their times are, they nest."""
    for event in shared_events:
        if isinstance(event, PassEvent):
            event.ts = math.nan if event.number % 2 else 1e12

    (run,) = of_runs(Trace(shared_events))

    _, decode = run.leaves
    assert len(decode.passes) == 3
    assert all(decode.start <= one.start <= one.end <= decode.end for one in decode.passes)
