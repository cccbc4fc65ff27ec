"""``triplepoint eval``: a suite of tasks with checks, run on models under settings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SettingError
from ..suites.definition import Model, Suite, Task, read_suite
from ..suites.report import Section as ReportSection
from ..suites.report import as_json, as_page, sections
from ..suites.results import ResultsFile, Row, read_rows
from ..suites.runner import current_rows, run_suite
from ..suites.statistics import score
from .atomic_write import atomic_write, check_outputs
from .exit_codes import Exit
from .load_engine import load_model
from .output import Output
from .tables import plain

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..remote import RemoteEngine


def run(args: argparse.Namespace, output: Output) -> int:
    """Run the attempts without a result, then show the results of all."""
    check_outputs(args.html)
    suite = _chosen(read_suite(args.suite), args)
    place = Path(args.output or f"{Path(args.suite).stem}.results.jsonl")
    output.facts["results"] = str(place)
    if args.trace:
        Path(args.trace).mkdir(parents=True, exist_ok=True)
    if args.report_only:
        rows = read_rows(place)
    else:
        with ResultsFile(place, fresh=args.fresh) as results, output.progress:
            run_suite(
                suite,
                results,
                lambda model: _load(model, output),
                parallel=args.parallel,
                traces=Path(args.trace) if args.trace else None,
                tell=_Teller(output),
            )
            rows = list(results.rows.values())
    rows = current_rows(suite, rows)
    _show(output, sections(suite, rows), misses=args.misses)
    if args.html:
        with atomic_write(args.html) as file:
            file.write(as_page(suite, rows))
        output.line(args.html)
    output.aside.line(f"results: {place}", "dim")
    output.json({**as_json(suite, rows), "results": str(place)})
    return _verdict(suite, rows, args, output)


def _chosen(suite: Suite, args: argparse.Namespace) -> Suite:
    """Apply the models, repeats and tasks of the arguments to a suite."""
    changed: dict[str, object] = {}
    if args.model:
        known = {model.name: model for model in suite.models}
        names = dict.fromkeys(args.model)
        changed["models"] = [known.get(n) or Model(name=n, model=n) for n in names]
    if args.repeats:
        changed["repeats"] = args.repeats
        changed["k"] = [k for k in suite.k if k <= args.repeats] or [1]
    if args.task:
        tasks = [
            task
            for task in suite.tasks
            if any(name.startswith(tuple(args.task)) for name in _names(task))
        ]
        if not tasks:
            ids = [task.id for task in suite.tasks]
            names = ", ".join([*ids[:10], "…"] if len(ids) > 10 else ids)
            raise SettingError(
                f"--task: no task or group has a name that starts like this; there are {names}"
            )
        changed["tasks"] = tasks
    return suite.model_copy(update=changed)


def _names(task: Task) -> list[str]:
    """Return the names that select a task: its own, its group's, and its turns' groups."""
    return [task.id, task.group, *(turn.group or "" for turn in task.turns)]


def _load(model: Model, output: Output) -> Engine | RemoteEngine:
    """Load the engine of a suite's model, as `triplepoint run` does."""
    args = argparse.Namespace(
        model=model.model,
        threads=model.threads,
        target=None,
        kv=model.kv,
        context=model.context,
        json=output.as_json,
    )
    return load_model(args, output)


class _Teller:
    """Progress of a suite on a terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._right = 0
        self._made = 0

    def __call__(self, row: Row, done: int, total: int) -> None:
        self._made += 1
        self._right += bool(row["passed"])
        if row["status"] == "error":
            self._output.note(f"{row['task']}: {row['error']}")
        what = f"{done:,} of {total:,} attempts, {self._right:,} of {self._made:,} passed"
        self._output.progress.loading(done / total, what)


def _show(output: Output, found: Sequence[ReportSection], *, misses: bool) -> None:
    for number, (report, table) in enumerate(found):
        if report.name == "misses" and not misses:
            continue
        if number:
            output.line()
            output.line(report.title, "bold")
        headings = [column.heading for column in table.columns]
        plain(output, headings, table.cells(), table.words)


def _verdict(suite: Suite, rows: Sequence[Row], args: argparse.Namespace, output: Output) -> int:
    """Return the exit status: failed below the min accuracy, or while attempts are missing."""
    scores = score(suite, rows)
    missing = sum(one.wanted - one.attempts + one.errors for one in scores)
    if missing:
        output.note(
            f"{missing:,} attempts are missing or failed for technical reasons; run the same "
            "command again"
        )
    if args.min_accuracy is None:
        return Exit.OK
    low = [one for one in scores if (one.accuracy or 0.0) < args.min_accuracy]
    for one in low:
        found = f"{one.accuracy:.1%}" if one.accuracy is not None else "not known yet"
        asked = f"{args.min_accuracy:.1%} was asked for"
        output.error(f"{one.model}, {one.setting}: accuracy is {found}; {asked}")
    return Exit.FAILED if low or missing else Exit.OK
