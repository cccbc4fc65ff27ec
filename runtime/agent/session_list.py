"""The saved sessions: listing, lookup and removal."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import AgentError, ConversationError
from ..conversation.messages import Message
from .session_store import (
    CONVERSATION,
    held,
    no_name,
    read_state,
    saved_folders,
    sessions_folder,
)


@dataclass(frozen=True)
class SessionInfo:
    """A saved session.

    Attributes:
        name, folder: its name and its folder.
        saved_at: time of the last save, in seconds since 1970.
        nbytes: total size of its files.
        workspace: folder of its file tools; empty if none, or not known.
        model: name of the model; empty if not known.
        model_path: the model's file, or the address of its server.
        questions: number of questions.
        messages: number of messages.
        problem: why it cannot be read; empty if it can.
    """

    name: str
    folder: Path
    saved_at: float
    nbytes: int
    workspace: str = ""
    model: str = ""
    model_path: str = ""
    questions: int = 0
    messages: list[Message] = field(default_factory=list)
    problem: str = ""


def list_sessions(root: str | Path | None = None) -> list[SessionInfo]:
    """Return all saved sessions, the newest first."""
    found = [_info(folder, saved) for folder, saved in saved_folders(sessions_folder(root))]
    return sorted(found, key=lambda one: (-one.saved_at, one.name))


def find_session(name: str, root: str | Path | None = None) -> SessionInfo:
    """Return the session of that name.

    Raises:
        ConversationError: there is none, or it cannot be read; the message lists those that exist.
    """
    if problem := no_name(name):
        raise AgentError(problem)
    where = sessions_folder(root)
    try:
        if (where / name).is_symlink():  # not followed, as when it is opened
            raise FileNotFoundError
        return _info(where / name, (where / name / CONVERSATION).lstat().st_mtime)
    except PermissionError as error:
        raise ConversationError(
            f"cannot read the session {where / name}: {error.strerror}"
        ) from None
    except OSError:
        known = ", ".join(one.name for one in list_sessions(root)) or "none"
        raise ConversationError(
            f"there is no session {name!r} in {where}; known: {known}"
        ) from None


def remove_session(session: SessionInfo) -> None:
    """Remove a session with its KV cache.

    Raises:
        AgentError: another process has it, or it cannot be removed.
    """
    with held(session.folder) as ours:
        if not ours:
            raise AgentError(
                f"session {session.name} is in use by another process; stop that process first"
            )
        try:
            shutil.rmtree(session.folder)
        except OSError as error:
            raise AgentError(
                f"session {session.name} cannot be removed: {error.filename}: {error.strerror}"
            ) from None


def _info(folder: Path, saved: float) -> SessionInfo:
    nbytes = _size(folder)
    try:
        state = read_state(folder)
    except ValueError as error:
        problem = f"{CONVERSATION} {error}"
        return SessionInfo(folder.name, folder, saved, nbytes, problem=problem)
    return SessionInfo(
        folder.name,
        folder,
        saved,
        nbytes,
        state.workspace,
        state.model_name,
        state.model_path,
        state.turn,
        state.messages,
    )


def _size(folder: Path) -> int:
    """Return the total bytes of a folder's files; one that is being replaced counts as 0."""
    nbytes = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                nbytes += entry.stat(follow_symlinks=False).st_size
    return nbytes
