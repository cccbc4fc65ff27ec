"""``triplepoint run``: one question, its answer, and the table of what it took."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .conversation import begin, exit_status, follow, show_trace
from .engines import load_model
from .keeping_sessions import keep, opened, resume
from .output import Output
from .status import Exit
from .suggesting import suggest_model
from .traces import check_place, trace_json

if TYPE_CHECKING:
    from ..agent.agent import Agent, RunResult


def run(args: argparse.Namespace, output: Output) -> int:
    """Answer the question; the trace is closed and named however it ends."""
    # The newline at the end is the shell's: the same question has the same tokens either way.
    question = sys.stdin.read().removesuffix("\n") if args.question == "-" else args.question
    check_place(args.trace)
    # First what can be refused at once: a name, or a session that another process has.
    with (
        opened(args) as kept,
        load_model(args, output) as engine,
        begin(engine, args, output) as agent,
    ):
        resume(kept, agent, output, quiet=args.quiet)
        try:
            result = _watch(agent, question, output, args)
        finally:
            is_kept = keep(kept, agent, output)
            output.facts["trace"] = str(agent.trace.path)
            if not args.quiet:
                show_trace(output, agent.trace)
        if args.quiet:
            output.line(result.answer)
        if result.status != "answered":
            output.error(result.message)
        if not args.quiet:
            suggest_model(agent, result.answer, output)
        output.json({"message": result.message, **trace_json(result.trace)})
    return exit_status(result) or (Exit.OK if is_kept else Exit.FAILED)


def _watch(agent: Agent, question: str, output: Output, args: argparse.Namespace) -> RunResult:
    """Show the run as it goes; with --live its phases too, and a line that says what is done."""
    events = agent.stream(question)
    if not args.live or args.quiet:
        return follow(events, output, quiet=args.quiet)
    from .live import LiveAnswer, Transitions

    transitions = Transitions()
    if output.in_colour:
        return LiveAnswer(agent, output, transitions).follow(events)
    return follow(events, output, on_phase=lambda phase: output.line(transitions.line(phase)))
