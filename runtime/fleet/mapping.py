"""Maps an agent over rows: sends rows to workers and writes results until all are done.

rows ─► Dispatcher ─► workers ─► events ─► Results (durable) ─► progress
           ▲                        │
           └── tries again, goes elsewhere, is set aside
"""

from __future__ import annotations

import itertools
import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import FleetError, RowError
from .answering import Outcome
from .dispatch import Dispatcher, Limits, Task
from .forecast import predict_left_s
from .results import Results
from .rows import Row
from .workers import Event, Post, Work, Worker

_POLL_S = 0.5


@dataclass(frozen=True)
class Price:
    """Prices of a million tokens, and of an hour of one row's slot."""

    tokens_in: float = 0.0
    tokens_cached: float | None = None
    tokens_out: float = 0.0
    hour: float = 0.0

    def of(self, outcome: Outcome) -> float:
        """Return the cost of one try of a row."""
        return self.of_usage(outcome.usage, outcome.seconds)

    def of_usage(self, usage: Mapping[str, float], seconds: float) -> float:
        """Return the cost of a row's tokens and seconds."""
        cached = self.tokens_in if self.tokens_cached is None else self.tokens_cached
        tokens = usage.get("computed", 0) * self.tokens_in
        tokens += usage.get("cached", 0) * cached + usage.get("generated", 0) * self.tokens_out
        return tokens / 1e6 + seconds / 3600 * self.hour

    @property
    def free(self) -> bool:
        """Whether all prices are 0."""
        return not (self.tokens_in or self.tokens_cached or self.tokens_out or self.hour)


@dataclass(frozen=True)
class Bounds:
    """Bounds after which a run starts no more rows.

    Attributes:
        until: time of the clock, as `time.time`.
        max_cost: of all rows in the results, those of runs before included.
    """

    until: float | None = None
    max_cost: float | None = None
    price: Price = Price()


@dataclass
class MapReport:
    """A summary of a run.

    Attributes:
        rows: of the input; earlier: those that had a result before; left: those that have none.
        answered, limit, failed, aside: by status, of all results. Aside: set aside as poison.
        seconds: of this run; finished: rows in it.
        retries, lost: tries beyond the first of a row; workers that died.
        left_s: seconds until it is done, if that is known; not at the end.
        numbers: tokens, seconds and cost of all results, by name.
        stopped: why it ended before all rows were done; empty if it did not.
        notes: of workers that went away, died or came back.
    """

    rows: int
    earlier: int = 0
    left: int = 0
    answered: int = 0
    limit: int = 0
    failed: int = 0
    aside: int = 0
    running: int = 0
    workers: int = 0
    seconds: float = 0.0
    finished: int = 0
    retries: int = 0
    lost: int = 0
    left_s: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    stopped: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def rows_per_s(self) -> float:
        """Rows per second of this run."""
        return self.finished / self.seconds if self.seconds else 0.0


