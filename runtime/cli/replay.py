"""``triplepoint replay``: show a recorded run, or replay it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import SettingError
from .agent_options import group_names, trace
from .load_engine import engine_options, named
from .option_groups import OptionGroup, Section, argument, option
from .options import within
from .output import Output
from .traces import TRACE, trace_json
from .transcript import show_end, show_header, show_parent, show_rest, show_turn

if TYPE_CHECKING:
    from ...traces.reader import Trace


def step(text: str) -> tuple[int, int]:
    """Parse a turn and a step: ``2.1``, or ``2``."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 2 or not all(p.isascii() and p.isdigit() and int(p) for p in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a step; give TURN or TURN.STEP, such as 2.1"
        )
    return int(parts[0]), int(parts[-1]) if len(parts) == 2 else 1


def speed(text: str) -> float:
    """Parse a speed factor; ``max`` is infinite."""
    given = "inf" if text == "max" else text
    return within(given, "a speed; give 1, 10, … or max", lambda number: number > 0)


class ReplayOptions(OptionGroup):
    """The run, and what is done with it."""

    recording: str = argument("TRACE", TRACE)
    speed: float | None = option("X", type=speed)
    """play it back at X times the recorded speed; max: without waiting"""
    verify: bool = option(one_of="what")
    """run the model again with the recorded tool results and compare every token"""
    benchmark: bool = option(one_of="what")
    """time the recorded work on this machine and compare"""
    start: tuple[int, int] | None = option("--from", "TURN[.STEP]", type=step, one_of="what")
    """continue live from this step, in a new trace"""
    dir: str | None = option("D", type=named)
    """folder for tools that run (default: the recorded one)"""

    verifying = Section("with --verify")
    live_tools: bool = option()
    """rerun the calls that only read"""

    forking = Section("with --from")
    question: str | None = option("TEXT")
    """ask this question instead"""
    tools: list[str] | None = option("GROUP,…", type=group_names)
    """tool groups as for `run` (default: the recorded ones)"""
    trace: str | bool | None = option("WHERE", type=trace)
    """trace file, or off (default: a new one in the state folder)"""

    timing = Section("with --benchmark")
    skip_tool_delays: bool = option()
    """do not pause where tools ran"""
    predict: bool = option()
    """predict with the cost model, run nothing"""
    machine: str | None = option("FILE")
    """with --predict: another machine's limits, from `doctor --json` or a trace"""


OPTIONS = (ReplayOptions, engine_options("default: the recorded one"))


def run(args: argparse.Namespace, output: Output) -> int:
    """Show the trace, or replay it as requested."""
    from .engine_from_trace import load_trace

    _check(args)
    trace = load_trace(args.recording)
    if args.verify:
        from . import replay_verify

        return replay_verify.run(trace, args, output)
    if args.benchmark or args.predict:
        from . import replay_benchmark

        return replay_benchmark.run(trace, args, output)
    if args.start is not None:
        from . import replay_fork

        return replay_fork.run(trace, args, output)
    from .playback import Playback

    for one in trace.runs:
        if one.header is not None:
            show_header(output, one.header)
            show_parent(output, one)
        if args.speed is not None and not output.as_json:
            Playback(output, args.speed).play(one)
        else:
            _show(one, output)
        if one.phases:
            output.line()
            output.timeline(one)
    show_rest(output, trace)
    output.json(trace_json(trace))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse options that the requested action would ignore."""

    goes_on, runs = args.start is not None, args.verify or args.benchmark or args.predict
    for given, needs in (
        (args.predict and (args.verify or goes_on), "--predict goes with --benchmark alone"),
        (args.question is not None and not goes_on, "--question needs --from"),
        (
            args.question is not None and not args.question.strip(),
            "--question is empty; leave it out to ask what was recorded",
        ),
        (args.trace is not None and not goes_on, "--trace needs --from: a new run's file"),
        (args.tools is not None and not goes_on, "--tools needs --from"),
        (args.live_tools and not args.verify, "--live-tools needs --verify"),
        (
            args.dir is not None and not (goes_on or args.live_tools),
            "--dir needs --from or --live-tools",
        ),
        (
            args.machine is not None and not args.predict,
            "--machine needs --predict: the model cannot run on another machine from here",
        ),
        (
            args.model is not None and not (runs or goes_on),
            "-m needs --verify, --benchmark or --from: the recording is shown as it is",
        ),
        (args.skip_tool_delays and not args.benchmark, "--skip-tool-delays needs --benchmark"),
        (
            args.speed is not None and (runs or goes_on),
            "--speed shows the recording and runs nothing",
        ),
    ):
        if given:
            raise SettingError(needs)


def _show(one: Trace, output: Output) -> None:
    """Print the conversation of one run, and its status if it has no answer."""
    for turn in one.turns:
        show_turn(output, turn)
    if one.end is not None and one.end.status != "answered" and one.end.answer:
        output.line(one.end.answer)
    show_end(output, one)
