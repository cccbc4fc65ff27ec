"""The common part of research benchmarks' commands: options, one-line errors, `--json`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from triplepoint.errors import SettingError, TriplepointError
from triplepoint.runtime.cli.arguments import OneLineParser
from triplepoint.runtime.cli.bench.options import Repetitions
from triplepoint.runtime.cli.exit_codes import Exit, explain
from triplepoint.runtime.cli.load_engine import engine_options, load_engine
from triplepoint.runtime.cli.output import Output, log_shown
from triplepoint.runtime.engine.engine import Engine

DEPTHS = (0, 512, 2048, 8192)
"""Tokens in the KV cache, where nothing is said."""
Report = tuple[Iterable[str], dict[str, Any]]
"""Lines to show, and the same as numbers."""


def run_command(
    name: str,
    add_options: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace, Output], int],
) -> int:
    """Parse this process's arguments, run the bench and return the exit status."""
    parser = OneLineParser(prog=f"python -m labs.bench.{name}")
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    output = Output(as_json=args.json)
    try:
        with log_shown(output, quiet=False):
            return run(args, output)
    except TriplepointError as error:
        status, message = explain(error)
        output.error(message)
        return status


def run_report(name: str, measure: Callable[[Engine, int], Report]) -> int:
    """Run a bench that has only the options of an engine and the number of repetitions."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        engine_options(context=False).add_to(parser)
        Repetitions.add_to(parser)

    def run(args: argparse.Namespace, output: Output) -> int:
        with load_engine(args, output) as engine:
            lines, document = measure(engine, args.repetitions)
        for line in lines:
            output.line(line)
        output.json(document)
        return Exit.OK

    return run_command(name, add_options, run)


def fitting(points: Iterable[tuple[int, int]], engine: Engine, spare: int) -> list[tuple[int, int]]:
    """Return the points, tokens and KV positions, with room for `spare` more in the context.

    Raises:
        SettingError: there are none.
    """
    found = [(n, depth) for n, depth in points if n and n + depth + spare <= engine.context]
    if not found:
        raise SettingError(
            f"nothing to measure: no length fits the context of {engine.context} tokens; give "
            "smaller N or -d"
        )
    return found
