"""The options of ``triplepoint plan``: machines, their load, and the output."""

from __future__ import annotations

import argparse

from ..arguments import numbers
from ..load_engine import nbytes
from ..options import (
    add_file,
    add_number,
    add_numbers,
    add_on_off,
    add_option,
    add_switch,
    amount,
    count,
)

SWEEPS = ("machines", "rate", "kv", "deadline", "parallel", "model", "machine", "route")


def _work(text: str) -> list[int]:
    found = numbers(text)
    if len(found) != 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not five numbers, such as 2,300,50,300,20")
    return found


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the options: the model, the machines, their load, and the output."""
    verb.add_argument(
        "files",
        nargs="*",
        metavar="TRACE",
        help="recorded runs to simulate (default: generated programs)",
    )
    verb.add_argument(
        "-m",
        "--model",
        metavar="M",
        help="an alias, synthetic:NAME:TYPE, or a file (default: qwen3:0.6b)",
    )
    add_file(
        verb,
        "--machine",
        help="`doctor --json` file of the machines to simulate (default: this machine)",
    )
    add_file(verb, "--clock", help="clock file from --learn, instead of -m and --machine")
    add_number(verb, "--machines", default=1, help="number of machines")
    add_number(verb, "--conversations", default=1000, help="number of conversations")
    verb.add_argument(
        "--rate",
        type=amount,
        metavar="R",
        help="new conversations per second, over all machines (default: all at once)",
    )
    made = verb.add_argument_group("generated programs, if no trace is given")
    add_number(made, "--shared", default=1500, help="tokens of the prefix that all share")
    add_number(made, "--new", default=400, help="mean tokens that a request adds")
    add_number(made, "--reply", default=80, help="mean tokens of a reply")
    add_number(made, "--requests", default=4, help="mean requests per conversation")
    add_number(
        made, "--pause", type=amount, default=0.5, metavar="S", help="mean seconds of a tool call"
    )
    made.add_argument(
        "--person",
        type=amount,
        metavar="S",
        help="mean seconds a person thinks after every third request (default: 0)",
    )
    how = verb.add_argument_group("policy")
    add_option(how, "--kv", choices=("bf16", "q8", "f32"), default="bf16", help="KV cache format")
    how.add_argument(
        "--kv-memory",
        type=nbytes,
        metavar="SIZE",
        help="KV cache memory per machine (default: no limit)",
    )
    add_number(how, "--parallel", default=32, help="concurrent requests per machine")
    text = "target gap in seconds between tokens while prompts run"
    add_number(how, "--deadline", type=amount, default=0.1, metavar="S", help=text)
    add_on_off(how, "--sharing", default=True, help="share and keep prefixes")
    text = "choice of machine: the less loaded of two, in turns, or random"
    add_option(how, "--route", choices=("two", "turns", "random"), default="two", help=text)
    text = "latency goals in seconds"
    add_option(verb, "--goals", type=goals, default=(2.0, 0.1), metavar="TTFT,TPOT", help=text)
    verb.add_argument(
        "--sweep",
        type=swept,
        metavar="WHAT=A,B,…",
        help=f"repeat the plan for each of some values of {', '.join(SWEEPS)}",
    )
    add_switch(
        verb,
        "--what-if",
        help="estimate the gain from more cores, faster DRAM, a q8 KV cache and so on",
    )
    add_number(verb, "--seed", type=count, default=0, help="random seed")
    add_number(verb, "-j", "--jobs", help="simulation processes (default: one per core)")
    add_file(
        verb, "--prices", help="TOML file whose prices override the defaults, as for `plan cost`"
    )
    text = "which machine of the price list"
    add_option(verb, "--hardware", default="desktop", metavar="NAME", help=text)
    add_file(verb, "--html", help="write the plan as an HTML page")
    add_file(verb, "--svg", help="draw the sweep, or the errors of --validate")
    real = verb.add_argument_group("this machine, measured")
    add_file(real, "--learn", help="run agents here and add their pass times to this clock file")
    text = "run N agents here and compare with their simulation"
    add_numbers(real, "--validate", help=text)
    add_file(
        real, "--rounds", help="file to add the measured rounds to; all rounds in it are compared"
    )
    add_numbers(
        real,
        "--work",
        type=_work,
        default=[2, 300, 50, 300, 20],
        help="work of each agent: turns, words of the system prompt, minimum and maximum words "
        "of results, tokens per reply",
    )


def goals(text: str) -> tuple[float, float]:
    """Parse the max TTFT and TPOT, in seconds, separated by a comma."""
    first, comma, second = text.partition(",")
    if not comma:
        raise argparse.ArgumentTypeError(f"{text!r} is not two times in seconds, such as 2,0.1")
    return amount(first), amount(second)


def swept(text: str) -> tuple[str, list[str]]:
    """Parse a sweep: a setting and its values."""
    what, equals, values = text.partition("=")
    if what not in SWEEPS or not equals or not all(values.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a sweep such as machines=1,2,4")
    return what, values.split(",")
