"""One process at a time: locks on files, the same ones that `huggingface_hub` takes."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: `os.replace` at the end still never shows an unfinished file
    fcntl = None

_POLL_S = 0.2


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on the file at `path`, which is made; `waiting` is called if another has it.

    A lock ends with its process, however that ends. The file stays: were it removed, two processes
    could hold locks on files of the same name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open(path)
    said = False
    try:
        while fcntl is not None and not _take(descriptor):
            if not said:
                said = True
                waiting()
            time.sleep(_POLL_S)
            if os.fstat(descriptor).st_nlink == 0:  # removed by a tool that does so
                os.close(descriptor)
                descriptor = _open(path)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    # Never truncated, never through a link: what is there may not be ours.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o664)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"the lock {path} is not a regular file")
    return descriptor


def _take(descriptor: int) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return os.fstat(descriptor).st_nlink > 0
