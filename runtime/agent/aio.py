"""Runs an event stream in a thread and yields its events in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")

_AHEAD = 256  # events that may be buffered for the reader; then the run waits


async def in_thread(make: Callable[[], Iterator[T]], stop: Callable[[], None]) -> AsyncGenerator[T]:
    """Yield the items of an iterator that is built and run in its own thread.

    Args:
        make: builds the iterator.
        stop: ends the iterator's work from another thread; called when the reader leaves early.
    """
    loop = asyncio.get_running_loop()
    ended = object()
    events: asyncio.Queue[object] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)
    left = threading.Event()
    at_work = threading.Event()  # else `stop` would end what others do, as where it is refused

    def put(item: object) -> None:
        if not left.is_set():
            loop.call_soon_threadsafe(events.put_nowait, item)

    def work() -> None:
        iterator = None
        last: object = ended
        try:
            iterator = make()
            for item in iterator:
                at_work.set()
                put(item)
                room.acquire()
                if left.is_set():
                    break
        except BaseException as error:
            last = _Raised(error)
        at_work.clear()
        put(last)
        close = getattr(iterator, "close", None)
        if close is not None:
            close()

    thread = threading.Thread(target=work, name="agent", daemon=True)
    thread.start()
    try:
        while (item := await events.get()) is not ended:
            room.release()
            if isinstance(item, _Raised):
                raise item.error
            yield item  # pyright: ignore[reportReturnType]
    finally:
        busy = at_work.is_set()
        left.set()
        room.release()

        def end() -> None:  # to end a tool's program may take a second: not in the loop's thread
            if busy:
                stop()
            thread.join()

        await asyncio.shield(asyncio.to_thread(end))


async def last_of(events: AsyncGenerator[T]) -> T | None:
    """Consume an event stream and return its last event; close the stream in any case."""
    last = None
    async with aclosing(events):
        async for last in events:  # noqa: B007
            pass
    return last


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error
