"""``triplepoint chat``: a conversation of several questions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import SettingError, TriplepointError
from .attaching import with_attachments
from .conversation import begin, follow, keep, opened, resume, show_statistics
from .exit_codes import Exit, as_flags, explain
from .line_input import Reader
from .load_engine import load_model
from .output import Output
from .slash_commands import COMMANDS, ChatSet, run_command
from .suggesting import suggest_model

if TYPE_CHECKING:
    from ..agent.session_store import SavedConversation


def run(args: argparse.Namespace, output: Output) -> int:
    """Answer questions and slash commands until /exit or the end of the input."""
    with opened(args) as kept:
        return _chat(args, output, kept)


def _chat(args: argparse.Namespace, output: Output, kept: SavedConversation | None) -> int:
    engine = load_model(args, output)
    chats = ChatSet(args, output, engine)
    reader = Reader(output, list(COMMANDS), args.dir)
    try:
        chats.agents.append(begin(engine, args, output))
        resume(kept, chats.agent, output.aside, quiet=args.quiet)
        if reader.on_terminal and not args.quiet:
            where = f"{engine.model.name} on {engine.target}, in {args.dir}"
            output.aside.words(f"{where}; /help lists the commands, /exit ends it")
        status = Exit.OK
        try:
            while (line := reader.read()) is not None:
                if line.partition(" ")[0] in ("/exit", "/quit"):
                    break
                if line.startswith("/"):
                    _command(line, chats)
                elif line:
                    try:
                        status = _answer(line, chats, live=reader.on_terminal and output.in_color)
                    finally:  # also where the answer could not be shown
                        keep(kept, chats.agent, output)
            if not keep(kept, chats.agent, output):  # what was taken back since
                status = status or Exit.FAILED
        finally:
            for agent in chats.agents if not args.quiet else ():
                if agent.turn and agent.trace.path and agent.trace.events:
                    output.aside.line(f"trace: {agent.trace.path}", "dim")
    finally:
        chats.close()
    if not (reader.lines or reader.on_terminal):
        raise SettingError(
            "no questions: stdin is closed or empty; start chat on a terminal, or pipe in one "
            "question per line"
        )
    return status


def _command(line: str, chats: ChatSet) -> None:
    """Run a line that begins with a slash, such as ``/model``; Ctrl-C ends only the command."""
    try:
        run_command(line, chats)
    except KeyboardInterrupt as error:
        _interrupted(error, chats.output)


def _interrupted(error: KeyboardInterrupt, output: Output) -> Exit:
    """Report that Ctrl-C has stopped the current work, but not the chat."""
    if error.args:  # not Ctrl-C, but a signal that ends the program
        raise error
    output.note("interrupted; the chat continues (Ctrl-C again or /exit ends it)")
    return Exit.INTERRUPTED


def _answer(question: str, chats: ChatSet, *, live: bool) -> Exit:
    """Run one turn and return its status; errors are reported and the chat continues."""
    agent, output, quiet = chats.agent, chats.output, chats.args.quiet
    try:
        question = with_attachments(question, agent, output, piped=False)
        if live and not quiet:
            from .live_display import LiveDisplay

            result = LiveDisplay(agent, output).follow(agent.stream(question))
        else:
            result = follow(agent.stream(question), output, quiet=quiet)
    except KeyboardInterrupt as error:
        status = _interrupted(error, output)
        output.json({"status": "cancelled", "error": "interrupted", "exit": status})
        return status
    except TriplepointError as error:
        status, message = explain(error)
        output.error(message)
        output.json({"status": "error", "error": message, "exit": status})
        return status
    show_statistics(output, result, chats.args)
    if result.message:
        output.error(as_flags(result.message))
    if not quiet:
        suggest_model(agent, result.answer, output)
    output.json({"answer": result.answer, "status": result.status, "turn": result.turn})
    return Exit.OK if result.status == "answered" else Exit.LIMIT
