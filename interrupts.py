"""Delivers Ctrl-C to a main thread that waits for other threads.

Python raises KeyboardInterrupt between any two steps of the main thread, also in the midst of
`threading.Condition`, which events, futures and queues are made of. Its lock then stays taken for
ever: the thread that sets the event waits for the lock, and the one that waits for it never ends. A
plain `threading.Lock` and `queue.SimpleQueue` are safe: they are one step. So the main thread uses
anything else of that kind, and starts threads, within `held` alone; it waits in pieces.

In any other thread all of this does nothing more than what it wraps.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

PIECE_S = 0.05  # of a wait, after which an interrupt that came within it is raised
_NUMBERS = [  # of those that are made an exception; Windows has no SIGHUP
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class held:
    """Defers interrupts to the end of the block, which must be short."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._pending: list[int] = []
        self._holds = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            left = getattr(handler, "__self__", None)
            if isinstance(left, held) and not left._holds:  # by an exception, see `_keep`
                handler = left._before[number]
            if callable(handler):  # else it ends the program, or nothing
                self._before[number] = handler
                signal.signal(number, self._keep)
        self._holds = True

    def __exit__(self, *_: object) -> None:
        self._holds = False
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for number in self._pending:
            self._before[number](number, None)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if self._holds:
            self._pending.append(number)
        else:  # as it begins or ends: what this raises may leave the handler behind
            self._before[number](number, frame)


def start(thread: threading.Thread) -> None:
    """Start a thread; interrupts are deferred while Python waits for its start."""
    with held():
        thread.start()


def wait(event: threading.Event, seconds: float | None = None) -> bool:
    """Wait for an event, as `event.wait`, in slices that an interrupt can end."""
    until = None if seconds is None else time.monotonic() + min(seconds, threading.TIMEOUT_MAX)
    while True:
        left = PIECE_S if until is None else min(PIECE_S, until - time.monotonic())
        with held():
            if event.wait(max(0.0, left)):
                return True
        if left <= 0:
            return False


def completed(futures: Iterable[Future[T]]) -> Iterator[Future[T]]:
    """Yield futures as they finish, as `concurrent.futures.as_completed`, interruptibly."""
    from concurrent.futures import FIRST_COMPLETED
    from concurrent.futures import wait as first_of

    running = set(futures)
    while running:
        with held():
            done, running = first_of(running, PIECE_S, FIRST_COMPLETED)
        yield from done


def result(future: Future[T], seconds: float | None = None) -> T:
    """Return a future's result, as `future.result`, interruptibly."""
    until = None if seconds is None else time.monotonic() + min(seconds, threading.TIMEOUT_MAX)
    while True:
        left = PIECE_S if until is None else min(PIECE_S, until - time.monotonic())
        with held():
            try:
                return future.result(max(0.0, left))
            except TimeoutError:
                if future.done():  # as the wait ended, or the error is the work's own
                    return future.result()
                if left <= 0:
                    raise


def results(
    threads: ThreadPoolExecutor, work: Callable[[int], T], numbers: Iterable[int]
) -> Iterator[T]:
    """Yield the results of `work` in order, as `threads.map`, interruptibly."""
    with held():
        futures = [threads.submit(work, number) for number in numbers]
    yield from map(result, futures)
