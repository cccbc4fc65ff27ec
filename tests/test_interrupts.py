"""Ctrl-C that comes in the midst of a lock's own steps: nobody may wait for that lock for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from triplepoint import interrupts
from triplepoint.tools.command import CommandTools
from triplepoint.tools.timeouts import TimedTask

LIMIT = 30  # seconds after which a wait counts as one for ever


class Interruptions:
    """One Ctrl-C at a time, as the main thread has just taken the lock of a condition."""

    def __init__(self) -> None:
        self.at: int | None = None  # how many conditions from now on

    def seen(self) -> None:
        here = threading.get_ident() == threading.main_thread().ident
        if here and self.at is not None:
            self.at -= 1
            if self.at < 0:
                self.at = None
                signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruptions]:
    made = Interruptions()
    enter = threading.Condition.__enter__

    def cut(condition: threading.Condition) -> bool:
        taken = enter(condition)
        made.seen()
        return taken

    monkeypatch.setattr(threading.Condition, "__enter__", cut)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield made
    signal.signal(signal.SIGINT, before)


def _event() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.set, daemon=True)
    try:
        interrupts.start(thread)
        interrupts.wait(event)
    finally:
        thread.join(LIMIT)
        assert not thread.is_alive(), "it waits for a lock that nobody has"


def _future() -> None:
    with ThreadPoolExecutor(1) as threads:
        assert list(interrupts.results(threads, str, range(3))) == ["0", "1", "2"]


def _completed() -> None:
    with ThreadPoolExecutor(2) as threads:
        with interrupts.held():
            futures = [threads.submit(str, number) for number in range(3)]
        assert {future.result() for future in interrupts.completed(futures)} == {"0", "1", "2"}


def _task() -> None:
    work: list[threading.Thread] = []

    def slowly() -> None:
        work.append(threading.current_thread())
        time.sleep(0.02)

    try:
        TimedTask(slowly, "t").wait(LIMIT)
    finally:
        for thread in work:
            thread.join(LIMIT)
            assert not thread.is_alive(), "it waits for a lock that nobody has"


@pytest.mark.parametrize("wait", [_event, _future, _completed, _task])
def test_no_lock_is_left_taken(wait: Callable[[], None], interruptions: Interruptions) -> None:
    """Whichever condition it comes in: the wait ends with it, and every thread goes on."""
    cut = 0
    for number in range(100):
        interruptions.at = number
        try:
            wait()
        except KeyboardInterrupt:
            cut += 1
        if interruptions.at is not None:  # there were fewer conditions
            break
    interruptions.at = None
    assert cut


def test_held() -> None:
    """An interrupt waits for the end, also through blocks within, and comes once."""
    handler = signal.getsignal(signal.SIGINT)
    done: list[str] = []

    def work() -> None:
        with interrupts.held():
            with interrupts.held():
                signal.raise_signal(signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("behind")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is handler
    with interrupts.held():
        pass


def test_a_wait_ends_in_time() -> None:
    """As what they stand for: an event that is not set, and a future without a result."""
    assert not interrupts.wait(threading.Event(), 0.01)
    with ThreadPoolExecutor(1) as threads:
        over = threading.Event()
        future = threads.submit(over.wait, LIMIT)
        with pytest.raises(TimeoutError):
            interrupts.result(future, 0.01)
        over.set()
        assert interrupts.result(future, LIMIT)


def test_an_error_of_the_work_is_raised() -> None:
    """A `TimeoutError` that the work raises is no reason to wait on."""

    def work(_: int) -> Any:
        raise TimeoutError("mine")

    with ThreadPoolExecutor(1) as threads, pytest.raises(TimeoutError, match="mine"):
        list(interrupts.results(threads, work, [0]))


def test_a_program_that_has_just_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as `run_command` starts it: it is ended."""
    begun: list[subprocess.Popen[Any]] = []
    start = subprocess.Popen.__init__

    def cut(process: subprocess.Popen[Any], *args: Any, **options: Any) -> None:
        start(process, *args, **options)
        begun.append(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", cut)
    tools = CommandTools(tmp_path)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tools.run_command([sys.executable, "-c", "import time; time.sleep(600)"])
    assert begun[0].wait(LIMIT) is not None
    assert time.monotonic() - began < 600


def test_work_that_ends_as_a_wait_does() -> None:
    """Its result counts, and not that one wait for it was over a moment before."""

    class Late(Future[int]):
        def result(self, timeout: float | None = None) -> int:
            if not self.done():
                self.set_result(7)
                raise TimeoutError
            return super().result(timeout)

    assert interrupts.result(Late()) == 7
    failed = Future[int]()
    failed.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        interrupts.result(failed)
