"""Timeouts of tool calls.

Python cannot kill a thread. A call that times out, or is abandoned, keeps running in a daemon
thread, and its result is discarded. A function registers with `on_abandon` what can be ended
early, such as a program that it started.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar

from .. import interrupts
from ..arguments import is_number
from ..errors import ToolError

T = TypeVar("T")

MAX_WAIT = threading.TIMEOUT_MAX / 2  # seconds; the system refuses to wait for twice as long


def limit_of(seconds: Any, what: str) -> float:
    """Check a caller's time limit; infinity becomes the longest wait that the system supports.

    Raises:
        ToolError: it is no number above 0; begins with `what`.
    """
    if not is_number(seconds) or not seconds > 0:
        raise ToolError(f"{what} must be a number of seconds above 0, not {seconds!r}")
    return float(min(seconds, MAX_WAIT))


class TimedTask(Generic[T]):
    """A function that runs in its own thread, with the caller's context variables.

    Args:
        work: the function.
        name: of the thread.
    """

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._given: list[T] = []
        self._raised: BaseException | None = None
        self._why: str | None = None
        self._to_end: list[Callable[[], None]] = []
        context = copy_context()
        context.run(_CURRENT.set, self)
        thread = threading.Thread(target=context.run, args=(self._do, work), name=name, daemon=True)
        try:
            interrupts.start(thread)
        except BaseException:  # such as Ctrl-C: no one will wait for it
            self.abandon("interrupted")
            raise

    def wait(self, seconds: float | None = None, why: str = "") -> T:
        """Wait for the function and return its result, or raise its exception.

        Args:
            seconds: when to leave it; None waits for as long as it takes, or until `abandon`.
            why: the message of the error.

        Raises:
            ToolError: it was left, here or by `abandon`.
        """
        try:
            if not interrupts.wait(self._over, seconds):
                self.abandon(why)
        except BaseException:  # such as Ctrl-C
            self.abandon("interrupted")
            raise
        if self._why is not None:
            raise ToolError(self._why)
        if self._raised is not None:
            raise self._raised
        return self._given[0]

    def abandon(self, why: str) -> None:
        """Stop waiting, from any thread; no effect once the function has returned."""
        with self._lock:
            if self._over.is_set() or self._why is not None:
                return
            self._why = why
            to_end, self._to_end = self._to_end, []
        for end in to_end:
            end()
        with interrupts.held():
            self._over.set()

    def _do(self, work: Callable[[], T]) -> None:
        try:
            self._given.append(work())
        except BaseException as error:
            self._raised = error
        with self._lock:
            if self._why is None:
                self._over.set()

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the task is abandoned within the block."""
        with self._lock:
            if self._why is not None:
                raise ToolError(self._why)
            self._to_end.append(end)
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._to_end.remove(end)


_CURRENT: ContextVar[TimedTask | None] = ContextVar("timed_task", default=None)


@contextlib.contextmanager
def on_abandon(end: Callable[[], None]) -> Iterator[None]:
    """Register a callback for when the running tool is abandoned within the block.

    Args:
        end: ends what the tool has started; called from another thread.

    Raises:
        ToolError: it was left before.
    """
    timed_task = _CURRENT.get()
    with contextlib.nullcontext() if timed_task is None else timed_task.ending(end):
        yield
