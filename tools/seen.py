"""What a conversation has seen of files, so that it does not write over what it does not know.

Tools are shared by conversations, so each call is made within the record of the conversation that
makes it. A function that is called otherwise, as by a person's own program, has none.
"""

from __future__ import annotations

import hashlib
import os
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar

from ..arguments import without_surrogates
from .paths import real_path
from .workspace import Workspace

CHUNK = 1 << 20

_SEEN: ContextVar[MutableMapping[str, str] | None] = ContextVar("seen_files", default=None)


@contextmanager
def seeing(known: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The record for calls of tools within the block.

    Args:
        known: SHA-256 of what the conversation last saw of each file, by absolute path.

    Yields:
        What the calls add; an empty text for a file that is no longer there.
    """
    added: dict[str, str] = {}
    token = _SEEN.set(ChainMap(added, dict(known)))
    try:
        yield added
    finally:
        _SEEN.reset(token)


def note(workspace: Workspace, path: str, digest: str) -> None:
    """The conversation knows this version of the file."""
    if (seen := _SEEN.get()) is not None:
        seen[_key(workspace, path)] = digest


def known(workspace: Workspace, path: str) -> str:
    """SHA-256 of what the conversation saw of the file last; empty if it saw nothing."""
    seen = _SEEN.get()
    return "" if seen is None else seen.get(_key(workspace, path), "")


def note_move(workspace: Workspace, path: str, to: str) -> None:
    """What was seen of a file, or of those in a folder, was seen of it under its new name."""
    if (seen := _SEEN.get()) is None:
        return
    old, new = _key(workspace, path), _key(workspace, to)
    for one in [one for one in seen if one == old or one.startswith(f"{old}/")]:
        seen[new + one[len(old) :]], seen[one] = seen[one], ""


def digest_of(descriptor: int, most: int) -> str:
    """SHA-256 of an open file, whose place in it stays; empty if it is larger than `most`.

    Nothing is read where nobody would be told of it.
    """
    if _SEEN.get() is None or os.fstat(descriptor).st_size > most:
        return ""
    digest, at = hashlib.sha256(), 0
    try:
        while at <= most and (data := os.pread(descriptor, CHUNK, at)):
            digest.update(data)
            at += len(data)
    except OSError:  # who reads it next will be told
        return ""
    return digest.hexdigest() if at <= most else ""


def _key(workspace: Workspace, path: str) -> str:
    """One name for a file that is reached through a symlink, or through two workspaces."""
    return without_surrogates(real_path(workspace.root / path))
