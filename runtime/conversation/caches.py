"""Thread-safe caches of computed values."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
T = TypeVar("T")


def per_object(make: Callable[[K], T]) -> Callable[[K], T]:
    """Cache the result of `make` by its argument, weakly referenced.

    Each value is computed once, under a lock, and lives as long as its argument.
    """
    made: WeakKeyDictionary[K, T] = WeakKeyDictionary()
    lock = threading.Lock()

    @functools.wraps(make)
    def cached(one: K) -> T:
        with lock:
            if one not in made:
                made[one] = make(one)
            return made[one]

    return cached


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

        Two threads that miss the same key at once may both compute it; that is rare.
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
