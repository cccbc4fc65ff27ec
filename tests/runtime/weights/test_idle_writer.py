"""What is written while nothing else runs: it waits, and the end of the process need not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from triplepoint.errors import ModelError
from triplepoint.runtime.weights import idle_writer
from triplepoint.runtime.weights.idle_writer import IdleWriter

Progress = Callable[[float], None]


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The share of a core that other threads take: the only item."""
    load = [0.0]
    monkeypatch.setattr(IdleWriter, "_others", lambda _: load[0])
    return load


@pytest.fixture(autouse=True)
def not_at_the_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """No test's writer is left to the end of this process."""
    left: list[object] = []
    monkeypatch.setattr(idle_writer.atexit, "register", left.append)
    monkeypatch.setattr(idle_writer.atexit, "unregister", left.remove)
    yield left
    assert left == []


def test_it_waits_for_quiet(others: list[float]) -> None:
    """Nothing is written while others compute, before the first byte or behind any."""
    begun, second, shares = threading.Event(), threading.Event(), list[float]()

    def write(progress: Progress) -> None:
        shares.append(0.0)
        others[0] = 1.0
        begun.set()
        progress(0.5)
        shares.append(0.5)
        second.set()

    others[0] = 1.0
    writer = IdleWriter(write)
    assert not begun.wait(0.2)
    others[0] = 0.0
    assert begun.wait(10)
    assert not second.wait(0.2)
    assert shares == [0.0]
    others[0] = 0.0
    assert second.wait(10)
    writer._thread.join(10)
    assert shares == [0.0, 0.5]


def test_the_end_has_it_written(others: list[float]) -> None:
    """At the end of the process it waits for nobody; what is quick is written whole."""
    others[0] = 1.0
    shares: list[float] = []

    def write(progress: Progress) -> None:
        for share in (0.0, 0.25, 0.5, 1.0):
            progress(share)
            shares.append(share)

    writer = IdleWriter(write)
    writer.finish(patience_s=60)
    writer._thread.join(10)
    assert shares == [0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize("ignored", [False, True])
def test_the_end_does_not_wait_long(
    others: list[float], monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    """What would take longer is given up, and all of it after a Ctrl-C."""
    others[0] = 1.0
    cleaned = threading.Event()

    def write(progress: Progress) -> None:
        try:
            writer._spent = 100.0  # for a hundredth
            progress(0.01)
            pytest.fail("written")
        finally:
            cleaned.set()

    if ignored:
        monkeypatch.setattr(idle_writer.signal, "getsignal", lambda _: signal.SIG_IGN)
    writer = IdleWriter(write)
    writer.finish(patience_s=1e9 if ignored else 60)
    assert cleaned.wait(10)
    writer._thread.join(10)


def test_an_error_is_no_concern(others: list[float]) -> None:
    """A full disk ends the writing, not the process, and says nothing."""

    def write(progress: Progress) -> None:
        raise ModelError("no space")

    writer = IdleWriter(write)
    writer._thread.join(30)
    assert not writer._thread.is_alive()
    assert writer._write is None
