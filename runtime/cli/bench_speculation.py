"""``triplepoint bench speculation`` and ``scenario``: what is saved, beside all of it off."""

from __future__ import annotations

import argparse

from .bench_options import add_repetitions_option
from .load_engine import add_engine_options, load_engine
from .output import Output
from .tables import Form


def add_options(bench: argparse.ArgumentParser) -> None:
    """On which model."""
    add_engine_options(bench, context=False)
    add_repetitions_option(bench)


def run(args: argparse.Namespace, output: Output, form: Form) -> int:
    """Measure and print."""
    from ..bench import scenario, speculation

    with load_engine(args, output) as engine:
        if args.command == "scenario":
            steps = scenario.measure(engine, args.repetitions)
            lines, document = scenario.lines(steps), {"steps": [one.as_dict() for one in steps]}
        else:
            report = speculation.measure(engine, args.repetitions)
            lines, document = report.lines(), report.as_dict()
    for line in lines:
        output.line(line)
    output.json(document)
    return 0
