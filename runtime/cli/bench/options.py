"""Options shared by several benchmarks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..load_engine import DEFAULT_MODEL, add_engine_options
from ..options import add_format_option, add_number, add_numbers

if TYPE_CHECKING:
    from ...physics.timed_passes import Case
    from ..tables import Form

BUSY = "other programs slowed the measurement, so these results hold only for a machine this busy"


def add_common_options(bench: argparse.ArgumentParser, *, model: str = DEFAULT_MODEL) -> None:
    """Add the options of the engine, the repetitions and the table's format."""
    add_engine_options(bench, model=model, context=False)
    add_repetitions_option(bench)
    add_format_option(bench, "md", "csv")


def add_repetitions_option(bench: argparse.ArgumentParser) -> None:
    """Add the number of repetitions of each measurement."""
    add_number(bench, "-r", "--repetitions", default=5, help="repetitions of each measurement")


def form_of(args: argparse.Namespace) -> Form:
    """Return the requested format of the table."""
    return "json" if args.json else args.format


def add_length_options(bench: argparse.ArgumentParser) -> None:
    """Add the lengths of prompts and of decoded replies."""
    add_numbers(bench, "-p", "--n-prompt", default=[512], help="prompt lengths in tokens")
    add_numbers(bench, "-n", "--n-gen", default=[128], help="decode lengths in tokens")


def add_depth_option(bench: argparse.ArgumentParser, depths: Sequence[int]) -> None:
    """Add the number of tokens already in the KV cache."""
    add_numbers(bench, "-d", "--n-depth", default=depths, help="tokens already in the KV cache")


def add_tests_option(bench: argparse.ArgumentParser, what: str = "") -> None:
    """Add the selection of rows by name; `what` describes the default in the help."""
    bench.add_argument(
        "--tests",
        type=tests,
        metavar="NAME,…",
        help=f"tests by name, such as pp36,tg32@1024{what}",
    )


def add_baseline_options(bench: argparse.ArgumentParser) -> None:
    """Add the options for a comparison with another engine."""
    bench.add_argument(
        "--compare",
        nargs="?",
        const="llama-cpp",
        choices=("llama-cpp",),
        help="interleave runs with llama-cpp-python and compare",
    )
    bench.add_argument(
        "--baseline-python",
        metavar="PATH",
        help="Python interpreter that has llama-cpp-python (default: this one)",
    )


def tests(text: str) -> list[Case]:
    """Parse names of benchmark rows separated by commas."""
    from ...bench.runner import case_of

    try:
        return [case_of(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
