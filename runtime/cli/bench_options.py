"""The options that several benchmarks have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .arguments import numbers, positive
from .load_engine import DEFAULT_MODEL, add_engine_options

if TYPE_CHECKING:
    from ..bench.runner import Case

DEPTHS = (0, 512, 2048, 8192)


def add_common_options(bench: argparse.ArgumentParser, *, model: str = DEFAULT_MODEL) -> None:
    """The engine, how often each is measured, and the form of the table."""
    add_engine_options(bench, model=model, context=False)
    add_repetitions_option(bench)
    add_form_option(bench)


def add_repetitions_option(bench: argparse.ArgumentParser) -> None:
    """How often each is measured."""
    bench.add_argument(
        "-r",
        "--repetitions",
        type=positive,
        default=5,
        metavar="N",
        help="repetitions of each measurement (default: 5)",
    )


def add_form_option(bench: argparse.ArgumentParser) -> None:
    """The form of the table."""
    bench.add_argument(
        "-o",
        "--output",
        choices=("md", "csv", "json"),
        default="md",
        help="table format (default: md)",
    )


def add_length_options(bench: argparse.ArgumentParser) -> None:
    """Lengths of prompts and of what is decoded."""
    bench.add_argument(
        "-p",
        "--n-prompt",
        type=numbers,
        default=[512],
        metavar="N,…",
        help="prompt lengths in tokens (default: 512)",
    )
    bench.add_argument(
        "-n",
        "--n-gen",
        type=numbers,
        default=[128],
        metavar="N,…",
        help="decode lengths in tokens (default: 128)",
    )


def add_depth_option(bench: argparse.ArgumentParser, depths: Sequence[int] = DEPTHS) -> None:
    """Tokens in the KV cache."""
    bench.add_argument(
        "-d",
        "--n-depth",
        type=numbers,
        default=depths,
        metavar="N,…",
        help=f"tokens already in the KV cache (default: {','.join(map(str, depths))})",
    )


def add_tests_option(bench: argparse.ArgumentParser, what: str = "") -> None:
    """Rows by name; `what` says which where none is named."""
    bench.add_argument(
        "--tests",
        type=tests,
        metavar="NAME,…",
        help=f"tests by name, such as pp36,tg32@1024{what}",
    )


def add_baseline_options(bench: argparse.ArgumentParser) -> None:
    """Another engine beside ours."""
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
    """Names of benchmark rows with commas between them."""
    from ..bench.runner import case_of

    try:
        return [case_of(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
