"""Two runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.traces import Trace, report
from triplepoint.traces.diff import compare
from triplepoint.traces.events import AnyEvent, PhaseEvent, RunStart


def copy(events: list[AnyEvent]) -> Trace:
    """A run of its own with the same events."""
    return Trace([event.model_copy(deep=True) for event in events])


def test_a_run_equals_itself(run_events: list[AnyEvent]) -> None:
    """No setting, token, regime or tool differs, and every ratio is 1."""
    found = compare(copy(run_events), copy(run_events))

    assert found.same_tokens
    assert (found.settings, found.tools, found.regime_changes) == ([], [], [])
    assert [pair.time_ratio for pair in found.phases] == [1.0] * 4
    assert report.verdict(found)[:2] == ["the settings are the same", "tokens: the same"]


def test_the_first_token_that_differs_is_named(run_events: list[AnyEvent]) -> None:
    """Phase, place and both ids; the settings that differ are listed."""
    other = copy(run_events)
    other.phases[3].token_ids = [9, 8, 2]
    other.phases[1].observed = "dispatch"
    other.phases[1].wall_s *= 3
    header = other.header
    assert header is not None
    header.target, header.config["context"] = "avx2", 99

    found = compare(copy(run_events), other)

    assert not found.same_tokens
    first = found.first_difference
    assert first is not None
    assert (first.phase, first.position, first.first, first.second) == (3, 1, 9, 8)
    assert found.settings == [("target", "avx512-bf16", "avx2"), ("context", None, 99)]
    (changed,) = found.regime_changes
    assert changed.time_ratio == pytest.approx(3)
    text = "\n".join(report.verdict(found))
    assert "first difference in phase 4 (answer of step 1.0) at token 2: 9 → 8" in text
    assert "1 of 4 phases changed" in text


def test_a_run_that_ended_earlier(run_events: list[AnyEvent]) -> None:
    """What only one run has is laid beside nothing; the tokens up to there are the same."""
    short = copy([event for event in run_events if event is not run_events[6]])

    found = compare(copy(run_events), short)

    assert not found.same_tokens
    assert found.first_difference is None
    assert [pair.second is None for pair in found.phases] == [False, False, False, True]
    assert "only in the first" in "\n".join(report.of_pairs(found).lines())


def test_redacted_runs_are_compared_by_size(tmp_path: Path, run_events: list[AnyEvent]) -> None:
    """Their ids and hashes say nothing across runs, and are not compared."""
    traces = []
    for name in ("a", "b"):
        with Trace.to_file(tmp_path / name, redact=True) as trace:
            for event in run_events:
                trace.write(event.model_copy(deep=True))
        traces.append(Trace.load(tmp_path / name))

    found = compare(*traces)

    assert found.same_tokens
    assert not found.tokens_known
    assert found.tools == []
    assert "redacted, so not compared" in "\n".join(report.verdict(found))
    traces[0].phases[1].token_ids = [1]  # as of a run that is not redacted
    assert "different tokens" not in "\n".join(report.of_pairs(compare(*traces)).lines())
    traces[1].phases[1].tokens += 1
    assert not compare(*traces).same_tokens


def test_every_setting_is_compared(run_events: list[AnyEvent]) -> None:
    """Whatever a header has, on either side; notes are no settings."""
    first, second = copy(run_events), copy(run_events)
    assert first.header is not None
    assert second.header is not None
    first.header.config = {"timeout": 3, "notes": ["a"], "context": 8}
    second.header.config = {"compact": True, "notes": [], "context": 8}

    assert compare(first, second).settings == [("timeout", 3, None), ("compact", None, True)]


def test_of_a_file_with_many_runs_the_last_counts(run_events: list[AnyEvent]) -> None:
    """Each run has its own identifier."""
    first, second = copy(run_events), copy(run_events)
    for event in second.events:
        event.run = "second"
        if isinstance(event, PhaseEvent):
            event.threads = 7
        if isinstance(event, RunStart):
            event.threads = 7
    both = Trace([*first.events, *second.events])

    assert compare(both, second).settings == []
    assert compare(both, first).settings == [("threads", 7, 2)]


def test_a_step_that_ended_otherwise_has_both_purposes(run_events: list[AnyEvent]) -> None:
    """Where one run answered and the other called a tool, the row says so."""
    other = copy(run_events)
    other.phases[3].purpose = "tool_call"

    lines = report.of_pairs(compare(copy(run_events), other)).lines()

    assert "answer → tool call" in lines[4]
