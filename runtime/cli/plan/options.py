"""The options of ``triplepoint plan``: machines and their load; speeds, use and prices."""

from __future__ import annotations

import argparse

from ....jit.kv_formats import KV_FORMATS
from ..arguments import numbers
from ..load_engine import nbytes
from ..option_groups import OptionGroup, Section, argument, option
from ..options import amount, count, on_off, pair_of, share

SWEEPS = ("machines", "rate", "kv", "deadline", "parallel", "model", "machine", "route")
TURNS, INPUT, OUTPUT, HITS = 200.0, 6000.0, 300.0, 0.6  # of the profile where none is given
ROUTES = ("two", "turns", "random")


def _work(text: str) -> list[int]:
    found = numbers(text)
    if len(found) != 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not five numbers, such as 2,300,50,300,20")
    return found


def goals(text: str) -> tuple[float, float]:
    """Parse the max TTFT and TPOT, in seconds."""
    return pair_of(text, "times in seconds, such as 2,0.1")


def speeds(text: str) -> tuple[float, float]:
    """Parse the speeds of prefill and decode."""
    return pair_of(text, "speeds like 400,25")


def swept(text: str) -> tuple[str, list[str]]:
    """Parse a sweep: a setting and its values."""
    what, equals, values = text.partition("=")
    if what not in SWEEPS or not equals or not all(values.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a sweep such as machines=1,2,4")
    return what, values.split(",")


class SimulateOptions(OptionGroup):
    """The model, the machines, their load, and the output."""

    files: list[str] = argument("TRACE", nargs="*")
    """recorded runs to simulate (default: generated programs)"""
    model: str | None = option("-m", "M")
    """an alias, synthetic:NAME:TYPE, or a file (default: qwen3:0.6b)"""
    machine: str | None = option("FILE")
    """`doctor --json` file of the machines to simulate, or a known NAME[:THREADS] such as
    epyc-7763-2s:64 (default: this machine)"""
    clock: str | None = option("FILE")
    """clock file from --learn, instead of -m and --machine"""
    machines: int = option(default=1)
    """number of machines"""
    conversations: int = option(default=1000)
    """number of conversations"""
    rate: float | None = option("R", type=amount)
    """new conversations per second, over all machines (default: all at once)"""
    goals: tuple[float, float] = option("TTFT,TPOT", type=goals, default=(2.0, 0.1))
    """latency goals in seconds"""
    sweep: tuple[str, list[str]] | None = option(
        "WHAT=A,B,…",
        type=swept,
        help=f"repeat the plan for each of some values of {', '.join(SWEEPS)}",
    )
    what_if: bool = option()
    """estimate the gain from more cores, faster DRAM, a q8 KV cache and so on"""
    seed: int = option("N", type=count, default=0)
    """random seed"""
    jobs: int | None = option("-j")
    """simulation processes (default: one per core)"""
    prices: str | None = option("FILE")
    """TOML file whose prices override the defaults, as for `plan cost`"""
    hardware: str = option("NAME", default="desktop")
    """which machine of the price list"""
    html: str | None = option("FILE")
    """write the plan as an HTML page"""
    svg: str | None = option("FILE")
    """draw the sweep, or the errors of --validate"""

    program = Section("generated programs, if no trace is given")
    shared: int = option(default=1500)
    """tokens of the prefix that all share"""
    new: int = option(default=400)
    """mean tokens that a request adds"""
    reply: int = option(default=80)
    """mean tokens of a reply"""
    requests: int = option(default=4)
    """mean requests per conversation"""
    pause: float = option("S", type=amount, default=0.5)
    """mean seconds of a tool call"""
    person: float | None = option("S", type=amount)
    """mean seconds a person thinks after every third request (default: 0)"""

    policy = Section("policy")
    kv: str = option(choices=KV_FORMATS, default="bf16")
    """KV cache format"""
    kv_memory: int | None = option("SIZE", type=nbytes)
    """KV cache memory per machine (default: no limit)"""
    parallel: int = option(default=32)
    """concurrent requests per machine"""
    deadline: float = option("S", type=amount, default=0.1)
    """target gap in seconds between tokens while prompts run"""
    sharing: bool = option("{on,off}", type=on_off, default=True)
    """share and keep prefixes"""
    route: str = option(choices=ROUTES, default="two")
    """choice of machine: the less loaded of two, in turns, or random"""

    measured = Section("this machine, measured")
    learn: str | None = option("FILE")
    """run agents here and add their pass times to this clock file"""
    validate: list[int] | None = option()
    """run N agents here and compare with their simulation"""
    rounds: str | None = option("FILE")
    """file to add the measured rounds to; all rounds in it are compared"""
    work: list[int] = option("N,…", type=_work, default=[2, 300, 50, 300, 20])
    """work of each agent: turns, words of the system prompt, minimum and maximum words of results,
    tokens per reply"""


class CostOptions(OptionGroup):
    """The recorded work, the speeds, the use and the prices."""

    files: list[str] = argument("FILE", nargs="*")
    """traces, or result files whose rows have usage"""
    model: str | None = option("-m", "M")
    """predict speeds for this model: an alias such as qwen3:4b, synthetic:NAME:TYPE, or a file
    (default: speeds as recorded in the traces)"""
    machine: str | None = option("FILE")
    """predict for the machine of this `doctor --json` file, or for a known NAME[:THREADS]
    (default: this machine)"""
    speeds: tuple[float, float] | None = option("IN,OUT", type=speeds)
    """known speeds of prefill and decode, in tokens/s"""
    svg: str | None = option("FILE")
    """draw cost over use, and what changes it"""

    use = Section("use")
    questions: float | None = option(
        "N", type=amount, help=f"questions per day (default: {TURNS:g})"
    )
    input_tokens: float | None = option(
        "N", type=amount, help=f"input tokens per question, over all steps (default: {INPUT:g})"
    )
    output_tokens: float | None = option(
        "N", type=amount, help=f"output tokens per question (default: {OUTPUT:g})"
    )
    steps: float | None = option("N", type=amount)
    """model replies per question (default: 1)"""
    cache_hits: float | None = option(
        "X", type=share, help=f"share of input that is cached, 0 to 1 (default: {HITS:g})"
    )
    parallel: int = option(default=1)
    """concurrent questions"""

    priced = Section("prices")
    prices: str | None = option("FILE")
    """TOML file whose prices override the defaults"""
    hardware: str = option("NAME", default="desktop")
    """which CPU machine of the price list"""
    buy: float | None = option("$", type=amount)
    """purchase price of the CPU machine"""
    years: float | None = option("N", type=amount)
    """years until it is written off (default: 3)"""
    hours: float | None = option("H", type=amount)
    """hours per day that it is on (default: 24)"""
    watts: float | None = option("W", type=amount)
    """power under load"""
    rent: float | None = option("$", type=amount)
    """rent per hour, if it is rented"""
    kwh: float | None = option("$", type=amount)
    """price of a kilowatt-hour"""


OPTIONS = {"simulate": (SimulateOptions,), "cost": (CostOptions,)}
