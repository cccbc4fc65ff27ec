"""``triplepoint run``: one question, its answer, and the table of what it took."""

from __future__ import annotations

import argparse
import sys

from .conversation import begin, exit_status, follow, show_trace
from .engines import load_model
from .output import Output
from .traces import trace_json


def run(args: argparse.Namespace, output: Output) -> int:
    """Answer the question; the trace is closed and named however it ends."""
    question = sys.stdin.read() if args.question == "-" else args.question
    engine = load_model(args, output)
    with begin(engine, args, output) as agent:
        try:
            result = follow(agent.stream(question), output, quiet=args.quiet)
        finally:
            output.facts["trace"] = str(agent.trace.path)
            if not args.quiet:
                show_trace(output, agent.trace)
    if args.quiet:
        output.line(result.answer)
    if result.status != "answered":
        output.error(result.message)
    output.json({"message": result.message, **trace_json(result.trace)})
    engine.close()
    return exit_status(result)
