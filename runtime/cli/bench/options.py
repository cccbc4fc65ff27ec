"""The options of ``triplepoint bench``, which other benchmarks share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..arguments import numbers
from ..load_engine import DEFAULT_MODEL, engine_options
from ..option_groups import OptionGroup, argument, option
from ..options import TableFormat, count, within
from ..traces import TRACE

if TYPE_CHECKING:
    from ...physics.timed_passes import Case
    from ..tables import Form

TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K"]
IDEAS = ("deadline", "sharing", "programs", "parking")


def tests(text: str) -> list[Case]:
    """Parse names of benchmark rows separated by commas."""
    from ...bench.runner import case_of

    try:
        return [case_of(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    return text.split(",")


def _seconds(text: str) -> float:
    return within(text, "a number of seconds from 0 to 3600", lambda value: 0 <= value < 3600)


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


class AgentsOptions(OptionGroup):
    """The number of agents."""

    agents: int = argument("N", type=int)
    """number of agents"""


class BatchOptions(OptionGroup):
    """The sequences of a pass, and what they have in common."""

    batch: list[int] = argument("B,…", type=numbers, nargs="?", default=[1, 2, 4, 8, 16])
    """sequences per pass"""
    shared: int = option(default=0)
    """make the first N tokens of all prompts the same, like a system prompt"""


class TypesOptions(OptionGroup):
    """The types, and what is measured of each."""

    types: list[str] = argument("TYPE,…", type=names, nargs="?", default=TYPES)
    """quantizations to make (default: Q8_0 to Q2_K)"""
    n_gen: int = option("-n", default=32)
    """tokens of each decode"""
    text: str | None = option("FILE")
    """also compute the perplexity on this text, and the KL divergence from the model as it is"""
    chunks: int | None = option()
    """maximum number of chunks of 512 tokens of the text (default: all)"""


class TraceArgument(OptionGroup):
    """The run."""

    trace: str = argument("TRACE", TRACE)


class ServeOptions(OptionGroup):
    """The number of agents, their work, and the server."""

    agents: list[int] = argument("N,…")
    """concurrent agents"""
    repetitions: int = option("-r", default=1)
    """rounds for each N"""
    url: str | None = option("URL")
    """use a running server; TRIPLEPOINT_API_KEY holds its key (default: start one with -m)"""
    turns: int = option(default=6)
    """replies per agent"""
    system: int = option(default=3000)
    """length of the system prompt in words"""
    results: list[int] = option("MIN,MAX", default=[200, 5000])
    """length of tool results in words"""
    reply: int = option(default=64)
    """length of each reply in tokens"""
    seed: int = option("N", type=count, default=0)
    """random seed of texts and sampling"""
    pause: float | None = option("S", type=_seconds)
    """seconds that each tool takes (default: as recorded)"""
    temperature: float = option("T", type=float, default=1.0)
    """sampling temperature; with random weights, greedy replies repeat themselves"""
    parallel: int | None = option()
    """maximum number of concurrent requests (default: 32)"""
    without: list[str] | None = option(choices=IDEAS)
    """turn this off in the server that is started; repeatable"""
    in_process: bool = option()
    """run the agents on an engine in this process, without a server"""


def common_options(model: str = DEFAULT_MODEL) -> tuple[type[OptionGroup], ...]:
    """Return the options of the engine, the repetitions and the table's format."""
    return engine_options(model, context=False), Repetitions, BenchFormat


def form_of(args: argparse.Namespace) -> Form:
    """Return the requested format of the table."""
    return "json" if args.json else args.format


OPTIONS = {
    "speed": (*common_options(), Lengths, Depths, Tests, BaselineOptions),
    "batch": (*common_options(), Lengths, BatchOptions, BaselineOptions),
    "types": (TypesOptions, *common_options()),
    "agents": (AgentsOptions, *common_options()),
    "serve": (engine_options(), BenchFormat, ServeOptions),
    "trace": (TraceArgument, *common_options("default: the recorded one")),
}
