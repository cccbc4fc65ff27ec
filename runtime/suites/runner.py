"""Runs a suite, or resumes one from its results."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import interrupts
from ...errors import SettingError
from .attempt import attempt
from .checks import Judge, check_requirements
from .definition import Model, Setting, Suite, Task
from .judge import ModelJudge
from .results import Key, ResultsFile, Row, key_of

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..remote import RemoteEngine

Load = Callable[[Model], "Engine | RemoteEngine"]
Progress = Callable[[Row, int, int], None]


@dataclass(frozen=True)
class Job:
    """An attempt to run."""

    task: Task
    model: Model
    setting: Setting
    repeat: int
    cell: str

    @property
    def key(self) -> Key:
        """Return the attempt's key, equal to `results.key_of` of its row."""
        return self.task.id, self.model.name, self.setting.name, self.repeat


def jobs_of(suite: Suite) -> list[Job]:
    """Return all attempts, grouped by model so that each model is loaded once."""
    return [
        Job(task, model, setting, repeat, suite.cell(task, model, setting))
        for model in suite.models
        for setting in suite.settings
        for repeat in range(suite.repeats)
        for task in suite.tasks
    ]


def current_rows(suite: Suite, rows: Iterable[Row]) -> list[Row]:
    """Return the rows of jobs that are unchanged in the suite, with its current groups."""
    jobs = {job.key: job for job in jobs_of(suite)}
    known = [(row, jobs.get(key_of(row))) for row in rows]
    return [
        {**row, "group": job.task.group} for row, job in known if job and job.cell == row["cell"]
    ]


def run_suite(
    suite: Suite,
    results: ResultsFile,
    load: Load,
    *,
    parallel: int = 1,
    traces: Path | None = None,
    tell: Progress | None = None,
) -> None:
    """Run the attempts of a suite that the results lack.

    Args:
        load: loads the engine of a model; it is closed after the model's last attempt.
        parallel: number of concurrent attempts on one engine, batched in its passes.
        traces: folder for a trace of each attempt.
        tell: called after each attempt with its row, the attempts done, and their total.
    """
    check_requirements(suite)
    hidden = [Path(os.path.abspath(path)) for path in (results.path, traces) if path is not None]
    _check_traces_apart(suite, traces)
    jobs = jobs_of(suite)
    rows = current_rows(suite, results.rows.values())
    done = {key_of(row) for row in rows if row["status"] != "error"}
    todo = [job for job in jobs if job.key not in done]
    count = len(jobs) - len(todo)
    with ExitStack() as stack:
        judge = _judge(suite, todo, load, stack)
        for model in suite.models:
            mine = [job for job in todo if job.model == model]
            if not mine:
                continue
            with closing(load(model)) as engine:
                for row in _rows(suite, mine, engine, judge, parallel, traces, hidden):
                    results.add(row)
                    count += 1
                    if tell is not None:
                        tell(row, count, len(jobs))


def _check_traces_apart(suite: Suite, traces: Path | None) -> None:
    """Refuse a trace folder that is a task's folder, as it cannot be hidden from the tools."""
    if traces is None:
        return
    for task in suite.tasks:
        folder = suite.folder_of(task)
        if folder is not None and os.path.realpath(folder) == os.path.realpath(traces):
            raise SettingError(
                f"traces would be written to {traces}, the folder of task {task.id}; give another "
                "folder with --trace"
            )


def _judge(suite: Suite, todo: list[Job], load: Load, stack: ExitStack) -> Judge | None:
    """Load the judge if a pending attempt needs it."""
    needed = any(c.judge for job in todo for q in job.task.questions for c in q.checks)
    if suite.judge is None or not needed:
        return None
    return ModelJudge(stack.enter_context(closing(load(suite.judge))))


def _rows(
    suite: Suite,
    jobs: list[Job],
    engine: Any,
    judge: Judge | None,
    parallel: int,
    traces: Path | None,
    hidden: Sequence[Path],
) -> Iterator[Row]:
    """Yield the row of each attempt as it finishes."""
    stop = threading.Event()

    def one(job: Job) -> Row | None:
        if stop.is_set():
            return None
        path = None if traces is None else traces / _trace_name(job)
        made = attempt(
            suite,
            job.task,
            job.setting,
            engine,
            job.repeat,
            judge=judge,
            trace=path,
            hidden=hidden,
        )
        names = ("task", "model", "setting", "repeat")
        about = dict(zip(names, job.key, strict=True))
        return {"suite": suite.name, **about, "group": job.task.group, "cell": job.cell, **made}

    if parallel == 1:
        for job in jobs:
            row = one(job)
            assert row is not None
            yield row
        return
    with ThreadPoolExecutor(parallel) as pool:
        waiting = iter(jobs)
        running: set[Future[Row | None]] = set()
        try:
            while True:
                for job in waiting:
                    with interrupts.held():
                        running.add(pool.submit(one, job))
                    if len(running) >= parallel:
                        break
                if not running:
                    return
                for future in interrupts.completed(running):
                    running.remove(future)
                    if (row := future.result()) is not None:
                        yield row
                    break
        except KeyboardInterrupt:
            stop.set()
            for future in interrupts.completed(running):  # they cannot be ended, so they count
                if (row := future.result()) is not None:
                    yield row
            raise
        finally:
            stop.set()


def _trace_name(job: Job) -> str:
    """Return a file name for an attempt's trace, with other characters replaced by dashes."""
    text = "-".join((job.task.id, job.model.name, job.setting.name, str(job.repeat)))
    safe = "".join(c if c.isalnum() or c in "._" else "-" for c in text)[-120:]
    return f"{safe.lstrip('.-')}-{job.cell[:6]}.jsonl"
