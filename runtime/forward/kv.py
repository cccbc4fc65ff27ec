"""The KV cache of one session: pages of 256 positions, made as the context grows.

Pages are shared: by forks, and by sessions that begin with the same tokens (`prefix_cache.py`).
Whoever made a page may go on filling it behind what the others rely on; a cache that would write
anything else on a page that is not its own takes a copy first.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np

from ...jit.kernels.batch import STATE_ENTRIES
from ...jit.kernels.kvcache import PAGE, KVFormat, layer_bytes, layer_offsets
from ...jit.pool import aligned
from ..memory import HUGE_PAGE, Arena
from .state import COUNTING, Checkpoint, SequenceState, StateLayout
from .tensors import HeadShape

BASE = aligned(8, np.int64)
"""What page tables are named by their distance from, so that a tape serves every sequence."""


class Page:
    """Keys and values of 256 positions, in all layers.

    Attributes:
        data: uint8 [page_bytes]; on a cache line.
        nbytes: memory that it takes.
        refcount: how many caches, and places of the prefix cache, have it.
        writer: the table of the cache that may fill it up; 0: none.
        fixed: its first positions, which others rely on.
    """

    __slots__ = ("data", "fixed", "memory", "nbytes", "refcount", "writer")

    def __init__(self, data: np.ndarray, nbytes: int, writer: int, memory: KVMemory) -> None:
        self.data = data
        self.nbytes = nbytes
        self.refcount = 1
        self.writer, self.fixed = writer, 0
        self.memory = memory
        with COUNTING:
            memory.used += nbytes

    def share(self, positions: int) -> None:
        """One more relies on its first positions."""
        with COUNTING:
            self.refcount += 1
            self.fixed = max(self.fixed, positions)

    def release(self) -> None:
        """One less has it."""
        with COUNTING:
            self.refcount -= 1
            if not self.refcount:
                self.memory.used -= self.nbytes

    @classmethod
    def empty(cls, size: int, writer: int, memory: KVMemory) -> Page:
        """A page of `size` zeros."""
        arena = Arena(size)
        return cls(arena.take(size), arena.nbytes, writer, memory)


@dataclass(slots=True)
class KVMemory:
    """Memory of all pages of an engine.

    Attributes:
        used: bytes that pages take, those of several owners once.
        budget: what they should take at most; None: no matter.
    """

    used: int = 0
    budget: int | None = None

    def lacks(self, nbytes: int) -> int:
        """Bytes that have to be let go of before so many more fit; 0: none."""
        return 0 if self.budget is None else max(0, self.used + nbytes - self.budget)


@dataclass(frozen=True)
class KVLayout:
    """What the pages of a model are made of.

    Attributes:
        format: ``bf16``, ``q8`` or ``f32``.
        shapes: of each layer's heads; None: it has no keys and values of its own.
        tables: rotary tables, cos and sin of each: float32 [capacity, rotated dims / 2].
        capacity: positions that a sequence may have, a multiple of 256.
        memory: what all pages of this layout take.
        states: what layers with a recurrence have instead; None: there are none.
    """

    format: KVFormat
    shapes: Sequence[HeadShape | None]
    capacity: int
    tables: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    memory: KVMemory = field(default_factory=KVMemory)
    states: StateLayout | None = None

    @cached_property
    def _starts(self) -> list[int]:
        """Where each layer begins in a page, and where the last one ends."""
        sizes = [
            layer_bytes(self.format, h.kv_heads, h.head_dim, h.value_dim) if h else 0
            for h in self.shapes
        ]
        return [0, *accumulate(sizes)]

    @property
    def page_bytes(self) -> int:
        return self._starts[-1]

    @property
    def position_bytes(self) -> float:
        """Bytes of keys and values of one position, in all layers."""
        return self.page_bytes / PAGE

    def offsets(self, layer: int) -> tuple[int, int]:
        """Byte offsets of a layer's K and V within a page."""
        h = self.shapes[layer]
        assert h is not None, f"layer {layer} has no keys and values of its own"
        k_at, v_at = layer_offsets(self.format, 0, h.kv_heads, h.head_dim)
        return self._starts[layer] + k_at, self._starts[layer] + v_at


