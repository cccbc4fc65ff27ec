"""``triplepoint map``: run an agent on every row of a file; write a result line for each."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RowError, SettingError
from ...tools import Policy
from ...traces.timeline import duration
from ..config import default_model
from ..fleet.answering import Recipe
from ..fleet.api import Fleet, close_results, open_results, parse_target, read_price, run_map
from ..fleet.dispatch import Limits
from ..fleet.mapping import Bounds, MapReport, poison_path, traces_folder
from ..fleet.rows import Row, folder_rows, read_rows
from .agent_options import harness_given
from .conversation import read_schema
from .exit_codes import Exit
from .load_engine import (
    EngineOptions,
    decoding_of,
    flags_set,
    is_server,
    load_engine,
)
from .output import Output, joined
from .sampling_options import sampling_of

if TYPE_CHECKING:
    from ..engine.engine import Engine

_TOLD_EVERY_S = 30.0  # where no terminal shows the progress


def run(args: argparse.Namespace, output: Output) -> int:
    """Run the agent on each row; completed rows are in the results, however the run ends."""
    prices = read_price(dict(args.price or ()))
    if args.max_cost is not None and prices.free:
        raise SettingError("--max-cost needs --price: in=X and out=X per million tokens, or hour=X")
    if args.output == "-":
        raise SettingError("-o must be a file, so that a stopped run can resume; - is not one")
    fleet, recipe = _fleet(args, output), _recipe(args)
    rows = _rows(args)
    _check_folder(args, fleet, rows)
    path = Path(args.output)
    traces = None if args.trace is False else Path(args.trace or traces_folder(path))
    results, poison = open_results(path)
    progress = _Progress(output, args)
    try:
        report = run_map(
            rows,
            recipe,
            fleet,
            results=results,
            poison=poison,
            traces=traces,
            order=args.order,
            limits=Limits(args.attempts),
            bounds=Bounds(args.until, args.max_cost, prices),
            retry_failed=args.retry_failed,
            on_progress=progress,
            on_note=None if args.quiet else output.note,
        )
    finally:
        output.progress.clear()
        close_results(results, poison)
    if not args.quiet:
        for line in _summary(report):
            output.line(line)
    problem = _problem(report, poison_path(path))
    if problem:
        output.error(problem)
    elif report.stopped:
        left = f"{report.left:,} rows are left; run the same command to continue"
        output.note(f"stopped: {report.stopped}; {left}")
    output.json({**asdict(report), "results": str(path), "error": problem})
    if problem:
        return Exit.FAILED
    return Exit.LIMIT if report.stopped else Exit.OK


def _rows(args: argparse.Namespace) -> list[Row]:
    if (args.questions is None) == (args.dir_from is None):
        raise SettingError("no rows: give a QUESTIONS file, or --dir-from FOLDER with --question")
    if args.dir_from is None:
        return read_rows(args.questions, args.question)
    if args.question is None:
        raise SettingError("--dir-from needs a --question, such as 'What failed in {name}?'")
    return folder_rows(args.dir_from, args.question)


def _check_folder(args: argparse.Namespace, fleet: Fleet, rows: Sequence[Row]) -> None:
    """Refuse a missing folder before every row fails; a cluster may have its own absolute one."""
    folder: str = args.dir or "."
    elsewhere = fleet.target.kind == "ray" and Path(folder).is_absolute()
    used = any(row.dir is None for row in rows) and not elsewhere
    if used and not Path(folder).is_dir():
        raise RowError(f"--dir: no such folder: {folder}")


def _recipe(args: argparse.Namespace) -> Recipe:
    if args.policy:
        Policy.load(args.policy, args.mode)  # what is wrong with it is said once, not in each row
    return Recipe(
        dir=args.dir or ".",
        schema=read_schema(args.schema) if args.schema else None,
        tools=tuple(args.tools or ()),
        mode=args.mode,
        policy=args.policy,
        allow_private_network=args.allow_private_network,
        max_steps=args.max_steps,
        max_tokens=args.max_tokens,
        sampling=sampling_of(args),
        agent={
            "timeout": args.timeout,
            "compact": args.auto_compact,
            "repetition_stop": args.repetition_stop,
            "harness": harness_given(args.harness),
            **args.think,
            "context": args.context,
            "redact": args.redact,
        },
    )


def _fleet(args: argparse.Namespace, output: Output) -> Fleet:
    target = parse_target(args.to, args.parallel)
    if target.kind != "ray" and (args.workers or args.worker_memory):
        raise SettingError(
            "--workers and --worker-memory need a cluster: --to auto or --to ray://HOST:PORT"
        )

    def load(model: str | None) -> Engine:
        one = copy.copy(args)
        one.model = model or args.model
        return load_engine(one, output)

    model = args.model or default_model().value
    if target.kind != "http" and is_server(model):
        raise SettingError(f"rows run on a server with --to {model}, not as a model (-m)")
    names = ("threads", "target", "kv", "context", "kv_memory", "cache_packed_weights")
    options = {name: getattr(args, name) for name in names}
    if target.kind == "http":
        for flag in flags_set(args, EngineOptions.omit("model", "context").options):
            raise SettingError(f"{flag} has no effect: a server has already loaded its model")
    options |= decoding_of(args)
    return Fleet(
        target,
        args.model,
        load=load,
        options={name: value for name, value in options.items() if value is not None},
        patience_s=args.patience,
        context=args.context,
        workers=args.workers,
        threads=args.threads,
        memory=args.worker_memory,
    )


# --- what is told of it


class _Progress:
    """A progress line that is redrawn on a terminal; elsewhere occasional lines."""

    def __init__(self, output: Output, args: argparse.Namespace) -> None:
        self._output, self._quiet = output, args.quiet or args.json
        self._told = time.monotonic()

    def __call__(self, report: MapReport) -> None:
        if self._quiet:
            return
        text = " · ".join(filter(None, _state(report)))
        self._output.progress.show(text)
        if not self._output.aside.is_terminal and time.monotonic() - self._told > _TOLD_EVERY_S:
            self._told = time.monotonic()
            self._output.aside.line(text)


def _state(report: MapReport) -> list[str]:
    failed = report.failed + report.aside
    return [
        f"{report.rows - report.left:,} of {report.rows:,} rows",
        f"{report.rows_per_s:.3g} rows/s" if report.finished else "",
        f"{duration(report.left_s)} left" if report.left_s is not None and report.left else "",
        f"{failed:,} failed" if failed else "",
        f"{report.running:,} running",
    ]


def _summary(report: MapReport) -> list[str]:
    numbers = report.numbers
    prompt, cached = numbers.get("prompt", 0), numbers.get("cached", 0)
    share = f" ({cached / prompt:.0%} cached)" if prompt else ""
    cost = f"cost {numbers['cost']:,.4g}" if "cost" in numbers else ""
    statuses = (
        (report.answered, "answered"),
        (report.limit, "ended by a limit"),
        (report.failed, "failed"),
        (report.aside, "set aside"),
        (report.left, "left"),
    )
    told = ", ".join(f"{count:,} {what}" for count, what in statuses if count)
    first = f"{report.rows:,} rows: {told or 'none'}"
    parts = [
        f"{report.finished:,} in {duration(report.seconds)}" if report.finished else "",
        f"{report.rows_per_s:.3g} rows/s" if report.finished else "",
        f"{report.earlier:,} were already done" if report.earlier else "",
        f"{prompt:,.0f} prompt tokens{share}, {numbers.get('generated', 0):,.0f} generated",
        f"{report.retries:,} tried again" if report.retries else "",
        f"{report.lost:,} workers lost" if report.lost else "",
        cost,
    ]
    return [first, *joined(parts, None)]


def _problem(report: MapReport, poison: Path) -> str:
    """Summarize what failed in one line; "" if nothing did."""
    parts: list[Any] = []
    if report.failed:
        parts.append(
            f"{report.failed:,} of {report.rows:,} rows failed; see `error` in their results"
        )
    if report.aside:
        parts.append(f"{report.aside:,} were set aside in {poison}")
    return "; ".join([*parts, "--retry-failed asks them again"]) if parts else ""
