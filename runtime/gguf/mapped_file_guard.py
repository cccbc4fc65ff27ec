"""A file that is mapped, held open to see whether it is still as it was.

Who maps a file trusts everybody who can write to it: if it shrinks, a lost page reads as zeros
where the mapping is guarded (`jit/sigbus.py`), else touching it ends the process with SIGBUS; if it
is written to, other bytes are read than were checked. A file that is renamed, replaced under its
name or removed does no harm: the mapping keeps the one that it was made of.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError

if TYPE_CHECKING:
    from ...jit.sigbus import Guard


class MappedFileGuard:
    """Looks whether a file was cut, grown or written to since it was mapped.

    Attributes:
        path: the name that it had.
    """

    def __init__(self, path: Path, descriptor: int, kind: str = "model file") -> None:
        """`descriptor`: of the file, opened; it is duplicated, and may be closed."""
        self.path = path
        self._kind = kind
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        status = os.fstat(self._descriptor)
        self._size, self._time = status.st_size, status.st_mtime_ns
        self._guard: Guard | None = None

    def map(self) -> mmap.mmap:
        """The whole file, read-only; a page that it loses is found by the next `check`."""
        from ...jit.sigbus import guard

        mapped = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        self._guard = guard(mapped)
        return mapped

    def check(self) -> None:
        """Raise ModelError if the file is not as it was. Takes half a microsecond or so."""
        try:
            now = os.fstat(self._descriptor)
        except OSError as error:  # such as a file of another machine that is gone there
            message = f"the {self._kind} {self.path} is gone: {error.strerror}; load it again"
            raise ModelError(message) from error
        if self._guard is not None and self._guard.lost:
            what = f"size: {self._size}, then less"
        elif now.st_size != self._size:
            what = f"size: {self._size}, now {now.st_size}"
        elif now.st_mtime_ns != self._time:
            what = f"time: {self._time}, now {now.st_mtime_ns}"
        else:
            return
        raise ModelError(
            f"the {self._kind} {self.path} was changed while in use ({what}); load it again"
        )
