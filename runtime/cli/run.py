"""``triplepoint run``: one question, its answer, and statistics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .attaching import question_of, with_attachments
from .conversation import (
    begin,
    exit_status,
    follow,
    keep,
    opened,
    resume,
    show_statistics,
    trace_name,
)
from .exit_codes import Exit, as_flags
from .load_engine import load_model
from .output import Output
from .suggesting import suggest_model
from .traces import trace_json

if TYPE_CHECKING:
    from ..agent.agent import Agent, RunResult


def run(args: argparse.Namespace, output: Output) -> int:
    """Answer one question; close and name the trace however the run ends."""
    question = question_of(args.question)
    if args.show_prompt:
        args.trace = False
    # First what can be refused at once: a name, or a session that another process has.
    with (
        opened(args) as kept,
        load_model(args, output) as engine,
        begin(engine, args, output) as agent,
    ):
        resume(kept, agent, output.aside, quiet=args.quiet)
        question = with_attachments(question, agent, output, piped=args.question != "-")
        if args.show_prompt:
            from ..replay.dry_run import next_prompt
            from .transcript import show_prompt

            show_prompt(
                output, next_prompt(agent, question), agent.session.phases.core.loaded.tokenizer
            )
            return Exit.OK
        try:
            result = _watch(agent, question, output, args)
        finally:
            is_kept = keep(kept, agent, output)
            if agent.trace.path and agent.trace.events:  # else it has no file
                output.facts["trace"] = str(agent.trace.path)
            if (ended := agent.last_result) is not None:
                show_statistics(output, ended, args, name=True)
            elif "trace" in output.facts and not args.quiet:
                output.aside.line(trace_name(agent.trace), "dim")
        if result.status != "answered":
            output.error(as_flags(result.message))
        if not args.quiet:
            suggest_model(agent, result.answer, output)
        facts = {
            "found": result.found,
            "sources": [{**one._asdict(), "place": one.place} for one in result.sources],
            "unsupported": list(result.unsupported),
        }
        output.json({"message": result.message, **facts, **trace_json(result.trace)})
    return exit_status(result) or (Exit.OK if is_kept else Exit.FAILED)


def _watch(agent: Agent, question: str, output: Output, args: argparse.Namespace) -> RunResult:
    """Show the run's events; with --show-phases also its phases and their summary."""
    events = agent.stream(question)
    if not args.show_phases or args.quiet:
        return follow(events, output, quiet=args.quiet)
    from .live_display import LiveDisplay, Transitions

    transitions = Transitions()
    if output.in_color:
        return LiveDisplay(agent, output, transitions).follow(events)
    return follow(events, output, on_phase=lambda phase: output.aside.line(transitions.line(phase)))
