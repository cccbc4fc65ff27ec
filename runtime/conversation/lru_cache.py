"""A bounded, thread-safe cache of computed values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LRUCache(Generic[T]):
    """A bounded LRU cache; thread-safe.

    Args:
        size: maximum number of entries; the least recently used is evicted first.
    """

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._made: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, or compute and cache it.

        Two threads that want the same at once may both make it; that is rare.
        """
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > self._size:
                self._made.popitem(last=False)
        return made
