"""A mapped file, held open to detect changes.

A mapping trusts every writer of its file: if it shrinks, a lost page reads as zeros
where the mapping is guarded (`jit/sigbus.py`), else touching it ends the process with SIGBUS; if it
is written to, other bytes are read than were checked. A file that is renamed, replaced under its
name or removed does no harm: mapping and descriptor are of the one that was opened, and what
identifies it later, such as its SHA-256, comes from them.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError
from . import filehash

if TYPE_CHECKING:
    import numpy as np


class MappedFileGuard:
    """A guard that detects whether a file was cut, grown or written to since it was mapped.

    Attributes:
        path: the name that it had.
        status: what `os.fstat` gave when it was opened.
    """

    def __init__(self, path: Path, descriptor: int, kind: str = "model file") -> None:
        """Watch a file; `descriptor`: open on it; it is duplicated, and may be closed."""
        self.path = path
        self._kind = kind
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self.status = os.fstat(self._descriptor)
        self._lost: np.ndarray | None = None  # see `guard`

    def __deepcopy__(self, memo: object) -> MappedFileGuard:
        return self  # a copy would close the descriptor

    def map(self) -> mmap.mmap:
        """Map the whole file, read-only; the next `check` finds a page that it lost."""
        from ...jit.sigbus import guard

        try:
            mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            message = f"the {self._kind} {self.path} was emptied while it was opened; load it again"
            raise ModelError(message) from error
        self._lost = guard(mapped)
        return mapped

    def check(self) -> None:
        """Raise ModelError if the file has changed. Takes about half a microsecond."""
        before = self.status
        try:
            now = os.fstat(self._descriptor)
        except OSError as error:
            raise self._gone(error) from error
        if self._lost is not None and self._lost[0]:
            what = f"size: {before.st_size}, then less"
        elif now.st_size != before.st_size:
            what = f"size: {before.st_size}, now {now.st_size}"
        elif now.st_mtime_ns != before.st_mtime_ns:
            what = f"time: {before.st_mtime_ns}, now {now.st_mtime_ns}"
        else:
            return
        raise ModelError(
            f"the {self._kind} {self.path} was changed while in use ({what}); load it again"
        )

    def sampled(self) -> str:
        """Return the SHA-256 of both ends and 62 samples between, as hex digits; it takes ms.

        Raises:
            ModelError: it cannot be read.
        """
        digest, last = sha256(), max(0, self.status.st_size - (1 << 16))
        try:
            for n in range(64):
                size = 1 << 16 if n in (0, 63) else 1 << 12
                digest.update(os.pread(self._descriptor, size, last * n // 63))
        except OSError as error:
            raise self._gone(error) from error
        return digest.hexdigest()

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it was opened, as hex digits. Reads all of it, once.

        Raises:
            ModelError: it was changed before it was hashed, or cannot be read.
        """
        if (known := filehash.remembered(self.status)) is not None:
            return known
        self.check()
        try:
            digest = filehash.sha256_of_open(self._descriptor)
        except OSError as error:
            raise self._gone(error) from error
        self.check()
        return digest

    def _gone(self, error: OSError) -> ModelError:  # such as a file of another machine
        message = f"the {self._kind} {self.path} is gone: {error.strerror}; load it again"
        return ModelError(message)


def sha256_of(files: Sequence[MappedFileGuard]) -> str:
    """Return one digest for a model: of its only file, or of its parts' joined hex digests."""
    digests = [file.sha256() for file in files]
    return digests[0] if len(digests) == 1 else sha256("".join(digests).encode()).hexdigest()
