"""Use from traces and from rows of results: the same sums that the runs themselves tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triplepoint.errors import SettingError, TraceError
from triplepoint.runtime.planning.usage import own_seconds, read_recorded
from triplepoint.runtime.replay import examples
from triplepoint.traces.events import PassEvent, PhaseEvent
from triplepoint.traces.records import ShareRecord

SEARCH = examples.folder() / "search.jsonl"


def test_a_trace() -> None:
    """Four questions; their tokens are those of the ends of their turns; speeds are recorded."""
    found = read_recorded([SEARCH])
    ends = [json.loads(line) for line in SEARCH.read_text().splitlines()]
    ends = [one for one in ends if one["event"] == "turn_end"]
    assert (found.questions, found.answered, found.steps) == (4, 4, 8)
    assert found.input == sum(one["input_tokens"] for one in ends)
    assert found.cached == sum(one["cached_tokens"] for one in ends)
    assert found.output == sum(one["output_tokens"] for one in ends)
    assert found.speeds is not None
    assert found.speeds.basis == "recorded"
    assert found.weights == 7_412_224


def test_runs_without_an_answer_count(tmp_path: Path) -> None:
    """Their question and tokens, as their steps and seconds do."""
    lines = [json.loads(line) for line in SEARCH.read_text().splitlines()]
    last = max(n for n, one in enumerate(lines) if one["event"] == "turn_end")
    ended = next(one for one in lines[last:] if one["event"] == "run_end")
    ended["status"] = "limit"
    told = lines.pop(last)
    ended["totals"] |= {name: told[name] for name in ("input_tokens", "output_tokens")}
    path = tmp_path / "limit.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))

    found, whole = read_recorded([path]), read_recorded([SEARCH])

    assert (found.questions, found.answered, found.steps) == (4, 3, 8)
    assert (found.input, found.output) == (whole.input, whole.output)


def test_traces_add_up() -> None:
    """Two of them are the sum of each."""
    one, two = read_recorded([SEARCH]), read_recorded([SEARCH, SEARCH])
    assert (two.questions, two.input, two.decode_s) == (
        2 * one.questions,
        2 * one.input,
        pytest.approx(2 * one.decode_s),
    )


def test_rows_of_results(tmp_path: Path) -> None:
    """JSON lines with usage; what was right counts by `passed`, else by the status."""
    usage = {"input_tokens": 100, "output_tokens": 10, "cached_tokens": 40}
    rows = [
        {"usage": usage, "passed": True},
        {"usage": usage, "passed": False},
        {"usage": usage, "status": "answered"},
        {"status": "error"},
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_recorded([path])
    assert (found.questions, found.answered) == (4, 2)
    assert (found.input, found.cached, found.output, found.speeds) == (300, 120, 30, None)
    whole = tmp_path / "results.json"
    whole.write_text(json.dumps({"results": rows}))
    assert read_recorded([whole]).questions == 4


def test_attempts_that_were_made_again(tmp_path: Path) -> None:
    """Of `eval`'s rows the last of each attempt counts; one that only failed, neither way."""
    usage = {"input_tokens": 100, "output_tokens": 10}
    about = {"task": "a", "model": "nano", "setting": "default", "repeat": 0, "usage": usage}
    rows = [
        {**about, "cell": "1", "status": "error", "passed": False},
        {**about, "cell": "1", "status": "done", "passed": False},
        {**about, "cell": "2", "status": "done", "passed": True},
        {**about, "cell": "2", "repeat": 1, "status": "done", "passed": False},
        {**about, "cell": "2", "repeat": 2, "status": "error", "passed": False, "usage": {}},
    ]
    path = tmp_path / "suite.results.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_recorded([path])
    assert (found.questions, found.answered, found.input, found.output) == (2, 1, 200, 20)


def test_results_of_map(tmp_path: Path) -> None:
    """Its names of the same counts, as `fleet.answering.usage_of` gives them."""
    from triplepoint import Usage
    from triplepoint.runtime.fleet.answering import usage_of

    usage = usage_of(Usage(input_tokens=100, cached_tokens=40, output_tokens=10, steps=3))
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps({"status": "answered", "usage": usage}) + "\n")
    found = read_recorded([path])
    assert (found.input, found.cached, found.output, found.steps) == (100, 40, 10, 3)


