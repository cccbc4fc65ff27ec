"""Documents that a user attached: read through their descriptors, never written."""

from __future__ import annotations

import os
import weakref
from io import FileIO


class Attached:
    """An attached document with its own descriptor, independent of its name.

    Attributes:
        origin: where it is from, for people.
    """

    def __init__(self, descriptor: int, origin: str) -> None:
        self.origin = origin
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)

    def stat(self) -> os.stat_result:
        """Return the document's status."""
        return os.fstat(self._descriptor)

    def open(self) -> FileIO:
        """Open the document for reading, unbuffered, with its own offset."""
        return _FromStart(os.dup(self._descriptor), "rb")


class _FromStart(FileIO):
    """Descriptors of one file share their place in it, so this one keeps its own."""

    _at = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes from where the last read ended; all if it is below 0."""
        size = (
            max(os.fstat(self.fileno()).st_size - self._at, 0) if size is None or size < 0 else size
        )
        data = os.pread(self.fileno(), size, self._at)
        self._at += len(data)
        return data
