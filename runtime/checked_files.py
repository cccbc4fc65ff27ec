"""Private files of this user: written atomically, and checked by SHA-256 when read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import re
import secrets
import stat
import sys
import time
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import open_regular, without_surrogates
from . import files
from .memory import will_need

PIECE = 1 << 20  # bytes that are read and hashed in turns: they stay in the cache between the two
MOST_SEALED = 64 << 20
UNFINISHED_S = 3600.0
"""Age in seconds after which a temporary file counts as abandoned."""
_UNFINISHED = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}")


class UnreadableError(ValueError):
    """A file, possibly valid, cannot be opened or mapped now, such as when too many are open."""


def make_folder(folder: Path) -> None:
    """Make a folder that only this user can access.

    Raises:
        OSError: it cannot be made, is a link, or belongs to someone else.
    """
    files.make_folder(folder)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or not _is_ours(found):
        raise OSError(errno.EPERM, "it is not a folder that you own", str(folder))


def write(path: Path, data: bytes | memoryview) -> str:
    """Atomically write a file that only this user can read; return its SHA-256."""
    # Another thread, or another process in a container of its own, may write the same.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    digest = hashlib.sha256()
    try:
        with open(descriptor, "wb", buffering=0) as file, memoryview(data) as view:
            for at in range(0, len(view), PIECE):
                piece = view[at : at + PIECE]
                digest.update(piece)
                done = 0
                while done < len(piece):
                    done += file.write(piece[done:])
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return digest.hexdigest()


def sweep_unfinished(path: str | os.PathLike[str], name: re.Pattern[str]) -> None:
    """Remove an abandoned temporary file if `name` matches the full name of its target."""
    path = Path(path)
    if (found := _UNFINISHED.fullmatch(path.name)) and name.fullmatch(found[1]):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < time.time() - UNFINISHED_S:
                path.unlink()


def write_sealed(path: Path, body: dict[str, Any]) -> None:
    """Write JSON with its SHA-256 on the line before it."""
    text = json.dumps(body, separators=(",", ":")).encode()
    write(path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_sealed(path: Path) -> bytes:
    """Read the JSON that `write_sealed` wrote; lone surrogates become U+FFFD.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not as it was written; says why.
    """
    try:
        with _open(path) as file:
            data = file.read(MOST_SEALED + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    digest, _, text = data.partition(b"\n")
    if len(data) > MOST_SEALED or hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("is damaged: its SHA-256 does not match")
    if rb"\ud" in text:
        text = without_surrogates(json.dumps(json.loads(text), ensure_ascii=False)).encode()
    return text


def map_bytes(path: Path, size: int, digest: str) -> np.ndarray:
    """Map a file of `size` bytes after checking its SHA-256: uint8 [size].

    It is in memory once for all that use it, and what is written there is not shared.

    Raises:
        ValueError: it is not as it was written; says why.
        UnreadableError: it cannot be opened or mapped now.
    """
    try:
        with _open(path) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise ValueError(f"has {found:,} bytes instead of {size:,}")
            if not size:
                return np.empty(0, np.uint8)
            data = np.frombuffer(_mapped(file.fileno(), size), np.uint8)
    except FileNotFoundError:
        raise ValueError("is missing") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from None
    will_need(data)
    if hashlib.sha256(data.data).hexdigest() != digest:
        raise ValueError("is damaged: its SHA-256 does not match")
    return data


def _open(path: Path) -> BufferedReader:
    """Open a file of this user's for reading: no link, pipe or device."""
    file = open_regular(path, getattr(os, "O_NOFOLLOW", 0))
    if not _is_ours(os.fstat(file.fileno())):
        file.close()
        raise OSError(0, "it is not a file that you own")
    return file


def _is_ours(found: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or found.st_uid in (os.getuid(), 0)


def _mapped(descriptor: int, size: int) -> mmap.mmap:
    """Map a file's bytes; writes to the map do not reach the file."""
    if sys.version_info >= (3, 13):  # before, each mapping keeps a descriptor
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY, trackfd=False)
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
