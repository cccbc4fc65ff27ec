"""A cache of the SHA-256 of model files: hashing gigabytes takes seconds.

All of this is about an open file, never about a path: another file may be there a moment later.
A digest holds for a device, inode, size, time of change and time of status change. The last one
shows a write after which a program has restored the time of change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from ...arguments import open_regular, read_own, user_folder
from ..files import write_file

_MAX_FILES = 4096  # files that are remembered; the oldest are forgotten first
_PIECE = 1 << 22  # bytes between two calls of `progress`
_SETTLED_NS = 2_000_000_000  # a later write has another time, on file systems with coarse ones too
_RECENT_NS = 60_000_000_000

Progress = Callable[[int], None]


def sha256(path: Path, progress: Progress | None = None) -> str:
    """Return the hex digest of the file at `path`; `progress` gets the number of bytes read."""
    with open_regular(path) as file:
        return sha256_of_open(file.fileno(), progress)


def sha256_of_open(descriptor: int, progress: Progress | None = None) -> str:
    """Return the hex digest of an open file; its position does not change.

    Raises:
        OSError: it cannot be read.
    """
    began, status = time.time_ns(), os.fstat(descriptor)
    if (known := remembered(status)) is not None:
        return known
    hasher, done = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _PIECE, done):
        hasher.update(piece)
        done += len(piece)
        if progress is not None:
            progress(done)
    digest = hasher.hexdigest()
    settled = began - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED_NS
    if settled and _key(os.fstat(descriptor)) == _key(status):  # not written to meanwhile
        remember(status, digest)
    return digest


def remembered(status: os.stat_result) -> str | None:
    """Return the cached digest of the file with this status, without reading the file."""
    return _load().get(_key(status))


def remember(status: os.stat_result, digest: str) -> None:
    """Cache the digest of the file with this status, in place of any earlier one."""
    old = f"{status.st_dev}|{status.st_ino}|"
    known = {key: value for key, value in _load().items() if not key.startswith(old)}
    known[_key(status)] = digest
    recent = dict(list(known.items())[-_MAX_FILES:])
    with contextlib.suppress(OSError):  # it is only slower without
        write_file(_memory(), json.dumps(recent, indent=0))


def touch(path: Path) -> None:
    """Set a file's access time to now, which file systems often do not do; keep its cached digest.

    Raises:
        OSError: it cannot be opened, or belongs to someone else.
    """
    with open_regular(path) as file:
        now, status = time.time_ns(), os.fstat(file.fileno())
        if 0 <= now - status.st_atime_ns < _RECENT_NS:  # a server looks every few seconds
            return
        os.utime(file.fileno(), ns=(now, status.st_mtime_ns))
        if (known := remembered(status)) is not None:  # the call has set the time of status change
            remember(os.fstat(file.fileno()), known)


def _key(status: os.stat_result) -> str:
    times = f"{status.st_mtime_ns}|{status.st_ctime_ns}"
    return f"{status.st_dev}|{status.st_ino}|{status.st_size}|{times}"


def _load() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(read_own(_memory()))
        if isinstance(known, dict):
            return {str(key): str(value) for key, value in known.items()}
    return {}


def _memory() -> Path:
    return user_folder("cache") / "sha256.json"
