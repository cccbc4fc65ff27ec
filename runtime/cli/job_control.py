"""Handlers for Ctrl-Z and `fg`, and sections that Ctrl-C cannot interrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def when_stopped(leave: Callable[[], None], back: Callable[[], None]) -> Iterator[None]:
    """Call `leave` before Ctrl-Z stops the program, and `back` when it continues."""
    number = getattr(signal, "SIGTSTP", None)  # Windows has none
    if (
        number is None
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(number) is not signal.SIG_DFL  # such as where it is ignored
    ):
        yield
        return

    def stop(*_: object) -> None:
        leave()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # returns when the shell lets the program go on
        signal.signal(number, stop)
        back()

    signal.signal(number, stop)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def handling(number: int, handler: signal.Handlers) -> Iterator[None]:
    """Install a signal handler within the context, if in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def no_interrupts() -> contextlib.AbstractContextManager[None]:
    """Ignore Ctrl-C within the context, in the main thread."""
    return handling(signal.SIGINT, signal.SIG_IGN)
