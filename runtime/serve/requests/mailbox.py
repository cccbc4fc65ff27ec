"""Passes events from the threads of many requests to one event loop, with few wake-ups.

A pass of the engine gives tokens to many requests at once, and to wake the loop costs more than to
hand over a token. So whatever arrives until the loop looks is one wake-up, and each request takes
all that has come for it at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox:
    """A queue from threads to the channels of one event loop, in which it must be created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._filled: list[Channel] = []
        self._woken = False

    def post(self, channel: Channel[T], item: T) -> None:
        """Queue an item for a channel, from any thread; it is dropped if the loop has ended."""
        with self._lock:
            if not channel.posted:
                self._filled.append(channel)
            channel.posted.append(item)
            if self._woken:
                return
            self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # it is closed
            self._woken = False

    def _deliver(self) -> None:
        with self._lock:
            filled, self._filled, self._woken = self._filled, [], False
            arrived = [(channel, channel.posted) for channel in filled]
            for channel in filled:
                channel.posted = []
        for channel, items in arrived:
            channel.put(items)


class Channel(Generic[T]):
    """A queue of the events of one request, read by one task of the loop."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.posted: list[T] = []  # not yet delivered
        self._items: list[T] = []
        self._waiter: asyncio.Future[None] | None = None

    def post(self, item: T) -> None:
        """Add an item, from any thread."""
        self._mailbox.post(self, item)

    def put(self, items: Iterable[T]) -> None:
        """Add items, from within the loop."""
        self._items += items
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[T]:
        """Wait for items; return all that arrived since the last call."""
        while not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        items, self._items = self._items, []
        return items