class MapRun:
    """A run: sends rows to workers and writes their results, until all are done.

    Args:
        rows: of the input.
        results: where results go; those that are there count as done.
        poison: where dead-lettered rows go; those that are there count as done, too.
        retry_failed: whether those that failed or were set aside before are done again.
        on_progress: called with the state after each batch of events, and twice a second.
        on_note: called with notes on workers.

    Raises:
        RowError: the results are of other rows.

    Attributes:
        todo: rows that have no result yet.
        report: what it did so far.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        work: Work,
        results: Results,
        poison: Results,
        *,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        retry_failed: bool = False,
        on_progress: Callable[[MapReport], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        keys = {row.key for row in rows}
        foreign = [key for key in (*results.done, *poison.done) if key not in keys]
        if foreign:
            raise RowError(
                f"{results.path} has results of {len(foreign):,} rows that are not in the input "
                f"(the first has the key {foreign[0]}); give another file, or the same rows"
            )
        if retry_failed:  # what is refused above is left as it is
            results.forget_failed()
            poison.forget_failed()
        self.report = MapReport(len(rows))
        self.report.earlier = len(results) + len(poison)
        todo = [r for r in rows if r.key not in results.done and r.key not in poison.done]
        self.todo = _numbered(todo, {*results.row_numbers.values(), *poison.row_numbers.values()})
        self._dispatcher = Dispatcher(self.todo, limits)
        self._workers: list[Worker] = []
        self._work, self._results, self._poison = work, results, poison
        self._bounds = bounds or Bounds()
        self._on_progress, self._on_note = on_progress, on_note
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._predicted: dict[str, float] = {}
        self._began = self._first = time.monotonic()
        self._gone: set[str] = set()
        self._wasted = 0.0  # cost of tries that are in no result
        self._report()

    def run(
        self, workers: Sequence[Worker], begin: Callable[[Post], None] = lambda post: None
    ) -> MapReport:
        """Run until all rows are done, a bound is reached, or no worker is left.

        Args:
            workers: those that there are now.
            begin: called with the callback for workers that join later.

        Raises:
            FleetError: no worker is left.
            OSError: the results cannot be written.
        """
        self._began = self._first = time.monotonic()
        self._workers = list(workers)
        try:
            for worker in self._workers:
                worker.start(self._events.put)
            begin(self._events.put)
            self._loop()
        except KeyboardInterrupt:
            self._close()
            self._take(self._happened())  # what came to its end until then
            raise
        finally:
            self._close()
            self._report()
            self.report.left_s = None
        return self.report

    def _close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _loop(self) -> None:
        dispatcher = self._dispatcher
        while dispatcher.left:
            dispatcher.wake()  # else a row that no worker takes would end each wait at once
            self.report.stopped = self._bound()
            if not self.report.stopped:
                self._hand_out()
            elif not any(worker.state.tasks for worker in self._workers):
                return
            if self._gone.issuperset(worker.state.name for worker in self._workers):
                left = dispatcher.left
                raise FleetError(
                    f"no workers are left; {left:,} row{'s' * (left != 1)} without a result (run "
                    "the same again to resume). The last worker: "
                    f"{(self.report.notes or ['it never started'])[-1]}"
                )
            self._take(self._wait())
            self._report()
        self.report.stopped = ""

    def _hand_out(self) -> None:
        """Give each free worker a row in turn, until none takes another."""
        workers: Sequence[Worker] = self._workers
        while workers:
            workers = [worker for worker in workers if self._give(worker)]

    def _give(self, worker: Worker) -> bool:
        if not worker.ready or worker.gone or self._bound():  # each row that is begun costs
            return False
        task = self._dispatcher.next_for(worker.state)
        if task is not None:
            worker.give(task)
        return task is not None

    def _bound(self) -> str:
        """Return why no more rows are started; empty if they are."""
        bounds = self._bounds
        if bounds.until is not None and time.time() >= bounds.until:
            return f"it is {time.strftime('%H:%M', time.localtime(bounds.until))}"
        if bounds.max_cost is not None:
            spent = self._spent()
            running = sum(len(worker.state.tasks) for worker in self._workers)
            # A row is expected to cost as much as the dearest; until one is known, one runs.
            expected = max(self._results.dearest, self._poison.dearest) * (running + 1)
            if spent + expected > bounds.max_cost:
                return f"{spent:,.4g} are spent, and one more row would exceed the limit"
            if running and not (self._results.priced or self._poison.priced):
                return "the cost of the first row is not known yet"
        return ""

    def _spent(self) -> float:
        """Return the cost of all rows so far."""
        spent = self._wasted
        for found in (self._results, self._poison):
            # Rows of an earlier run without a price have cost something, too.
            missing = self._bounds.price.of_usage(found.unpriced, found.unpriced["seconds"])
            spent += found.numbers.get("cost", 0.0) + missing
        return spent

    def _wait(self) -> list[Event]:
        """Return the next events, or none after a timeout."""
        try:
            first = self._events.get(timeout=self._dispatcher.wait_s(_POLL_S) or 0.01)
        except queue.Empty:
            return []
        return [first, *self._happened()]

    def _happened(self) -> list[Event]:
        events: list[Event] = []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    # --- what came of it

    def _take(self, events: Sequence[Event]) -> None:
        """Handle a batch of events; its results are written together, since a sync is slow."""
        finished: list[dict[str, Any]] = []
        aside: list[dict[str, Any]] = []
        for event in events:
            if event.what == "ended":
                self._ended(event, finished, aside)
            elif event.what == "new":
                self._workers.append(event.worker)
                event.worker.start(self._events.put)
            elif event.what == "ready":
                if event.predicted_s:
                    self._predicted[event.worker.state.name] = event.predicted_s
                    if not self.report.finished:  # loading the model is no part of a row
                        self._first = time.monotonic()
            else:
                self._note(f"{event.worker.state.name}: {event.why}")
                if event.what == "gone":
                    self._gone.add(event.worker.state.name)
                    self._dispatcher.dismiss(event.worker.state)
                self.report.lost += event.what == "lost"
        self._results.add(finished)
        self._poison.add(aside)

    def _ended(
        self, event: Event, finished: list[dict[str, Any]], aside: list[dict[str, Any]]
    ) -> None:
        task, outcome, state = event.task, event.outcome, event.worker.state
        assert task is not None and outcome is not None  # noqa: PT018
        cost, dispatcher = self._bounds.price.of(outcome), self._dispatcher
        if task not in state.tasks:  # of a worker that was given up
            self._wasted += cost
        elif outcome.status in ("away", "cancelled"):
            self._wasted += cost
            dispatcher.give_back(state, task)
        elif outcome.status in ("dropped", "retry", "lost"):
            again = {"dropped": dispatcher.drop, "retry": dispatcher.fail, "lost": dispatcher.lose}
            if again[outcome.status](state, task, outcome.error):
                aside.append(self._poisoned(task, event.worker, outcome))  # with its cost
            else:
                self._wasted += cost
        else:
            dispatcher.finish(state, task)
            result = self._result(task, event.worker, outcome)
            path = self._work.trace_of(task)
            if outcome.trace is not None and path is not None:
                try:
                    _write_trace(path, outcome.trace)
                except OSError as error:  # the answer counts without it
                    self._note(f"cannot write the trace {path}: {error.strerror}")
                    result.pop("trace", None)
            finished.append(result)

    def _result(self, task: Task, worker: Worker, outcome: Outcome) -> dict[str, Any]:
        """Return the result line of a row."""
        row = task.row
        result: dict[str, Any] = {"row": row.number + 1, "key": row.key, **row.fields}
        result["status"], result["answer"] = outcome.status, outcome.answer
        if outcome.output is not None:
            result["output"] = outcome.output
        if outcome.error:
            result["error"] = outcome.error
        if outcome.model:
            result["model"] = outcome.model
        trace = self._work.trace_of(task)
        if trace is not None and outcome.usage and outcome.traced:
            path = self._results.path
            folder = None if path is None else path.resolve().parent
            result["trace"] = str(trace) if folder is None else os.path.relpath(trace, folder)
        result["usage"], result["seconds"] = outcome.usage, round(outcome.seconds, 6)
        result["attempt"] = task.tries
        if task.deaths:
            result["deaths"] = task.deaths
        host = f"@{outcome.host}" if outcome.host else ""
        result["worker"] = f"{worker.state.name}{host}"
        if not self._bounds.price.free:
            result["cost"] = round(self._bounds.price.of(outcome), 9)
        return result

    def _poisoned(self, task: Task, worker: Worker, outcome: Outcome) -> dict[str, Any]:
        """Return the dead-letter line of a row."""
        result = self._result(task, worker, outcome)
        result.update(status="poison", error=task.failures[-1])
        if outcome.status == "lost":
            result["error"] = f"{task.deaths} workers died while working on it: {task.failures[-1]}"
        return result

    def _note(self, text: str) -> None:
        self.report.notes.append(text)
        if self._on_note is not None:
            self._on_note(text)

    def _report(self) -> None:
        report, dispatcher = self.report, self._dispatcher
        counts = self._results.counts
        report.answered, report.limit = counts["answered"], counts["limit"]
        report.failed = counts["error"]
        report.aside = len(self._poison)
        report.left, report.retries = dispatcher.left, dispatcher.retries
        report.running = sum(len(worker.state.tasks) for worker in self._workers)
        report.workers = sum(worker.ready and not worker.gone for worker in self._workers)
        now = time.monotonic()
        report.seconds = now - self._began
        report.finished = report.rows - report.left - report.earlier
        report.numbers = dict(self._results.numbers)
        row_s = sum(self._predicted.values()) / max(1, len(self._predicted))
        seconds = now - self._first
        report.left_s = predict_left_s(report.left, report.finished, seconds, row_s, report.workers)
        if self._on_progress is not None:
            self._on_progress(report)


def _numbered(rows: Sequence[Row], taken: set[Any]) -> list[Row]:
    """Renumber rows whose number a result has already, since rows may have been inserted.

    One whose number is taken gets the next that is free for all.
    """
    numbers = [number for number in taken if isinstance(number, int)]
    free = itertools.count(max([*numbers, *(row.number + 1 for row in rows)], default=0))
    return [replace(r, number=next(free)) if r.number + 1 in taken else r for r in rows]


def _write_trace(path: Path, trace: bytes) -> None:
    """Write a trace that only its owner can read, since it quotes files."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(trace)


def poison_path(path: Path) -> Path:
    """Return the dead-letter file of a results file."""
    return _sibling(path, f"{path.stem}.poison{path.suffix or '.jsonl'}")


def traces_folder(path: Path) -> Path:
    """Return the trace folder of a results file."""
    return _sibling(path, f"{path.stem}.traces")


def _sibling(path: Path, name: str) -> Path:
    if not path.name:
        raise RowError(f"the results must be a file, and {str(path)!r} is a folder")
    return path.with_name(name)
