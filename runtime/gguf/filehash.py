"""SHA-256 of model files, remembered: hashing one of many gigabytes takes many seconds.

What is remembered holds for a path, size, time and inode; a file that was written to or replaced
is hashed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ...arguments import open_regular, read_own, user_folder
from ..files import write_file

_MOST = 4096  # files that are remembered; the oldest are forgotten first
_PIECE = 1 << 22  # bytes between two calls of `progress`


def sha256(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """Hex digest of the file at `path`; `progress` hears how many bytes are read."""
    key = _key(path)
    known = _load()
    if key not in known:
        digest = _digest(path, progress)
        if _key(path) == key:  # not written to meanwhile
            remember(path, digest)
        return digest
    return known[key]


def sha256_of_parts(paths: Sequence[Path]) -> str:
    """One digest for a model: that of its only file, or of the hex digests of its parts, joined."""
    digests = [sha256(path) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def remembered(path: Path) -> str | None:
    """The digest of `path` if it is known without reading the file."""
    return _load().get(_key(path))


def remember(path: Path, digest: str) -> None:
    """Note that the file at `path`, as it is now, has this digest."""
    known = _load()
    known[_key(path)] = digest
    kept = dict(list(known.items())[-_MOST:])
    with contextlib.suppress(OSError):  # it is only slower without
        write_file(_memory(), json.dumps(kept, indent=0))


def _digest(path: Path, progress: Callable[[int], None] | None) -> str:
    hasher, done = hashlib.sha256(), 0
    buffer = memoryview(bytearray(_PIECE))
    with open_regular(path) as file:
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
            done += count
            if progress is not None:
                progress(done)
    return hasher.hexdigest()


def _key(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}"


def _load() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(read_own(_memory()))
        if isinstance(known, dict):
            return {str(key): str(value) for key, value in known.items()}
    return {}


def _memory() -> Path:
    return user_folder("cache") / "sha256.json"
