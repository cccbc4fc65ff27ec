"""The KV cache of one session: pages of 256 positions, made as the context grows.

Pages are shared: `KVCache.fork` gives a second cache that holds the same ones. A cache never
writes on a page that another one holds: it takes a copy of its own first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...jit.kernels.kvcache import PAGE, KVFormat, page_bytes
from ...jit.pool import aligned
from ..memory import Arena

BASE = aligned(8, np.int64)
"""What page tables are named by their distance from, so that a tape serves every sequence."""

# Of the counts of all pages. Caches are let go of by the garbage collector, which may run in any
# thread and in the midst of another change of a count: hence reentrant. The count is then too high
# by one, which costs a copy, and never too low.
_COUNTING = threading.RLock()


class Page:
    """Keys and values of 256 positions, in all layers.

    Attributes:
        data: uint8 [page_bytes]; on a cache line.
        nbytes: memory that it takes.
        holders: how many caches have it in their table.
    """

    __slots__ = ("data", "holders", "nbytes")

    def __init__(self, data: np.ndarray, nbytes: int) -> None:
        self.data = data
        self.nbytes = nbytes
        self.holders = 1

    @classmethod
    def empty(cls, size: int) -> Page:
        """A page of `size` zeros."""
        arena = Arena(size)
        return cls(arena.take(size), arena.nbytes)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What the pages of a model are made of.

    Attributes:
        format: ``bf16``, ``q8`` or ``f32``.
        tables: rotary tables, cos and sin of each: float32 [capacity, rotated dims / 2].
        capacity: positions that a sequence may have, a multiple of 256.
    """

    format: KVFormat
    layers: int
    kv_heads: int
    head_dim: int
    capacity: int
    tables: Sequence[tuple[np.ndarray, np.ndarray]] = ()

    @property
    def page_bytes(self) -> int:
        return page_bytes(self.format, self.layers, self.kv_heads, self.head_dim)


class KVCache:
    """Pages of one sequence, and their table.

    Attributes:
        format: ``bf16``, ``q8`` or ``f32``.
        capacity: positions the table has room for, a multiple of 256.
        pages: int64 [capacity / 256], addresses that kernels read.
        table: where `pages` is, as a pass names it: its distance from `BASE` in entries.
    """

    def __init__(self, layout: KVLayout, context: int) -> None:
        self.layout = layout
        self.format: KVFormat = layout.format
        self.capacity = -(-context // PAGE) * PAGE
        self.page_bytes = layout.page_bytes
        self.bytes_per_position = self.page_bytes / PAGE
        self.pages = aligned(max(8, self.capacity // PAGE), np.int64)
        self.table = (self.pages.ctypes.data - BASE.ctypes.data) // 8
        self._held: list[Page] = []
        weakref.finalize(self, _let_go, self._held).atexit = False

    def reserve(self, positions: int) -> None:
        """Make sure that positions 0 … positions - 1 have a page."""
        while len(self._held) * PAGE < positions:
            self._hold(len(self._held), Page.empty(self.page_bytes))

    def own(self, start: int, end: int) -> None:
        """Make sure that positions start … end - 1 can be written without another cache's seeing.

        A page that others hold is copied if positions before `start` lie on it.
        """
        self.reserve(end)
        for index in range(start // PAGE, -(-end // PAGE)):
            shared = self._held[index]
            if shared.holders > 1:
                mine = Page.empty(self.page_bytes)
                if index * PAGE < start:
                    mine.data[:] = shared.data
                self._hold(index, mine)
                _let_go([shared])

    def fork(self, positions: int) -> KVCache:
        """Another cache whose first `positions` positions are those of this one.

        They are on the same pages; nothing is copied before one of the two writes there.
        """
        other = KVCache(self.layout, self.capacity)
        count = -(-positions // PAGE)
        assert count <= len(self._held), (positions, len(self._held))
        for index, page in enumerate(self._held[:count]):
            with _COUNTING:
                page.holders += 1
            other._hold(index, page)
        return other

    def truncate(self, positions: int) -> None:
        """Let go of the pages after the first `positions` that others hold too.

        Pages of its own stay, to be written again.
        """
        for index in reversed(range(-(-positions // PAGE), len(self._held))):
            if self._held[index].holders == 1:
                return
            _let_go([self._held.pop()])
            self.pages[index] = 0

    def page(self, index: int) -> np.ndarray:
        """The bytes of one page: uint8 [page_bytes], not to be written by the caller."""
        return self._held[index].data

    def append(self, data: np.ndarray) -> None:
        """Take in a further page as it is: uint8 [page_bytes] that may be written."""
        assert len(data) == self.page_bytes, (len(data), self.page_bytes)
        self._hold(len(self._held), Page(data, len(data)))

    @property
    def nbytes(self) -> int:
        """Bytes of the pages that it holds, shared ones included."""
        return sum(page.nbytes for page in self._held)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of those that other caches hold too."""
        return sum(page.nbytes for page in self._held if page.holders > 1)

    def _hold(self, index: int, page: Page) -> None:
        self._held[index : index + 1] = [page]
        self.pages[index] = page.data.ctypes.data


def _let_go(pages: Sequence[Page]) -> None:
    for page in pages:
        with _COUNTING:
            page.holders -= 1
