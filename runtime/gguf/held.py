"""A file that is mapped, held open to see whether it is still as it was.

Who maps a file trusts everybody who can write to it: if it shrinks, touching a lost page ends the
process with SIGBUS, which Python cannot catch; if it is written to, other bytes are read than were
checked. A file that is renamed, replaced under its name or removed does no harm: the mapping keeps
the one that it was made of.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from ...errors import ModelError


class HeldFile:
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

    def check(self) -> None:
        """Raise ModelError if the file is not as it was. Takes half a microsecond or so."""
        try:
            now = os.fstat(self._descriptor)
        except OSError as error:  # such as a file of another machine that is gone there
            message = f"the {self._kind} {self.path} is gone: {error.strerror}; load it again"
            raise ModelError(message) from error
        if now.st_size != self._size:
            what = f"size: {self._size}, now {now.st_size}"
        elif now.st_mtime_ns != self._time:
            what = f"time: {self._time}, now {now.st_mtime_ns}"
        else:
            return
        raise ModelError(
            f"the {self._kind} {self.path} was changed while in use ({what}); load it again"
        )
