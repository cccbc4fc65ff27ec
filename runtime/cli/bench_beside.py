"""``triplepoint bench beside N``: a decode beside a prompt of N tokens."""

from __future__ import annotations

import argparse

from .bench_options import add_common_options
from .load_engine import load_engine
from .options import add_number
from .output import Output
from .tables import Column, Form, Row, between, percent, rate, show


def add_options(bench: argparse.ArgumentParser) -> None:
    """How long the prompt is, and of which model."""
    add_number(bench, "beside", help="prompt length in tokens")
    add_common_options(bench)


def run(args: argparse.Namespace, output: Output, form: Form) -> int:
    """Measure and print one row."""
    from statistics import median

    from ..bench.beside import measure

    columns = [Column(name, 11) for name in ("prompt", "alone t/s", "beside t/s", "kept")]
    columns += [Column("kept min … max", 16), Column("gap p50 ms", 10)]
    columns += [Column("longest gap ms", 14), Column("min … max", 18)]
    with load_engine(args, output) as engine:
        found = measure(engine, args.beside, args.repetitions)
        deadline = engine.scheduler.deadline_s
    gaps = [gap for gaps in found.gaps_s for gap in gaps]
    cells = (
        f"{found.prompt:,}",
        rate(found.prompt / median(found.alone_s)),
        rate(found.prompt / median(found.beside_s)),
        percent(median(found.kept)),
        f"{percent(min(found.kept))} … {percent(max(found.kept))}",
        rate(1e3 * median(gaps)),
        rate(1e3 * median(found.longest_s)),
        between([1e3 * gap for gap in found.longest_s]),
    )
    fields = {
        "prompt": found.prompt,
        "kept": median(found.kept),
        "gap_p50_s": median(gaps),
        "longest_gap_s": median(found.longest_s),
        "deadline_s": deadline,
    }
    samples = {"alone_s": found.alone_s, "beside_s": found.beside_s, "longest_s": found.longest_s}
    samples["by_predicted"] = found.forecasts.ratios
    show(output, form, columns, [Row(cells, fields, samples)])
    if form == "md":
        output.line()
        output.line(
            f"medians of {args.repetitions} rounds; the deadline is {1e3 * deadline:.0f} ms"
        )
        output.line(found.forecasts.describe())
    return 0
