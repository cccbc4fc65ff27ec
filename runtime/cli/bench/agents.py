"""``triplepoint bench agents N``: recorded agents in parallel, compared with in sequence."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

from ...replay import examples
from ...replay.together import Turns, measure
from ..load_engine import load_engine
from ..output import Output
from ..tables import Column, Row, between, rate, show
from .options import form_of

RUNS = ("chat", "search")  # of an agent with tools; the rest of the library is made-up sizes
TIMES = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("gap", "gaps_s"))


def run(args: argparse.Namespace, output: Output) -> None:
    """Measure recorded agents in sequence, then in parallel, and print a row for each."""
    columns = [Column("agents", 22, is_text=True), Column("jobs/hour", 9), Column("tok/s", 9)]
    columns += [Column(f"{name} {q} ms", 11) for name, _ in TIMES for q in ("p50", "p99")]
    columns += [Column("jobs/hour min … max", 20)]
    traces = [examples.load(name) for name in RUNS]
    with load_engine(args, output) as engine:
        found = measure(engine, traces, args.agents, args.repetitions)
    show(output, form_of(args), columns, _rows(found, args.agents))
    if form_of(args) == "md":
        alone, together = found
        rounds = zip(alone.seconds, together.seconds, strict=True)
        gains = [before / after for before, after in rounds]
        output.line()
        output.line(
            f"{args.agents} agents, recorded runs {' and '.join(RUNS)}, {args.repetitions} "
            f"alternating rounds: {between(gains)} × the jobs/hour when run at once"
        )
        output.line(together.forecasts.describe())


def _rows(found: list[Turns], agents: int) -> Iterator[Row]:
    for one in found:
        name = f"{agents} at once" if one.together else f"{agents} one after another"
        each = one.jobs_per_hour
        median = statistics.median(each)
        times = [(part, one.quantile(part, q), q) for _, part in TIMES for q in (0.5, 0.99)]
        cells = [name, rate(median), rate(one.tokens_per_s)]
        cells += [rate(1e3 * seconds) for _, seconds, _ in times]
        fields = {
            "agents": agents,
            "at_once": one.together,
            "jobs_per_hour": median,
            "tokens_per_s": one.tokens_per_s,
            **{f"{part[:-2]}_p{100 * q:.0f}_s": seconds for part, seconds, q in times},
        }
        samples = {"seconds": one.seconds, "by_predicted": one.forecasts.ratios}
        yield Row([*cells, between(each)], fields, samples)
