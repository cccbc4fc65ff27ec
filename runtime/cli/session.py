"""``triplepoint session``: list, show and remove saved conversations, without a model."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from ...errors import ConversationError
from ...traces.sanitize import printable
from ..hub.progress import size_text
from .arguments import add_commands
from .exit_codes import Exit
from .option_groups import OptionGroup, argument
from .output import Output
from .removing import RemovingOptions, agreed, chosen, report_removed
from .tables import plain

if TYPE_CHECKING:
    from ..agent.session_list import SessionInfo


class ShowOptions(OptionGroup):
    """Options of ``session show``."""

    name: str = argument("SESSION")
    """session name"""


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the commands."""
    commands = add_commands(verb)
    commands.add(ls)
    commands.add(show, ShowOptions)
    commands.add(rm, RemovingOptions.of("session"))


def ls(args: argparse.Namespace, output: Output) -> None:
    """List the sessions; the first is the one that --continue takes."""
    from ..agent.session_list import list_sessions
    from ..agent.session_store import sessions_folder

    found = list_sessions()
    if not found:
        output.line(
            f"no sessions in {sessions_folder()}; `run` and `chat` save one with --session NAME"
        )
    else:
        heads = ["session", "saved", "questions", "size", "model", "folder"]
        rows = [
            (
                *(one.name, _date(one), str(one.questions), size_text(one.nbytes)),
                *(one.model or "-", one.problem or one.workspace or "-"),
            )
            for one in found
        ]
        plain(output, heads, rows, words=(0, 1, 4, 5))
    output.json({"folder": str(sessions_folder()), "sessions": [_json(one) for one in found]})


def show(args: argparse.Namespace, output: Output) -> None:
    """Show a session's model, folder and conversation."""
    from ..agent.session_list import find_session
    from .slash_commands import transcript

    one = find_session(args.name)
    if one.problem:
        raise ConversationError(f"session {one.name} cannot be shown: {one.folder}: {one.problem}")
    rows = [
        ("session", one.name),
        ("saved", f"{_date(one)}, {size_text(one.nbytes)} in {one.folder}"),
        ("model", f"{one.model or 'not known'}, {one.model_path}".removesuffix(", ")),
        ("folder", one.workspace or "not known"),
    ]
    for name, value in rows:
        output.line(f"{name:<8} {printable(value)}")
    output.line()
    for line in transcript(one.messages, f"Session {one.name}").splitlines():
        output.line(line)
    messages = [
        {"role": message.role, "content": message.content, "name": message.name}
        for message in one.messages
    ]
    output.json({**_json(one), "messages": messages})


def rm(args: argparse.Namespace, output: Output) -> int:
    """Remove sessions and their KV caches."""
    from ..agent.session_list import find_session, list_sessions, remove_session

    doomed = chosen(args, find_session, lambda: [(one, one.saved_at) for one in list_sessions()])
    lines = [(f"{one.name}  {_date(one)}  {one.questions} questions", one.nbytes) for one in doomed]
    if (status := agreed(lines, "no matching sessions", args, output)) is not None:
        return status
    for one in doomed:
        remove_session(one)
    report_removed([one.name for one in doomed], sum(one.nbytes for one in doomed), output)
    return Exit.OK


def _date(one: SessionInfo) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(one.saved_at))


def _json(one: SessionInfo) -> dict[str, Any]:
    return {
        "name": one.name,
        "path": str(one.folder),
        "kept": one.saved_at,
        "bytes": one.nbytes,
        "workspace": one.workspace,
        "model": one.model,
        "model_path": one.model_path,
        "questions": one.questions,
        **({"problem": one.problem} if one.problem else {}),
    }
