"""``--session`` and ``--continue``: a conversation that outlives its process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import AgentError

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.sessions import KeptSession
    from .output import Output


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[KeptSession | None]:
    """The session that the arguments name, for this process alone; None where they name none."""
    if not args.session and not args.resume:
        yield None
        return
    from ..agent.sessions import last_session, open_session

    with open_session(args.session or last_session()) as kept:
        yield kept


def resume(
    kept: KeptSession | None, agent: Agent[Any], output: Output, *, quiet: bool = False
) -> None:
    """Go on where it ended, and say so."""
    for line in kept.resume(agent) if kept is not None else ():
        if not quiet:
            output.line(line, "dim")


def keep(kept: KeptSession | None, agent: Agent[Any], output: Output) -> None:
    """Keep the conversation; what prevents it is told, and ends nothing."""
    if kept is None:
        return
    try:
        kept.save(agent)
    except AgentError as error:
        output.error(str(error))
