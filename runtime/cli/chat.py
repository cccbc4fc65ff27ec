"""``triplepoint chat``: questions in a row, each going on where the last answer ended."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import TriplepointError
from .commands import COMMANDS, Chats, run_command
from .conversation import begin, follow
from .engines import load_model
from .keeping_sessions import keep, opened, resume
from .output import Output
from .reading import Reader
from .status import Exit, explain
from .suggesting import suggest_model
from .traces import check_place

if TYPE_CHECKING:
    from ..agent.sessions import KeptSession


def run(args: argparse.Namespace, output: Output) -> int:
    """Read questions until /exit or the end of the input."""
    check_place(args.trace)
    with opened(args) as kept:
        return _chat(args, output, kept)


def _chat(args: argparse.Namespace, output: Output, kept: KeptSession | None) -> int:
    engine = load_model(args, output)
    chats = Chats(args, output, engine)
    reader = Reader(output, list(COMMANDS))
    try:
        chats.agents.append(begin(engine, args, output))
        resume(kept, chats.agent, output)
        if reader.on_terminal:
            where = f"{engine.model.name} on {engine.target}, in {args.dir}"
            output.line(f"{where}; /help lists the commands, /exit ends it", "dim")
        status = Exit.OK
        while (line := reader.read()) is not None:
            if line.partition(" ")[0] in ("/exit", "/quit"):
                break
            if line.startswith("/"):
                run_command(line, chats)
            elif line:
                status = _answer(line, chats, reader.on_terminal)
                keep(kept, chats.agent, output)
        if not keep(kept, chats.agent, output):  # what was taken back since
            status = status or Exit.FAILED
        for agent in chats.agents:
            if agent.turn and agent.trace.path:
                output.line(f"trace: {agent.trace.path}", "dim")
    finally:
        reader.close()
        chats.close()
    return status


def _answer(question: str, chats: Chats, on_terminal: bool) -> Exit:
    """One turn. What ends it early is told, and the chat goes on; returns its status."""
    agent, output = chats.agent, chats.output
    live = on_terminal and output.in_colour
    try:
        if live:
            from .live import LiveAnswer

            result = LiveAnswer(agent, output).follow(agent.stream(question))
        else:
            result = follow(agent.stream(question), output)
    except KeyboardInterrupt:
        output.error("interrupted; the chat goes on (Ctrl-C again or /exit ends it)")
        return Exit.INTERRUPTED
    except TriplepointError as error:
        status, message = explain(error)
        output.error(message)
        output.json({"status": "error", "error": message})
        return status
    if on_terminal:
        from .live import turn_line

        output.line(turn_line(result), "dim")
    if result.message:
        output.error(result.message)
    suggest_model(agent, result.answer, output)
    output.json({"answer": result.answer, "status": result.status, "turn": result.turn})
    return Exit.OK if result.status == "answered" else Exit.LIMIT
