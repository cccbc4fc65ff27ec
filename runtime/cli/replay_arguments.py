"""The arguments of ``replay``. Nothing heavy is imported here."""

from __future__ import annotations

import argparse


def add_replay(replay: argparse.ArgumentParser) -> None:
    """Everything but the options of the engine, which other verbs have too."""
    replay.add_argument(
        "trace",
        metavar="TRACE",
        help="trace file; the name of a run, or its beginning; `last`; or a run of the library",
    )
    replay.add_argument(
        "--speed",
        type=speed,
        metavar="X",
        help="show it as it happened, X times as fast; max: without waiting",
    )
    what = replay.add_mutually_exclusive_group()
    what.add_argument(
        "--verify",
        action="store_true",
        help="run the model again with the recorded tool results and compare every token",
    )
    what.add_argument(
        "--perf",
        action="store_true",
        help="do the recorded work with this model on this machine, and compare the times",
    )
    replay.add_argument(
        "--tools",
        choices=("recorded", "live"),
        default="recorded",
        help="--verify: results as recorded, or calls that only read run again (recorded)",
    )
    replay.add_argument("--dir", metavar="D", help="folder for tools that run (the recorded one)")
    replay.add_argument(
        "--no-waits", action="store_true", help="--perf: do not pause where tools ran"
    )
    replay.add_argument(
        "--predict", action="store_true", help="--perf: ask the cost model, run nothing"
    )
    replay.add_argument(
        "--machine",
        metavar="FILE",
        help="--predict: another machine, as `doctor --json` or a trace from there has it",
    )


def speed(text: str) -> float:
    """How many times as fast; ``max`` is without end."""
    try:
        number = float("inf") if text == "max" else float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed; give 1, 10, … or max")
    return number
