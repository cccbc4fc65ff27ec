"""A program on a pseudo-terminal: what it shows is waited for, what a person types is sent."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


# Ctrl-C is a signal only for the session whose controlling terminal it is pressed on.
# Under nohup tests ignore SIGHUP, and so would what they start.
_TAKE = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A running program and its terminal.

    Attributes:
        raw: everything it has shown, escapes included.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, columns: int = 100
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # A test run may be told how wide its own terminal is; this one says so itself.
            env={name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")},
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._seen = 0

    @property
    def shown(self) -> str:
        """Everything so far as plain text; what was drawn over is still in it."""
        return _ESCAPES.sub("", self.raw)

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Wait until a text comes that was not there at the last call; returns what came."""
        until = time.monotonic() + seconds
        while text not in self.shown[self._seen :]:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                came = self.shown[self._seen :]
                raise AssertionError(f"{text!r} did not come; what came is {came!r}")
        came = self.shown[self._seen :]
        end = self._seen + came.index(text) + len(text)
        came, self._seen = self.shown[self._seen : end], end
        return came

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._ours, text.encode() + b"\n")

    def press(self, key: bytes) -> None:
        """Press a key, such as Ctrl-C (``b"\\x03"``)."""
        os.write(self._ours, key)

    def press_until_end(self, key: bytes, seconds: float = 60) -> int:
        """Press a key again and again: readline loses one that comes just before it waits."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.press(key)
            again = time.monotonic() + 3  # not while it is ending
            while self.process.poll() is None and time.monotonic() < again:
                self._read(0.1)
        return self.end(1)

    def end(self, seconds: float = 60) -> int:
        """Wait for its end; returns the status."""
        while self._read(seconds):
            pass
        return self.process.wait(seconds)

    def hang_up(self, seconds: float = 60) -> int:
        """Close the terminal under the program; returns the status."""
        os.close(self._ours)
        self._ours = os.open(os.devnull, os.O_RDWR)
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the other end has closed
            return False
        self.raw += self._decode(data)
        return bool(data)
