"""``triplepoint replay``: show a recorded run, or replay it."""

from __future__ import annotations

import argparse

from ...errors import SettingError
from ...traces.reader import Trace
from .engine_from_trace import load_trace
from .output import Output
from .playback import Playback
from .traces import trace_json
from .transcript import show_end, show_header, show_parent, show_rest, show_turn


def run(args: argparse.Namespace, output: Output) -> int:
    """Show a recorded run, or replay it in the requested mode."""
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
