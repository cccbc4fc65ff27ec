"""Streams in an event loop: what leaving one ends, and what it leaves alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from triplepoint.errors import AgentError
from triplepoint.runtime.agent.aio import in_thread, last_of


class Source:
    """Gives numbers, or refuses; `close` takes a moment, so its thread is there a little longer."""

    def __init__(self, *numbers: int, refuses: bool = False) -> None:
        self.numbers, self.refuses, self.stops = list(numbers), refuses, 0
        self.closed = False

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.refuses:
            raise AgentError("busy")
        if not self.numbers:
            raise StopIteration
        return self.numbers.pop(0)

    def close(self) -> None:
        time.sleep(0.1)
        self.closed = True

    def stop(self) -> None:
        self.stops += 1


def test_a_stream_that_is_refused_stops_nobody() -> None:
    """A second run of a busy agent is an error, and the first goes on: `stop` would end that."""
    source = Source(refuses=True)

    with pytest.raises(AgentError, match="busy"):
        asyncio.run(last_of(in_thread(lambda: source, source.stop)))

    assert (source.stops, source.closed) == (0, True)


def test_a_stream_that_ended_stops_nobody() -> None:
    """The same after the last event."""
    source = Source(1, 2, 3)

    assert asyncio.run(last_of(in_thread(lambda: source, source.stop))) == 3
    assert (source.stops, source.closed) == (0, True)


def test_leaving_early_stops_the_work() -> None:
    """Who leaves in the middle ends the work, and waits until it has ended."""
    source = Source(*range(9999))

    async def main() -> int:
        async with aclosing(in_thread(lambda: source, source.stop)) as numbers:
            async for number in numbers:
                return number
        raise AssertionError

    assert asyncio.run(main()) == 0
    assert (source.stops, source.closed) == (1, True)
