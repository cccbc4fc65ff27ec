"""Read-before-write check: records which file versions a conversation has seen.

Tools are shared by conversations, so each call is made within the record of the conversation that
makes it. A function that is called otherwise, as by a person's own program, has none.
"""

from __future__ import annotations

import hashlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar

from ..arguments import without_surrogates
from ..errors import ToolError
from .formats import split_lines
from .paths import real_path
from .workspace import Workspace

CHUNK = 1 << 20
MAX_SHOWN = 1 << 18  # bytes of a file that one result may show whole

Readable = Callable[[str], bool]
"""Whether a conversation may read a path of the workspace."""

_SEEN: ContextVar[MutableMapping[str, str] | None] = ContextVar("seen_files", default=None)
_READABLE: ContextVar[Readable | None] = ContextVar("readable_files", default=None)


@contextmanager
def seeing(known: Mapping[str, str], readable: Readable | None = None) -> Iterator[dict[str, str]]:
    """Make `known` the record of seen file versions for tool calls within the block.

    Args:
        known: SHA-256 of what the conversation last saw of each file, by absolute path.
        readable: which files it may read; None: it has no tool to read any, so that it need not
            have read what it writes over.

    Yields:
        What the calls add; an empty text for a file that is no longer there.
    """
    added: dict[str, str] = {}
    token, other = _SEEN.set(ChainMap(added, dict(known))), _READABLE.set(readable)
    try:
        yield added
    finally:
        _SEEN.reset(token)
        _READABLE.reset(other)


def note(workspace: Workspace, path: str, digest: str) -> None:
    """Record the version of a file, by its digest, as seen by the conversation."""
    if (seen := _SEEN.get()) is not None:
        seen[_key(workspace, path)] = digest


def known(workspace: Workspace, path: str) -> str:
    """Return the SHA-256 of the version last seen; empty if none."""
    seen = _SEEN.get()
    return "" if seen is None else seen.get(_key(workspace, path), "")


def is_guarded() -> bool:
    """Return whether the calling conversation can read files."""
    return _READABLE.get() is not None


def unread(workspace: Workspace, path: str) -> Readable | None:
    """Return the conversation's filter of readable paths if it has not seen the file, else None."""
    seen = _SEEN.get()
    return None if seen is None or _key(workspace, path) in seen else _READABLE.get()


def shown_whole(workspace: Workspace, path: str, result: str) -> dict[str, str]:
    """Return a file's path and digest if a numbered result shows all of its lines, else {}."""
    try:
        with workspace.open(path) as file:
            data = file.read(MAX_SHOWN + 1)
    except (ToolError, OSError):
        return {}
    lines = split_lines(data.decode("utf-8", "replace"))
    numbered = [f"{number}\t{line}" for number, line in enumerate(lines, 1)]
    if len(data) > MAX_SHOWN or not {*numbered} <= {*result.split("\n")}:
        return {}
    return {_key(workspace, path): hashlib.sha256(data).hexdigest()}


def note_move(workspace: Workspace, path: str, to: str) -> None:
    """Move the records of a file, or of a folder's files, to their new names."""
    if (seen := _SEEN.get()) is None:
        return
    old, new = _key(workspace, path), _key(workspace, to)
    for one in [one for one in seen if one == old or one.startswith(f"{old}/")]:
        seen[new + one[len(old) :]], seen[one] = seen[one], ""


def digest_of(descriptor: int, max_bytes: int) -> str:
    """Return the SHA-256 of an open file, keeping its offset; empty if over `max_bytes` bytes.

    Nothing is read where no conversation records it.
    """
    if _SEEN.get() is None or os.fstat(descriptor).st_size > max_bytes:
        return ""
    digest, at = hashlib.sha256(), 0
    try:
        while at <= max_bytes and (data := os.pread(descriptor, CHUNK, at)):
            digest.update(data)
            at += len(data)
    except OSError:  # the next reader gets the error
        return ""
    return digest.hexdigest() if at <= max_bytes else ""


def _key(workspace: Workspace, path: str) -> str:
    """Return one key for a file, whichever symlink or workspace leads to it."""
    return without_surrogates(real_path(workspace.root / path))
