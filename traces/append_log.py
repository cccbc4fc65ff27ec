"""An append-only log: one write per line; a torn tail is sealed before the next.

An append that returns has handed its whole line to the operating system, so it outlives the
process. A writer that dies in its middle, or a disk that fills up, leaves at most one unfinished
line at the end of the file; the next append ends that line and marks it before it continues. A file
that was made for lines of which none could be written is removed when it is closed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import TraceError

try:
    import fcntl
except ImportError:  # Windows has no flock; there two writers are not distinguished
    fcntl = None

_CHUNK = 1 << 16
_MAX_READ = 1 << 30  # one system call returns at most two gigabytes
_OPENING = b'{"v":'  # of every line; a file that begins otherwise is not ours to add to


class AppendLog:
    """An append-only file of lines, with one writer.

    Args:
        path: the file; it is made when missing, readable by its owner only, because a trace
            holds text of files and the conversation.
        seal: called with the length in bytes of a torn tail; returns the line that marks it.
        version: of the format; a file of another one is not added to.

    Raises:
        TraceError: the path cannot be opened, is not a regular file, holds something else than a
            trace of that format, or has a writer already.
    """

    def __init__(self, path: Path, seal: Callable[[int], str], version: int) -> None:
        self.path = path
        self._version = version
        self._seal = seal
        self._whole = False  # the file is known to end with a whole line
        self._worthless = False  # it is of our making, and has no line yet
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not hang
        try:
            try:
                self._fd: int | None = os.open(path, flags | os.O_EXCL, 0o600)
                self._worthless = True
            except FileExistsError:
                self._fd = os.open(path, flags, 0o600)
        except FileNotFoundError as error:
            raise TraceError(
                f"cannot write the trace {path}: the folder {path.parent} does not exist; create "
                "it first"
            ) from error
        except OSError as error:
            raise TraceError(f"cannot write the trace {path}: {error.strerror}") from error
        try:
            self._claim()
            self.append("")
        except BaseException:
            self.close()
            raise

    def append(self, line: str) -> None:
        """Append one line, given without its newline; an empty one only seals a torn tail.

        Raises:
            TraceError: the disk refused it; the line is not acknowledged.
        """
        if self._fd is None:
            raise TraceError(f"the trace {self.path} is closed; open it again to add to it")
        try:
            data = b"" if self._whole else self._mark_of_torn_tail()
            if line:
                data += line.encode("ascii") + b"\n"
            self._whole = False  # until the write below is known to be complete
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            finally:
                if data == b"\n":  # without it alone the line would read as one that is whole
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - 1)
            self._whole = True
            self._worthless = self._worthless and not line
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._fd is not None:
            if self._worthless:
                self._remove()
            os.close(self._fd)
            self._fd = None

    def _remove(self) -> None:
        """Remove the file, if its name still refers to it."""
        assert self._fd is not None
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._fd), os.lstat(self.path)):
                self.path.unlink()

    def _claim(self) -> None:
        """Lock the file for one writer: a second would mistake an ongoing write for a torn tail."""
        assert self._fd is not None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise TraceError(f"cannot write the trace {self.path}: not a regular file")
        first = os.read(self._fd, len(_OPENING) + 8)
        opening, number = first[: len(_OPENING)], first[len(_OPENING) :].partition(b",")
        if opening != _OPENING[: len(opening)]:
            raise TraceError(f"{self.path} exists and is not a trace; give another file name")
        if number[1] and number[0].strip() != b"%d" % self._version:
            raise TraceError(
                f"{self.path} exists and is a trace of a format other than {self._version}; give "
                "another file name"
            )
        if not claim(self._fd):
            raise TraceError(f"cannot write the trace {self.path}: another run is writing to it")

    def _mark_of_torn_tail(self) -> bytes:
        """Return what must precede the next line: nothing, a newline, or a newline and a seal."""
        last = self._last_line()
        newline = b"" if last.endswith(b"\n") else b"\n"
        text = last.strip()
        if not text:
            return b""
        if _is_json(text):
            return newline
        return newline + self._seal(len(text)).encode("ascii") + b"\n"

    def _last_line(self) -> bytes:
        """Return the last line of the file, with its newline if it has one."""
        assert self._fd is not None
        start = os.fstat(self._fd).st_size
        tail = b""
        while start and b"\n" not in tail[:-1]:
            # As much again as was read: a line of any length takes time in proportion to it.
            step = min(start, max(_CHUNK, len(tail)), _MAX_READ)
            start -= step
            os.lseek(self._fd, start, os.SEEK_SET)
            tail = os.read(self._fd, step) + tail
        return tail[tail[:-1].rfind(b"\n") + 1 :]


def is_trace(path: Path) -> bool:
    """Return whether a path is a regular file that begins as a trace does, or is empty.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        opening = file.read(len(_OPENING))
    return opening == _OPENING[: len(opening)]


def claim(descriptor: int) -> bool:
    """Lock an open file for one writer until it is closed; return False if another has it.

    Without locks no writer is known.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def is_being_written(path: Path) -> bool:
    """Return whether a writer holds the lock of this trace.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return not claim(descriptor)
    finally:
        os.close(descriptor)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
