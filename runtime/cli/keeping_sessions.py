"""``--session`` and ``--continue``: a conversation that outlives its process."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AgentError, SettingError
from ...traces.sanitize import printable

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.session_list import SessionInfo
    from ..agent.session_store import SavedSession
    from .output import Output


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[SavedSession | None]:
    """The session that the arguments name, for this process alone; None where they name none.

    Where the arguments name no folder and no model, those of the session count.

    Raises:
        SettingError: the session is about another folder, and it is not said which one is meant.
    """
    if not args.session and not args.resume:
        args.dir = args.dir or "."
        yield None
        return
    from ..agent.session_store import last_session, open_session

    with open_session(args.session or last_session()) as kept:
        if kept.exists:
            _as_it_was(kept.name, args)
        args.dir = args.dir or "."
        yield kept


def _as_it_was(name: str, args: argparse.Namespace) -> None:
    from ..agent.session_list import find_session

    kept = find_session(name)
    here = Path.cwd().resolve()
    if args.dir is None and kept.workspace and Path(kept.workspace) != here:
        raise SettingError(
            f"session {name} is about {printable(kept.workspace)}, and this is {here}: "
            f"continue with --dir {printable(shlex.quote(kept.workspace))}, or here with --dir ."
        )
    args.model = args.model or _model_of(kept)


def _model_of(kept: SessionInfo) -> str | None:
    """What `-m` would name the session's model by; None where it is not there any more."""
    from .engine_from_trace import NANO

    if kept.model_path.startswith(("http://", "https://")):
        return f"{kept.model_path}#{kept.model}"
    if os.path.exists(kept.model_path):
        return kept.model_path
    return "nano" if kept.model == NANO else None


def resume(
    kept: SavedSession | None, agent: Agent[Any], output: Output, *, quiet: bool = False
) -> None:
    """Go on where it ended, and say so."""
    for line in kept.resume(agent) if kept is not None else ():
        if not quiet:
            output.line(line, "dim")


def keep(kept: SavedSession | None, agent: Agent[Any], output: Output) -> bool:
    """Keep the conversation; what prevents it is told, and ends nothing: False then."""
    if kept is None:
        return True
    try:
        kept.save(agent)
    except AgentError as error:
        output.error(str(error))
        return False
    return True
