"""Options shared by several benchmarks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..load_engine import DEFAULT_MODEL, engine_options
from ..option_groups import OptionGroup, option
from ..options import TableFormat

if TYPE_CHECKING:
    from ...physics.timed_passes import Case
    from ..tables import Form


def tests(text: str) -> list[Case]:
    """Parse names of benchmark rows separated by commas."""
    from ...bench.runner import case_of

    try:
        return [case_of(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class Repetitions(OptionGroup):
    """How often a measurement is repeated."""

    repetitions: int = option("-r", default=5)
    """repetitions of each measurement"""


class Lengths(OptionGroup):
    """Lengths of prompts and of decoded replies."""

    n_prompt: list[int] = option("-p", default=[512])
    """prompt lengths in tokens"""
    n_gen: list[int] = option("-n", default=[128])
    """decode lengths in tokens"""


class Depths(OptionGroup):
    """How full the KV cache is."""

    n_depth: list[int] = option("-d", default=[0])
    """tokens already in the KV cache"""


class Tests(OptionGroup):
    """Rows by name."""

    tests: list[Case] | None = option("NAME,…", type=tests)
    """tests by name, such as pp36,tg32@1024"""


class BaselineOptions(OptionGroup):
    """A comparison with another engine."""

    compare: str | None = option(nargs="?", const="llama-cpp", choices=("llama-cpp",))
    """interleave runs with llama-cpp-python and compare"""
    baseline_python: str | None = option("PATH")
    """Python interpreter that has llama-cpp-python (default: this one)"""


BenchFormat = TableFormat.but(format={"choices": ("md", "csv"), "default": "md"})


def common_options(model: str = DEFAULT_MODEL) -> tuple[type[OptionGroup], ...]:
    """Return the options of the engine, the repetitions and the table's format."""
    return engine_options(model, context=False), Repetitions, BenchFormat


def form_of(args: argparse.Namespace) -> Form:
    """Return the requested format of the table."""
    return "json" if args.json else args.format
