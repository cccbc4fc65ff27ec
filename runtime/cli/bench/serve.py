"""``triplepoint bench serve N``: N agents at once on a server, ours or any other."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ....errors import SettingError, TraceError
from ...bench.load import Load, measure
from ...bench.load_client import HttpClient, model_of
from ...bench.load_work import Work
from ...replay import examples
from ...replay.workload import chosen_run, work_items
from ..load_engine import EngineOptions, flags_set
from ..output import Output
from ..tables import Column, Row, percent, rate, show
from .options import form_of

RUNS = ("chat", "search")  # whose tools' times are known
TIMES = (("TTFT s", "ttft", 1.0), ("TPOT ms", "tpot", 1e3), ("gap ms", "gap", 1e3))
_OF_SERVER = ("without", "parallel")


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print a row for each number of agents; return 1 if no job completed."""
    _check(args)
    columns = [Column("agents", 6), Column("jobs/h", 7)]
    columns += [Column(f"{name} {q}", 12) for name, _, _ in TIMES for q in ("p50", "p99")]
    columns += [Column("gap ms max", 10), Column("good", 5), Column("failed", 6)]
    columns += [Column(name, 9) for name in ("given", "computed", "written")]
    columns += [Column("computed by new", 15)]
    ended: list[bool] = []
    show(output, form_of(args), columns, _rows(args, output, ended))
    return int(not any(ended))


def _check(args: argparse.Namespace) -> None:
    """Refuse options of a server or an engine that this run does not start.

    Raises:
        SettingError: one was given.
    """
    if args.url is not None:
        refused, own = ("in_process", *_OF_SERVER, *EngineOptions.options), "--url"
        why = "a running server has its own model and settings"
    elif args.in_process:
        refused, own, why = _OF_SERVER, "--in-process", "there is no server"
    else:
        return
    for flag in flags_set(args, refused):
        raise SettingError(f"{flag} cannot be combined with {own}: {why}")


def _rows(args: argparse.Namespace, output: Output, ended: list[bool]) -> Iterator[Row]:
    for round_ in range(args.repetitions):
        for agents in args.agents:
            # A server knows what it was asked before: each measurement has texts of its own.
            work = _work(args, agents, args.seed + round_)
            with _client(args, output, work) as connect:
                load = measure(work, connect)
            for error in dict.fromkeys(load.failures):
                output.error(error)
            ended += (not job.failed for job in load.jobs)
            yield _row(load)


def _work(args: argparse.Namespace, agents: int, seed: int) -> Work:
    if len(args.results) != 2:
        raise SettingError("--results takes two numbers, such as 200,5000")
    least, most = args.results
    pauses = _recorded_pauses() if args.pause is None else (args.pause,)
    return Work(agents, args.turns, args.system, least, most, args.reply, seed, pauses)


def _recorded_pauses() -> tuple[float, ...]:
    """Return the durations of tool calls in recorded runs, in seconds."""
    try:
        runs = [chosen_run(examples.load(name), -1)[0] for name in RUNS]
    except TraceError as error:
        raise TraceError(
            f"{error}; without recorded runs, set the time of tools with --pause S"
        ) from None
    return tuple(work.wait_s for run in runs for work in work_items(run) if work.wait_s > 0)


@contextmanager
def _client(args: argparse.Namespace, output: Output, work: Work) -> Iterator[Any]:
    """Yield a factory of agents' clients; on exit, stop the server if this started it."""
    # Words that are drawn do not repeat themselves, so that no server can draft them.
    options = {"temperature": args.temperature, "top_k": 40, "seed": work.seed}
    if args.in_process:
        from ..engine_client import engine_client  # and with it an engine

        with engine_client(args, output, options, work) as connect:
            yield connect
        return
    key = os.environ.get("TRIPLEPOINT_API_KEY")
    if args.url is not None:
        options["model"] = model_of(args.url, key)
        yield lambda: HttpClient(args.url, options, key)
        return
    from .server_process import running

    with running(args, output, work) as url:
        yield lambda: HttpClient(url, options)


def _row(load: Load) -> Row:
    given, computed = load.prompt_tokens
    new = load.new_tokens
    again = computed / new if new > 0 else 0.0
    times = {
        f"{what}_p{100 * q:.0f}": load.quantile(what, q)
        for _, what, _ in TIMES
        for q in (0.5, 0.99)
    }
    longest = load.quantile("gap", 1.0)
    cells = [str(load.work.agents), rate(load.jobs_per_hour)]
    cells += [
        rate(scale * times[f"{what}_{q}"]) for _, what, scale in TIMES for q in ("p50", "p99")
    ]
    cells += [rate(1e3 * longest), percent(load.good), str(len(load.failures))]
    cells += [f"{n:,}" for n in (given, computed, load.written)]
    fields = {
        "agents": load.work.agents,
        "jobs_per_hour": load.jobs_per_hour,
        "seconds": load.seconds,
        **{f"{name}_s": value for name, value in times.items()},
        "gap_max_s": longest,
        "good": load.good,
        "failures": len(load.failures),
        "prompt_tokens": given,
        "computed_tokens": computed,
        "new_tokens": new,
        "written_tokens": load.written,
        "ended_early": load.early,
    }
    samples = {"job_s": [job.seconds for job in load.jobs]}
    return Row([*cells, f"{again:.2f}"], fields, samples)