class KVCache:
    """Pages of one sequence, and their table.

    Attributes:
        format: ``bf16``, ``q8`` or ``f32``.
        capacity: positions the table has room for, a multiple of 256.
        pages: int64 [capacity / 256], addresses that kernels read.
        table: where `pages` is, as a pass names it: its distance from `BASE` in entries.
        state: what the sequence has in layers with a recurrence; None where there are none.
    """

    def __init__(self, layout: KVLayout, context: int) -> None:
        self.layout = layout
        self.format: KVFormat = layout.format
        self.capacity = -(-context // PAGE) * PAGE
        self.page_bytes = layout.page_bytes
        self.bytes_per_position = layout.position_bytes
        table = aligned(STATE_ENTRIES + max(8, self.capacity // PAGE), np.int64)
        self.pages = table[STATE_ENTRIES:]
        self.state = None
        if layout.states is not None:
            self.state = SequenceState(layout.states, table, layout.memory)
        self.table = (self.pages.ctypes.data - BASE.ctypes.data) // 8
        self._held: list[Page] = []
        weakref.finalize(self, _release, self._held).atexit = False

    def reserve(self, positions: int) -> None:
        """Make sure that positions 0 … positions - 1 have a page."""
        while len(self._held) * PAGE < positions:
            self._hold(len(self._held), Page.empty(self.page_bytes, self.table, self.layout.memory))

    def wants(self, start: int, end: int) -> int:
        """Bytes of the pages that `make_writable` would make."""
        new = max(0, -(-end // PAGE) - len(self._held))
        for index in range(start // PAGE, min(-(-end // PAGE), len(self._held))):
            new += not self._writes(self._held[index], start - index * PAGE)
        state = self.state.wants() if self.state is not None else 0
        return state + new * -(-self.page_bytes // HUGE_PAGE) * HUGE_PAGE  # as `Arena` takes it

    def _writes(self, page: Page, start: int) -> bool:
        """Whether this cache may write on a page from a position of it on."""
        return page.refcount == 1 or (page.writer == self.table and start >= page.fixed)

    def make_writable(self, start: int, end: int, *, undo: bool = False) -> None:
        """Make sure that positions start … end - 1 can be written without another's seeing.

        A page that others rely on is copied if positions before `start` lie on it. `computed` is to
        follow; if nothing came of the pass, `seek`. undo: the pass may be taken back.
        """
        if self.state is not None:
            self.state.begin(start, undo=undo)
        self.reserve(end)
        for index in range(start // PAGE, -(-end // PAGE)):
            page = self._held[index]
            if page.refcount == 1:
                page.writer, page.fixed = self.table, 0
            elif not self._writes(page, start - index * PAGE):
                mine = Page.empty(self.page_bytes, self.table, self.layout.memory)
                if index * PAGE < start:
                    mine.data[:] = page.data
                self._hold(index, mine)
                page.release()

    def fork(self, positions: int) -> KVCache:
        """Another cache whose first `positions` positions are those of this one.

        They are fewer where the state behind them is not known: see `seek`. They are on the same
        pages; nothing is copied before somebody writes over them.
        """
        other = KVCache(self.layout, self.capacity)
        known, others = None, list[Checkpoint]()
        if self.state is not None:
            known, others = self.state.known(positions)
            positions = known.position
        other.adopt(self._held[: -(-positions // PAGE)], positions)
        if other.state is not None and known is not None:
            other.state.adopt(known, others)
        return other

    def computed(self, end: int) -> None:
        """A pass has computed the positions up to `end`."""
        if self.state is not None:
            self.state.done(end)

    def seek(self, n: int) -> int:
        """The most positions, `n` at most, behind which the sequence can go on from here.

        That is `n`, but for states that are not known there: then what follows has to be computed
        again.
        """
        return n if self.state is None else self.state.seek(n)

    def adopt(self, pages: Sequence[Page], positions: int) -> None:
        """Take pages of others in place of its own: their first `positions` positions."""
        assert -(-positions // PAGE) == len(pages), (positions, len(pages))
        same = 0
        while same < min(len(pages), len(self._held)) and self._held[same] is pages[same]:
            same += 1
        self.clear(same)
        for index, page in enumerate(pages[same:], same):
            page.share(min(PAGE, positions - index * PAGE))
            self._hold(index, page)

    def clear(self, keep: int = 0) -> None:
        """Let go of all pages but the first `keep`; of the state too, if none is kept."""
        if self.state is not None and not keep:
            self.state.clear()
        for index in reversed(range(keep, len(self._held))):
            self._held.pop().release()
            self.pages[index] = 0

    def truncate(self, positions: int) -> None:
        """Let go of the pages after the first `positions` that others hold too.

        Pages of its own stay, to be written again.
        """
        for index in reversed(range(-(-positions // PAGE), len(self._held))):
            if self._held[index].refcount == 1:
                return
            self._held.pop().release()
            self.pages[index] = 0

    def page(self, index: int) -> np.ndarray:
        """The bytes of one page: uint8 [page_bytes], not to be written by the caller."""
        return self._held[index].data

    @property
    def held(self) -> Sequence[Page]:
        """Its pages."""
        return self._held

    def append(self, data: np.ndarray) -> None:
        """Take in a further page as it is: uint8 [page_bytes] that may be written."""
        assert len(data) == self.page_bytes, (len(data), self.page_bytes)
        self._hold(len(self._held), Page(data, len(data), self.table, self.layout.memory))

    @property
    def nbytes(self) -> int:
        """Bytes of the pages that it holds, shared ones included."""
        return sum(page.nbytes for page in self._held)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of those that other caches hold too."""
        return sum(page.nbytes for page in self._held if page.refcount > 1)

    def _hold(self, index: int, page: Page) -> None:
        self._held[index : index + 1] = [page]
        self.pages[index] = page.data.ctypes.data


def _release(pages: Sequence[Page]) -> None:
    for page in pages:
        page.release()
