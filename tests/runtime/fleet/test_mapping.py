"""A run: bounds, notes, rows that fail, workers that vanish; with workers that follow a script."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triplepoint import FleetError, RowError
from triplepoint.runtime.fleet.answering import Outcome, Recipe
from triplepoint.runtime.fleet.dispatch import Limits, Task, WorkerState
from triplepoint.runtime.fleet.forecast import predict_left_s
from triplepoint.runtime.fleet.mapping import Bounds, MapRun, Price, poison_path, traces_folder
from triplepoint.runtime.fleet.results import Results
from triplepoint.runtime.fleet.rows import Row, make_rows
from triplepoint.runtime.fleet.workers import Event, Post, Work, trace_name

USAGE = {"prompt": 900, "computed": 600, "cached": 300, "generated": 100, "steps": 2}


def answered(task: Task) -> Outcome:
    return Outcome("answered", f"A of {task.row.question}", usage=dict(USAGE), seconds=36.0)


class Scripted:
    """A worker that answers at once, as a function says; None: it dies, with all that it has."""

    def __init__(self, name: str, answer: Callable[[Task], Outcome | None], slots: int = 1) -> None:
        self.state = WorkerState(name, slots)
        self.ready = self.gone = self.closed = False
        self.given: list[str] = []
        self._answer = answer

    def start(self, post: Post) -> None:
        self._post, self.ready = post, True
        post(Event("ready", self, predicted_s=0.5))

    def give(self, task: Task) -> None:
        self.given.append(task.row.question)
        outcome = self._answer(task)
        if outcome is None:
            self._post(Event("lost", self, why="killed"))
            for one in [*self.state.tasks]:
                self._post(Event("ended", self, one, Outcome("lost", error="killed")))
        else:
            self._post(Event("ended", self, task, outcome))

    def close(self) -> None:
        self.closed = True


def rows(count: int) -> list[Row]:
    return make_rows(("", {"question": f"q{n}"}) for n in range(count))


def mapping(
    count: int, results: Results | None = None, poison: Results | None = None, **more: Any
) -> tuple[MapRun, Results, Results]:
    results, poison = results or Results(None), poison or Results(None)
    work = Work(Recipe(), more.pop("traces", None))
    more.setdefault("limits", Limits(2, 2, 0.01))
    return MapRun(rows(count), work, results, poison, **more), results, poison


def test_a_result_has_its_row_and_what_came_of_it(tmp_path: Path) -> None:
    """Fields of the row, then ours; the trace that an outcome brings is written first."""

    def traced(task: Task) -> Outcome:
        outcome = answered(task)
        outcome.trace, outcome.model = b"{}\n", "m"
        return outcome

    run, results, _ = mapping(1, traces=tmp_path)
    worker = Scripted("w", traced)
    report = run.run([worker])
    (one,) = results

    assert list(one) == [
        *("row", "key", "question", "status", "answer", "model", "trace", "usage", "seconds"),
        *("attempt", "worker"),
    ]
    assert (one["answer"], one["usage"], one["attempt"]) == ("A of q0", USAGE, 1)
    assert (tmp_path.parent / one["trace"]).read_bytes() == b"{}\n"
    assert (report.answered, report.left, report.stopped, worker.closed) == (1, 0, "", True)


def test_rows_that_are_put_before_others(tmp_path: Path) -> None:
    """They are done under numbers that no result has, and neither have their traces; others keep
    theirs, and results are in the order of the rows."""
    results, poison = Results(tmp_path / "r.jsonl"), Results(None)
    work = Work(Recipe(), tmp_path)
    questions = ["a", "b"]
    for added in (["new", "a", "b"], ["newer", "new", "a", "b", "last"]):
        given = make_rows(("", {"question": q}) for q in questions)
        MapRun(given, work, results, poison).run([Scripted("w", answered)])
        questions = added
    given = make_rows(("", {"question": q}) for q in questions)
    MapRun(given, work, results, poison).run([Scripted("w", answered)])
    results.sort({row.key: row.number for row in given})

    found = {one["question"]: one["row"] for one in results}
    assert list(found) == questions
    assert found == {"newer": 6, "new": 3, "a": 1, "b": 2, "last": 5}
    assert all(Path(one["trace"]).name.startswith(f"{one['row']:06d}-") for one in results)
    results.close()


def test_a_result_names_no_trace_that_it_has_not(tmp_path: Path) -> None:
    """Where one could not be written, the row was asked again without."""

    def untraced(task: Task) -> Outcome:
        return replace(answered(task), traced=False)

    run, results, _ = mapping(1, traces=tmp_path)
    run.run([Scripted("w", untraced)])
    (one,) = results
    assert "trace" not in one


def test_a_trace_from_elsewhere(tmp_path: Path) -> None:
    """Only its owner may read it, whatever the umask; one that is not written costs no answer."""

    def traced(task: Task) -> Outcome:
        outcome = answered(task)
        outcome.trace = b"{}\n"
        return outcome

    run, results, _ = mapping(1, traces=tmp_path)
    before = os.umask(0)
    try:
        run.run([Scripted("w", traced)])
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600

    notes: list[str] = []
    run, results, _ = mapping(1, traces=tmp_path / "missing", on_note=notes.append)
    run.run([Scripted("w", traced)])
    assert [(one["status"], "trace" in one) for one in results] == [("answered", False)]
    assert "No such file" in notes[0]


def test_a_row_that_fails_is_tried_again_and_then_set_aside() -> None:
    """The others are done; its trace of the second try has a name of its own."""
    tries: list[str] = []

    def flaky(task: Task) -> Outcome:
        tries.append(trace_name(task))
        first = {"q1": 9, "q2": 1}.get(task.row.question, 0)
        return Outcome("retry", error="no") if task.tries <= first else answered(task)

    run, results, poison = mapping(4)
    report = run.run([Scripted("w", flaky)])

    assert {one["question"]: one["attempt"] for one in results} == {"q0": 1, "q2": 2, "q3": 1}
    (aside,) = poison
    assert (aside["question"], aside["status"], aside["error"]) == ("q1", "poison", "no")
    assert (report.answered, report.aside, report.retries) == (3, 1, 2)
    assert len(set(tries)) == 6


def test_the_row_that_kills_its_worker_is_set_aside() -> None:
    """After so many deaths; what was beside it is answered."""
    run, results, poison = mapping(5)
    killer = Scripted("w", lambda t: None if t.row.question == "q3" else answered(t), slots=3)
    report = run.run([killer])

    assert len(results) == 4
    assert [one["error"] for one in poison] == ["2 workers died while working on it: killed"]
    assert (report.lost, report.aside) == (2, 1)


def test_a_row_is_set_aside_for_what_it_failed_with_last() -> None:
    """Not for a worker that died with it before."""
    tries: list[Task] = []

    def dies_once(task: Task) -> Outcome | None:
        tries.append(task)
        return None if len(tries) == 1 else Outcome("retry", error="HTTP 400")

    run, _, poison = mapping(1, limits=Limits(2, 5, 0.01))
    run.run([Scripted("w", dies_once)])
    assert [(one["error"], one["deaths"]) for one in poison] == [("HTTP 400", 1)]


def test_what_is_done_is_not_done_again() -> None:
    """Results and rows set aside count; those of other rows are refused."""
    run, results, poison = mapping(3)
    run.run([Scripted("w", answered)])
    worker = Scripted("w", answered)
    run, results, poison = mapping(5, results, poison)
    report = run.run([worker])

    assert worker.given == ["q3", "q4"]
    assert (report.earlier, report.finished, len(results)) == (3, 2, 5)
    with pytest.raises(RowError, match="results of 3 rows that are not in the input"):
        mapping(2, results)


def test_nobody_is_left() -> None:
    """When the last worker goes for good the run ends in an error that says why."""

    class Gone(Scripted):
        def give(self, task: Task) -> None:
            self.ready, self.gone = False, True
            self._post(Event("ended", self, task, Outcome("away", error="refused")))
            self._post(Event("gone", self, why="no answer for 60 s"))

    notes: list[str] = []
    run, results, _ = mapping(4, on_note=notes.append)
    with pytest.raises(FleetError, match=r"left; 4 rows without a result .*again.*for 60 s"):
        run.run([Gone("a", answered), Gone("b", answered)])

    assert notes == ["a: no answer for 60 s", "b: no answer for 60 s"]

    good = Scripted("c", answered)
    run, results, _ = mapping(4)
    report = run.run([Gone("a", answered), good])
    assert (len(results), report.lost, sorted(good.given)) == (4, 0, ["q0", "q1", "q2", "q3"])


def test_a_worker_that_is_given_up_gets_no_more_rows() -> None:
    """Not even those of the same turn of handing out; what it had goes elsewhere."""
    run, _, poison = mapping(6, limits=Limits(2, 1, 0.01))

    class GivenUp(Scripted):
        def give(self, task: Task) -> None:
            self.given.append(task.row.question)
            self.ready, self.gone = False, True
            self._post(Event("gone", self, why="silent"))

    first, good = GivenUp("a", answered, slots=4), Scripted("b", answered)
    run.run([first, good])

    assert (first.given, len(poison)) == (["q0"], 0)
    assert sorted(good.given) == ["q0", "q1", "q2", "q3", "q4", "q5"]


def test_until() -> None:
    """When the time is over no row begins; what runs comes to its end."""
    end = time.time() + 0.15

    def slow(task: Task) -> Outcome:
        time.sleep(0.05)
        return answered(task)

    run, results, _ = mapping(50, bounds=Bounds(until=end))
    report = run.run([Scripted("w", slow)])

    assert 1 <= len(results) <= 5
    assert report.left == 50 - len(results)
    assert report.stopped.startswith("it is ")


def test_max_cost() -> None:
    """No row begins that would pass it, nor with eight at once; runs before count."""
    price = Price(tokens_in=1000.0, tokens_cached=100.0, tokens_out=3000.0, hour=1.0)
    each = 0.6 + 0.03 + 0.3 + 0.01
    bounds = Bounds(max_cost=5 * each + 0.01, price=price)
    run, results, poison = mapping(20, bounds=bounds)
    report = run.run([Scripted("w", answered, slots=8)])

    assert [one["cost"] for one in results] == [pytest.approx(each)] * 5
    assert report.numbers["cost"] == pytest.approx(5 * each)
    assert report.left == 15
    assert "are spent" in report.stopped
    more = Bounds(max_cost=6 * each + 0.01, price=price)
    run, results, _ = mapping(20, results, poison, bounds=more)
    assert run.run([Scripted("w", answered, slots=8)]).finished == 1


def test_what_a_server_did_before_it_was_busy_costs_too() -> None:
    """A row that is given back has cost what it has cost; it is not counted as tried again."""
    bounds = Bounds(max_cost=9.5, price=Price(hour=100.0))
    run, results, _ = mapping(20, bounds=bounds)
    asked: list[Task] = []

    def busy(task: Task) -> Outcome:
        asked.append(task)
        return Outcome("away", error="busy", seconds=36.0)

    report = run.run([Scripted("w", busy)])

    assert (list(results), report.left) == ([], 20)
    assert "are spent" in report.stopped
    assert 9 <= len(asked) <= 10


class Later(Scripted):
    """A worker whose rows take a while, but those that fail before they begin."""

    def give(self, task: Task) -> None:
        if task.row.question == "q0":
            self._post(Event("ended", self, task, Outcome("error", error="no such folder")))
        else:
            threading.Timer(0.05, super().give, [task]).start()


def test_max_cost_until_a_row_tells_what_rows_cost() -> None:
    """Rows of a run without a price count with their tokens, and neither they nor one that failed
    before it began let all slots begin at once."""
    bounds = Bounds(max_cost=3.5 * 0.9, price=Price(tokens_in=1000.0))
    run, results, poison = mapping(4)
    run.run([Scripted("w", answered)])
    run, results, _ = mapping(20, results, poison, bounds=bounds)
    run.run([Scripted("w", answered, slots=8)])
    assert len(results) == 4

    run, results, _ = mapping(20, bounds=bounds)
    report = run.run([Later("w", answered, slots=8)])
    assert (report.failed, report.answered) == (1, 3)


def test_a_row_that_is_set_aside_costs_what_its_tries_did() -> None:
    """Its last try is in its result and counts once: four rows of two tries, and no fifth."""
    bounds = Bounds(max_cost=9.5, price=Price(hour=100.0))
    run, _, poison = mapping(20, bounds=bounds, limits=Limits(2, 2, 0.0))
    report = run.run([Scripted("w", lambda _: Outcome("retry", error="no", seconds=36.0))])

    assert (len(poison), report.aside, report.left) == (4, 4, 16)


@pytest.mark.slow
def test_a_row_that_nobody_takes_is_waited_for() -> None:
    """Its pause is over while its server is away: the run does not turn round and round."""
    calls: list[float] = []

    class Away(Scripted):
        def give(self, task: Task) -> None:
            if task.tries > 1:
                super().give(task)
                return
            self.ready = False
            self._post(Event("ended", self, task, Outcome("retry", error="no")))
            threading.Timer(1.0, self.back).start()

        def back(self) -> None:
            self.ready = True
            self._post(Event("ready", self))

    run, results, _ = mapping(1, on_progress=lambda report: calls.append(report.seconds))
    run.run([Away("w", answered)])

    assert len(results) == 1
    assert len(calls) < 15


def test_failed_rows_of_another_input_stay() -> None:
    """Where the rows are refused, nothing is forgotten; else those that failed are to be done."""
    run, results, poison = mapping(3)
    run.run([Scripted("w", lambda _: Outcome("error", error="no"))])
    with pytest.raises(RowError, match="not in the input"):
        mapping(2, results, poison, retry_failed=True)
    assert len(results) == 3

    run, results, _ = mapping(3, results, poison, retry_failed=True)
    assert (len(run.todo), run.report.earlier, len(results)) == (3, 0, 0)


def test_progress_tells_the_state() -> None:
    """The last report is the whole; before it the time left is known by prediction."""
    seen: list[tuple[int, float | None]] = []
    run, *_ = mapping(3, on_progress=lambda report: seen.append((report.left, report.left_s)))
    run.run([Scripted("w", answered)])

    assert seen[0] == (3, None)
    assert all(left is not None for _, left in seen[1:])
    assert seen[-1] == (0, 0.0)


def test_a_prediction_counts_less_with_each_row() -> None:
    """First the model's word, then what was seen."""
    assert predict_left_s(10, 0, 0.0, 0.0, 0) is None
    assert predict_left_s(10, 0, 0.0, 1.0, 2) == pytest.approx(5.0)
    assert predict_left_s(10, 1000, 3000.0, 1.0, 2) == pytest.approx(30.0, rel=0.02)


def test_files_beside_the_results() -> None:
    """Where rows are set aside and traces go."""
    path = Path("x/r.jsonl")
    assert (poison_path(path), traces_folder(path)) == (
        Path("x/r.poison.jsonl"),
        Path("x/r.traces"),
    )
