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
        "--benchmark",
        action="store_true",
        help="time the recorded work with this model on this machine",
    )
    what.add_argument(
        "--from",
        dest="start",
        type=step,
        metavar="TURN[.STEP]",
        help="continue live from this step; the new trace names this run as its parent",
    )
    replay.add_argument("--prompt", metavar="TEXT", help="--from: ask this instead")
    replay.add_argument(
        "--tools",
        type=tools,
        metavar="WHAT",
        help="--verify: recorded (the default) or live, which reruns read-only calls; "
        "--from: groups of tools, as of `run`, or none (the recorded ones)",
    )
    replay.add_argument("--trace", dest="output", metavar="FILE", help="--from: the new trace")
    replay.add_argument("--dir", metavar="D", help="folder for tools that run (the recorded one)")
    replay.add_argument(
        "--skip-tool-delays", action="store_true", help="--benchmark: do not pause where tools ran"
    )
    replay.add_argument(
        "--predict", action="store_true", help="--benchmark: ask the cost model, run nothing"
    )
    replay.add_argument(
        "--machine",
        metavar="FILE",
        help="--predict: limits of another machine: its `doctor --json`, or a trace from it",
    )


def tools(text: str) -> str | list[str]:
    """``recorded``, ``live``, or names of groups; ``none`` is the three that look at files."""
    from .toolbox import group_names

    if text in ("recorded", "live"):
        return text
    return [] if text == "none" else group_names(text)


def step(text: str) -> tuple[int, int]:
    """Turn and step: ``2.1``, or ``2``."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 2 or not all(p.isascii() and p.isdigit() and int(p) for p in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step; give TURN or TURN.STEP, such as 2.1"
        )
    return int(parts[0]), int(parts[-1]) if len(parts) == 2 else 1


def speed(text: str) -> float:
    """How many times as fast; ``max`` is without end."""
    try:
        number = float("inf") if text == "max" else float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; give 1, 10, … or max")
    return number
