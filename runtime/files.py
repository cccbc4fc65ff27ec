"""Our own files: writable and, as a rule, readable only by their owner, whatever the umask.

Also whether a file that a user names can be written at all.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from ..errors import ModelError

PRIVATE = 0o700


def check_target(path: str | Path) -> None:
    """Raise ModelError unless a file can be written at the path.

    Raises:
        ModelError: it is a folder, a device or a pipe, or its folder is not there or not to be
            written to.
    """
    check_folder(path)
    if os.path.exists(path) and not os.path.isfile(path):
        # Whoever may write to /dev would have it replaced, for all programs.
        raise ModelError(f"cannot write {path}: it is not a regular file; name another")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.access(folder, os.W_OK):
        raise ModelError(f"cannot write {path}: the folder {folder} is not writable")


def check_folder(path: str | Path) -> None:
    """Raise ModelError if the path is a folder, or its parent folder does not exist."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise ModelError(f"cannot write {path}: it is a folder")
    if not os.path.isdir(folder):
        raise ModelError(f"cannot write {path}: there is no folder {folder}")


def make_folder(path: Path, mode: int = PRIVATE) -> None:
    """Make a folder and its missing parents, each with the permissions `mode` at most."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):  # another process was quicker
                folder.mkdir(mode)


def private_opener(path: str, flags: int) -> int:
    """Open a file, for `open(…, opener=…)`; a new file is readable by its owner only."""
    return os.open(path, flags, 0o600)


def write_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Atomically write a text file with the permissions `mode` at most; make its folder.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    folder_mode = mode | (mode & 0o444) >> 2  # who may read the file may search the folder
    make_folder(path.parent, folder_mode)
    temporary = path.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