def test_a_column_that_is_called_event(tmp_path: Path) -> None:
    """Rows of results with one, even beside a `v`, are not taken for a trace."""
    usage = {"prompt": 100, "generated": 10}
    for row in ({"row": 1, "event": "talk"}, {"v": 2, "event": "a"}):
        path = tmp_path / "results.jsonl"
        path.write_text(json.dumps({**row, "status": "answered", "usage": usage}) + "\n")
        assert read_recorded([path]).input == 100


def phase(wall_s: float, passes: int, shared: ShareRecord | None = None) -> PhaseEvent:
    fields: dict[str, Any] = {"kv_before": 0, "kv_after": 4, "tokens": 4, "token_ids": []}
    fields |= {"predicted": "memory", "observed": "memory", "purpose": "answer"}
    return PhaseEvent(phase="decode", wall_s=wall_s, passes=passes, shared=shared, **fields)


def one_pass(wall_s: float) -> PassEvent:
    return PassEvent(
        number=1, sequences=["a", "b"], rows=[1, 1], kv=[0, 0], own=0, why="all",
        predicted="memory", observed="memory", wall_s=wall_s, share_s=wall_s / 2,
    )  # fmt: skip


def test_time_of_agents_at_once_is_shared() -> None:
    """A phase has its part of the passes that it shared and of the time besides: two agents that
    do everything together take as long as one of them, and not twice as long."""
    together = ShareRecord(passes=4, sequences=2.0, seconds=3.0)
    passes = [one_pass(1.5)] * 4
    assert own_seconds(phase(8.0, 4), []) == 8.0
    assert own_seconds(phase(8.0, 4, together), passes) == 3.0 + (8.0 - 6.0) / 2
    assert own_seconds(phase(8.0, 4, ShareRecord()), []) == 8.0
    half = own_seconds(phase(8.0, 8, together), passes)
    assert 4.0 < half < 8.0
    assert own_seconds(phase(1.0, 4, together), passes) == 1.0


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"usage": {"input_tokens": -1}}', '{"usage": 3}', "nothing\nhere"]
)
def test_files_without_use(text: str, tmp_path: Path) -> None:
    """Each is an error that names the file."""
    path = tmp_path / "odd.jsonl"
    path.write_text(text)
    with pytest.raises((SettingError, TraceError), match=r"odd\.jsonl"):
        read_recorded([path])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"usage": {"input_tokens": 10**400, "output_tokens": 1}}, r"usage\.input_tokens must be"),
        ({"usage": {"input_tokens": -1, "output_tokens": 1}}, r"usage\.input_tokens must be"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """By the file, the row and the field; a count beyond a float was a bug of ours."""
    path = tmp_path / "rows.jsonl"
    good: dict[str, Any] = {"usage": {"input_tokens": 9, "output_tokens": 3}, "passed": True}
    path.write_text("\n".join(json.dumps(row) for row in (good, {**good, **change})))
    with pytest.raises(SettingError, match=told):
        read_recorded([path])


def test_a_column_that_is_no_verdict(tmp_path: Path) -> None:
    """A text named `correct` counted as a right answer, also where there was none."""
    usage = {"prompt": 100, "generated": 10}
    rows = [{"correct": "Rome", "usage": usage, "status": s} for s in ("answered", "error")]
    rows += [{"correct": "Rome", "passed": "", "usage": usage, "status": "error"}]
    rows += [{"correct": verdict, "usage": usage, "status": "error"} for verdict in (True, False)]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_recorded([path])
    assert (found.questions, found.answered) == (5, 2)


def test_power_is_that_of_phases_that_know_it(tmp_path: Path) -> None:
    """Joules over the seconds of the phases that have them; None if none has."""
    assert read_recorded([SEARCH]).watts is None
    lines = [json.loads(line) for line in SEARCH.read_text().splitlines()]
    phases = [one for one in lines if one["event"] == "phase"]
    for phase in phases[1:]:
        phase["joules"] = 65.0 * phase["wall_s"]
    path = tmp_path / "joules.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))

    found = read_recorded([path])

    assert found.watts == pytest.approx(65.0)
    assert found.joules_s == pytest.approx(sum(one["wall_s"] for one in phases[1:]))
