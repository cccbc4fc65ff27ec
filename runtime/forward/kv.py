"""The KV cache of one session: pages of 256 positions, allocated as the context grows.

Layers with a sliding window lie behind the others in a page. Where no sequence can see their part
of a page any more its memory is given back: such a page still serves all that go on behind it, but
a sequence that goes back there has to be computed anew.

Pages are shared: by forks, and by sessions that begin with the same tokens (`prefix_cache.py`).
Whoever made a page may go on filling it behind what the others rely on, and when that cache is
gone the first one that wants to: an agent that comes back from its tools. A cache that would write
anything else on a page that is not its own takes a copy first.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, count

import numpy as np

from ...jit.kernels.batch import STATE_ENTRIES
from ...jit.kernels.kvcache import PAGE, KVFormat, layer_bytes, layer_offsets
from ...jit.kernels.rope import center_angles
from ...jit.kernels.stored_rows import layer_bytes as layer_bytes_of_rows
from ...jit.pool import aligned
from ..memory import HUGE_PAGE, give_up
from .kv_memory import KVMemory
from .state import COUNTING, Checkpoint, SequenceState, StateLayout
from .tensors import HeadShape

BASE = aligned(8, np.int64)
"""Base of page tables: passes name one by its distance from here, so a tape serves all of them."""

_VERSIONS = count()
SLACK = PAGE  # positions behind a window that stay: a text is cut back by a few tokens now and then


@dataclass(slots=True, eq=False)
class Page:
    """A page of the KV cache: keys and values of 256 positions, in all layers."""

    data: np.ndarray
    """uint8 [page_bytes], aligned to a cache line; [far_bytes] if restored without windows."""
    nbytes: int
    """Bytes of memory that the page takes."""
    writer: int
    """Page table of the cache that may fill up the page; 0: none."""
    _layout: KVLayout
    refcount: int = 1
    """Number of caches and prefix cache entries that hold the page."""
    viewers: int = 1
    """Number of holders that still need its sliding-window layers."""
    whole: bool = field(init=False)
    """Whether the page still has its sliding-window layers."""
    fixed: int = 0
    """Number of its first positions that others rely on: not to be overwritten."""

    def __post_init__(self) -> None:
        self.whole = len(self.data) == self._layout.page_bytes
        with COUNTING:
            self._layout.memory.used += self.nbytes

    def share(self, positions: int, *, views: bool = True) -> None:
        """Add a holder of the first `positions`; views: of their sliding-window layers, too."""
        with COUNTING:
            self.refcount += 1
            self.viewers += views
            self.fix(positions)

    def fix(self, positions: int) -> None:
        """Protect the first `positions` positions from being overwritten."""
        with COUNTING:
            self.fixed = max(self.fixed, positions)

    def release(self, writer: int = 0, *, views: bool = True) -> None:
        """Drop a holder and its right to write; views: it held the sliding-window layers, too."""
        with COUNTING:
            self.refcount -= 1
            if writer and self.writer == writer:
                self.writer = 0
            if views:
                self.release_window()
            if not self.refcount:
                self._layout.memory.used -= self.nbytes

    def claim(self, writer: int, start: int) -> bool:
        """Claim the page for cache `writer` from position `start`; return whether it may write.

        A sole holder may write anywhere; one of several only behind `fixed`, if no other fills it.
        """
        with COUNTING:
            if self.refcount == 1:
                self.writer, self.fixed = writer, 0
            elif not self.writer and start >= self.fixed:
                self.writer = writer
            return self.writer == writer and start >= self.fixed

    def acquire_window(self) -> None:
        """Add a holder of the sliding-window layers."""
        with COUNTING:
            self.viewers += 1

    def release_window(self) -> int:
        """Drop a holder of the sliding-window layers; return the bytes freed."""
        with COUNTING:
            self.viewers -= 1
            if self.viewers or not self.refcount or not self.whole or not self._layout.window:
                return 0
            self.whole = False
            behind = self.nbytes - len(self.data)
            freed = give_up(self.data[self._layout.far_bytes :], behind)
            self.nbytes -= freed
            self._layout.memory.used -= freed
            return freed

    @classmethod
    def empty(cls, writer: int, layout: KVLayout) -> Page:
        """Return a page of zeros."""
        arena = layout.memory.take(layout.page_bytes)
        return cls(arena.take(layout.page_bytes), arena.nbytes, writer, layout)


@dataclass(frozen=True)
class KVLayout:
    """The layout of a model's KV cache pages."""

    format: KVFormat
    """``bf16``, ``k16v8``, ``q8`` or ``f32``."""
    shapes: Sequence[HeadShape | None]
    """Head shape of each layer; None: the layer has no keys and values of its own."""
    capacity: int
    """Maximum positions of a sequence, a multiple of 256."""
    tables: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    """Rotary tables, cos and sin of each: float32 [capacity, rotated dims / 2]."""
    memory: KVMemory = field(default_factory=KVMemory)
    """Memory of all pages of this layout."""
    windows: tuple[int, ...] = ()
    """Sliding window of each layer, in positions; 0: none. Empty: no layer has one."""
    states: StateLayout | None = None
    """Layout of the states of recurrent layers; None: there are no such layers."""
    row_width: int = 0
    """Width of the row that passes store with each position (`stored_rows.py`); 0: none."""

    @cached_property
    def _starts(self) -> list[int]:
        """Where each layer begins in a page, where those without a window end, and where all do."""
        sizes = [
            layer_bytes(self.format, h.kv_heads, h.head_dim, h.value_dim) if h else 0
            for h in self.shapes
        ]
        windows = [*(self.windows or (0,) * len(sizes)), 0]
        sizes.append(layer_bytes_of_rows(self.row_width))
        order = sorted(range(len(sizes)), key=lambda layer: windows[layer] > 0)
        ends = list(accumulate(sizes[layer] for layer in order))
        starts = [0] * len(sizes)
        for layer, end in zip(order, ends, strict=True):
            starts[layer] = end - sizes[layer]
        far = sum(size for size, window in zip(sizes, windows, strict=True) if not window)
        return [*starts, far, ends[-1]]

    @cached_property
    def centers(self) -> list[np.ndarray]:
        """Cos and sin at the center of each page, of each of `tables`: see `rope.py`."""
        return [center_angles(cos, sin) for cos, sin in self.tables]

    @property
    def page_bytes(self) -> int:
        return self._starts[-1]

    @property
    def position_bytes(self) -> float:
        """Bytes of keys and values of one position, in all layers."""
        return self.page_bytes / PAGE

    def offsets(self, layer: int) -> tuple[int, int]:
        """Return the byte offsets of a layer's K and V in a page; equal if values are in keys."""
        h = self.shapes[layer]
        assert h is not None, f"layer {layer} has no keys and values of its own"
        k_at, v_at = layer_offsets(self.format, 0, h.kv_heads, h.head_dim)
        return self._starts[layer] + k_at, self._starts[layer] + (k_at if h.value_dim else v_at)

    @property
    def stored_rows_offset(self) -> int:
        """Byte offset of the stored rows within a page."""
        return self._starts[len(self.shapes)]

    @cached_property
    def window(self) -> int:
        """The longest sliding window of a layer; 0: there is none."""
        return max(self.windows, default=0)

    @property
    def far_bytes(self) -> int:
        """Bytes of a page without the sliding-window layers, which lie last."""
        return self._starts[-2]

    @property
    def near_share(self) -> float:
        """Fraction of a page's bytes that belongs to sliding-window layers."""
        return 1.0 - self.far_bytes / self.page_bytes if self.page_bytes else 0.0

    def seen(self, positions: int, slack: int = 0) -> int:
        """Return the first page that sliding-window layers still read at position `positions`."""
        if not self.window:
            return 0
        return max(0, positions - self.window - slack) // PAGE

    def can_resume_at(self, pages: Sequence[Page], positions: int) -> bool:
        """Return whether a sequence can resume after the first `positions` positions of `pages`."""
        last = -(-positions // PAGE)
        return all(page.whole for page in pages[self.seen(positions) : last])


class KVCache:
    """The KV cache of one sequence: its pages, and their page table."""

    def __init__(self, layout: KVLayout, context: int) -> None:
        self.version = next(_VERSIONS)
        """Unique number of the page table's contents, new whenever a page of it changes."""
        self.layout = layout
        self.format: KVFormat = layout.format
        """``bf16``, ``k16v8``, ``q8`` or ``f32``."""
        self.capacity = -(-context // PAGE) * PAGE
        """Positions the table has room for, a multiple of 256."""
        self.page_bytes = layout.page_bytes
        self.bytes_per_position = layout.position_bytes
        table = aligned(STATE_ENTRIES + max(8, self.capacity // PAGE), np.int64)
        self.pages = table[STATE_ENTRIES:]
        """The page table: int64 [capacity / 256] addresses, which kernels read."""
        self.state = None
        """The sequence's state in recurrent layers; None where there are none."""
        if layout.states is not None:
            self.state = SequenceState(layout.states, table, layout.memory)
        self.table = (self.pages.ctypes.data - BASE.ctypes.data) // 8
        """The page table's name in a pass: the distance of `pages` from `BASE` in entries."""
        self._held: list[Page] = []
        self._first = [0]  # page whose layers with windows it wants
        weakref.finalize(self, _release, self._held, self._first, self.table).atexit = False

    def reserve(self, positions: int) -> None:
        """Allocate pages for positions 0 … positions - 1."""
        while len(self._held) * PAGE < positions:
            self._hold(len(self._held), Page.empty(self.table, self.layout))

    def ready(self, start: int, end: int, *, undo: bool = False) -> bool:
        """Return whether positions start … end - 1, on one page, are writable now.

        undo: and the pass may be rolled back, which takes a second state.
        """
        if undo and self.state is not None and self.state.wants(undo=True):
            return False
        index = start // PAGE
        if end > (index + 1) * PAGE or index >= len(self._held):
            return False
        page = self._held[index]
        return page.writer == self.table and start - index * PAGE >= page.fixed

    def page_at(self, position: int) -> Page | None:
        """Return the page that `position` is within; None at a page border."""
        index = position // PAGE
        return self._held[index] if position % PAGE and index < len(self._held) else None

    def needs(self, end: int, *, undo: bool = False) -> int:
        """Return the bytes of all pages of `end` positions and one or two states: see `ready`."""
        state = 0 if self.state is None else self.state.layout.nbytes * (1 + undo)
        return state + -(-end // PAGE) * -(-self.page_bytes // HUGE_PAGE) * HUGE_PAGE

    def can_undo(self, end: int) -> bool:
        """Return whether the whole budget would suffice for a pass up to `end` with rollback."""
        budget = self.layout.memory.budget
        return self.state is None or budget is None or self.needs(end, undo=True) <= budget

    def wants(
        self, start: int, end: int, claimed: Collection[Page] = (), *, undo: bool = False
    ) -> int:
        """Return the bytes of pages and states that `make_writable` would allocate.

        claimed: pages that other caches fill up before this one, in the same pass.
        """
        state = self.state.wants(undo=undo) if self.state is not None else 0
        if self.ready(start, end):
            return state
        new = max(0, -(-end // PAGE) - len(self._held))
        for index in range(start // PAGE, min(-(-end // PAGE), len(self._held))):
            page = self._held[index]
            new += page in claimed or not self._writes(page, start - index * PAGE)
        return state + new * -(-self.page_bytes // HUGE_PAGE) * HUGE_PAGE  # as `Arena` takes it

    def claims(self, start: int, end: int) -> list[Page]:
        """Return the shared pages that it writes to uncopied at positions start … end - 1."""
        first = start // PAGE
        pages = enumerate(self._held[first : -(-end // PAGE)], first)
        shared = [(number, page) for number, page in pages if page.refcount > 1]
        return [page for number, page in shared if self._writes(page, start - number * PAGE)]

    def _writes(self, page: Page, start: int) -> bool:
        """Return whether this cache may write on a page from a position of it on."""
        return page.refcount == 1 or (page.writer in (0, self.table) and start >= page.fixed)

    def make_writable(self, start: int, end: int, *, undo: bool = False) -> None:
        """Make positions start … end - 1 writable without effect on other caches (copy on write).

        A page that others rely on is copied if positions before `start` lie on it. `computed` is to
        follow; if nothing came of the pass, `seek`. undo: the pass may be rolled back.
        """
        if self.state is not None:
            self.state.begin(start, undo=undo)
        if self.ready(start, end):
            return
        self.reserve(end)
        for index in range(start // PAGE, -(-end // PAGE)):
            page = self._held[index]
            if not page.claim(self.table, max(0, start - index * PAGE)):
                mine = Page.empty(self.table, self.layout)
                if index * PAGE < start:
                    assert page.whole, "what is seen is there"
                    mine.data[:] = page.data
                self._hold(index, mine)
                page.release(self.table, views=index >= self._first[0])

    def fork(self, positions: int) -> KVCache:
        """Return another cache whose first `positions` positions are shared with this one.

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

    def can_resume_at(self, positions: int) -> bool:
        """Return whether a sequence can resume after its first `positions` positions."""
        return not self.layout.window or self.layout.can_resume_at(self._held, positions)

    def computed(self, end: int) -> None:
        """Record that a pass has computed the positions up to `end`."""
        if self.state is not None:
            self.state.done(end)

    def seek(self, n: int) -> int:
        """Roll back to at most `n` positions; return after how many the sequence can resume.

        That is `n`, but for states that are not known there: then what follows has to be computed
        again.
        """
        return n if self.state is None else self.state.seek(n)

    def adopt(self, pages: Sequence[Page], positions: int) -> None:
        """Replace the cache's pages by the first `positions` positions of shared `pages`."""
        assert -(-positions // PAGE) == len(pages), (positions, len(pages))
        assert self.layout.can_resume_at(pages, positions), "what is seen is there"
        same = 0
        while same < min(len(pages), len(self._held)) and self._held[same] is pages[same]:
            same += 1
        self.clear(same)
        first = self.layout.seen(positions, SLACK)
        self._look_from(min(first, same))
        self._first[0] = first
        for index, page in enumerate(pages[same:], same):
            page.share(min(PAGE, positions - index * PAGE), views=index >= first)
            self._hold(index, page)

    def clear(self, keep: int = 0) -> None:
        """Release all pages but the first `keep`; the state too if `keep` is 0."""
        if self.state is not None and not keep:
            self.state.clear()
        while len(self._held) > keep:
            self._pop()
        self._first[0] = min(self._first[0], keep)

    def truncate(self, positions: int) -> None:
        """Release shared pages after the first `positions`.

        Pages of its own stay, to be written again.
        """
        for index in reversed(range(-(-positions // PAGE), len(self._held))):
            if self._held[index].refcount == 1:
                break
            self._pop()
        self.slide_back(positions)

    def slide_back(self, positions: int) -> None:
        """Go back to `positions` positions: acquire the sliding-window layers visible from there.

        Pages that follow stay for new writes, but for those that are not whole.
        """
        behind = range(-(-positions // PAGE), len(self._held))
        self.clear(next((n for n in behind if not self._held[n].whole), len(self._held)))
        self._look_from(min(self._first[0], self.layout.seen(positions, SLACK)))

    def slide(self, positions: int) -> None:
        """Release the sliding-window layers that are out of reach after `positions` positions."""
        first = self.layout.seen(positions, SLACK)
        if first > self._first[0]:
            self._look_from(first)

    def _look_from(self, first: int) -> None:
        """Acquire the layers with windows of its pages from there on, and release all others."""
        # In these orders: after Ctrl-C in between a count may be too high, but never too low.
        for index in reversed(range(first, self._first[0])):
            if index < len(self._held):
                self._held[index].acquire_window()
            self._first[0] = index
        for index in range(self._first[0], first):
            self._first[0] = index + 1
            if index < len(self._held):
                self._held[index].release_window()

    def _pop(self) -> None:
        self.version = next(_VERSIONS)
        index = len(self._held) - 1
        self._held.pop().release(self.table, views=index >= self._first[0])
        self.pages[index] = 0

    def page(self, index: int) -> np.ndarray:
        """Return the bytes of one page: uint8 [page_bytes], read-only to the caller.

        Without the sliding-window layers, where they are released: uint8 [far_bytes].
        """
        page = self._held[index]
        return page.data if page.whole else page.data[: self.layout.far_bytes]

    @property
    def held(self) -> Sequence[Page]:
        """The pages that the cache holds."""
        return self._held

    def append(self, data: np.ndarray) -> None:
        """Append a page with the bytes that `page` returned: writable uint8."""
        assert len(data) in (self.page_bytes, self.layout.far_bytes), len(data)
        self._hold(len(self._held), Page(data, len(data), self.table, self.layout))

    @property
    def nbytes(self) -> int:
        """Bytes of the pages that the cache holds, shared ones included."""
        return sum(page.nbytes for page in self._held)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of the pages that other caches hold too."""
        return sum(page.nbytes for page in self._held if page.refcount > 1)

    def _hold(self, index: int, page: Page) -> None:
        # In this order: Ctrl-C in between must not leave a page that kernels cannot find.
        self.version = next(_VERSIONS)
        self.pages[index] = page.data.ctypes.data
        self._held[index : index + 1] = [page]


def resident_positions(positions: int, window: int, share: float) -> float:
    """Return how many of `positions` positions are in memory, averaged over a page's bytes.

    window: the longest of a layer; share: the fraction of bytes in sliding-window layers.
    """
    return positions - (positions - min(positions, window + SLACK + PAGE)) * share


def _release(pages: Sequence[Page], first: Sequence[int], table: int) -> None:
    for index, page in enumerate(pages):
        page.release(table, views=index >= first[0])
