"""Work in several threads at once."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def together(work: Callable[[int], T], count: int) -> list[T]:
    """What so many threads return that begin at once."""
    ready = threading.Barrier(count)

    def begin(n: int) -> T:
        ready.wait()
        return work(n)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(begin, range(count)))


@contextlib.contextmanager
def frequent_switches(seconds: float = 5e-5) -> Iterator[None]:
    """Threads alternate often: what one writes takes less than Python's switch interval."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
