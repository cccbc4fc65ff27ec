"""Writes to disk while the process computes nothing else: what no answer should wait for.

At the end of the process it writes on for some seconds at most, if that is enough.
"""

from __future__ import annotations

import atexit
import logging
import signal
import threading
import time
from collections.abc import Callable

from ... import interrupts
from ...errors import ModelError

POLL_S = 0.05
QUIET = 10  # polls in which nothing was computed, before it begins
BUSY = 0.2  # share of a core that other threads take, from which on it waits
LINGER_S = 5.0  # that the end of the process waits for it

Write = Callable[[Callable[[float], None]], None]
log = logging.getLogger("triplepoint.weights")


class _AbandonedError(Exception):
    """The process ends before all is written."""


class IdleWriter:
    """A thread that calls `write` once, with a function to be called with the share written.

    `write` must remove what it has written when that function raises.
    """

    def __init__(self, write: Write) -> None:
        self._write: Write | None = write
        self._deadline: float | None = None
        self._resumed, self._spent = time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name="triplepoint-keep", daemon=True)
        atexit.register(self.finish)  # first: the thread may be quick
        try:
            with interrupts.held():
                self._thread.start()
        except RuntimeError:  # the system has no thread for it
            atexit.unregister(self.finish)

    def finish(self, patience_s: float = LINGER_S) -> None:
        """Have the rest written at once, or nothing if that takes longer than `patience_s`."""
        # Who pressed Ctrl-C has waited enough, and who cannot press it must not wait.
        interrupted = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        self._deadline = time.monotonic() + (0.0 if interrupted else patience_s)
        while self._thread.is_alive() and time.monotonic() < self._deadline + 1.0:
            try:
                time.sleep(POLL_S)
            except KeyboardInterrupt:
                self._deadline = time.monotonic()

    def _run(self) -> None:
        try:
            quiet = 0
            while quiet < QUIET and self._deadline is None:
                quiet = quiet + 1 if self._others() < BUSY else 0
            self._resumed = time.monotonic()
            assert self._write is not None
            self._write(self._go_on)
        except (_AbandonedError, ModelError, OSError) as error:  # it is packed again next time
            log.debug("no packed copy is kept: %r", error)
        finally:
            self._write = None  # and with it the weights
            atexit.unregister(self.finish)

    def _go_on(self, share: float) -> None:
        self._spent += time.monotonic() - self._resumed
        while self._deadline is None and self._others() >= BUSY:
            pass
        self._resumed = now = time.monotonic()
        left = self._spent / share * (1 - share) if share else 0.0
        if self._deadline is not None and share < 1 and now + left >= self._deadline:
            raise _AbandonedError

    def _others(self) -> float:
        """Return the share of a core that other threads of the process take in the next moment."""
        began, own, whole = time.monotonic(), time.thread_time(), time.process_time()
        time.sleep(POLL_S)
        taken = time.process_time() - whole - (time.thread_time() - own)
        return taken / (time.monotonic() - began)
