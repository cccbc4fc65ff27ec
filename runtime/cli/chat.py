"""``triplepoint chat``: questions in a row, each going on where the last answer ended."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from ...errors import TriplepointError
from ...traces.text import short
from .conversation import begin, follow, show_trace
from .engines import load_model
from .output import Output
from .status import Exit, explain

if TYPE_CHECKING:
    from ..agent import Agent

_HELP = "/tools lists the tools, /trace shows what the chat has cost so far, /exit ends it"


def run(args: argparse.Namespace, output: Output) -> int:
    """Read questions until /exit or the end of the input."""
    engine = load_model(args, output)
    with begin(engine, args, output) as agent:
        if sys.stdin.isatty():
            output.line(f"{engine.model.name} on {engine.target}, in {args.dir}; {_HELP}", "dim")
        status = Exit.OK
        while (line := _read(output)) is not None and line != "/exit":
            if line.startswith("/"):
                _command(line, agent, output)
            elif line:
                status = _answer(line, agent, output)
        if agent.turn and agent.trace.path:
            output.line(f"trace: {agent.trace.path}", "dim")
    engine.close()
    return status


def _read(output: Output) -> str | None:
    """The next line without the space around it; None at the end of the input."""
    try:
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):  # not on Windows
                import readline  # noqa: F401  (gives input() its history and editing)
            return input("? ").strip()
        return line.strip() if (line := sys.stdin.readline()) else None
    except EOFError:
        output.line()
        return None


def _command(line: str, agent: Agent, output: Output) -> None:
    if line == "/tools":
        for tool in agent.tools:
            output.line(f"{tool.name}: {short(tool.description, 100)}")
    elif line == "/trace" and agent.turn:
        show_trace(output, agent.trace)
    elif line == "/trace":
        output.line("nothing was asked yet")
    else:
        output.line(_HELP)


def _answer(question: str, agent: Agent, output: Output) -> Exit:
    """One turn. What ends it early is told, and the chat goes on; returns its status."""
    try:
        result = follow(agent.stream(question), output)
    except KeyboardInterrupt:
        output.error("interrupted; the chat goes on (/exit ends it)")
        return Exit.INTERRUPTED
    except TriplepointError as error:
        status, message = explain(error)
        output.error(message)
        output.json({"status": "error", "error": message})
        return status
    if result.message:
        output.error(result.message)
    output.json({"answer": result.answer, "status": result.status, "turn": result.turn})
    return Exit.OK if result.status == "answered" else Exit.LIMIT
