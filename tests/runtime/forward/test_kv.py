"""KV caches, and the memory that they and the weights live in."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, page_bytes
from triplepoint.runtime.forward.kv import KVCache, KVLayout
from triplepoint.runtime.forward.tensors import HeadShape
from triplepoint.runtime.memory import HUGE_PAGE, Arena

LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 32
HEADS = HeadShape(4, KV_HEADS, HEAD_DIM)


def _cache(context: int, kv: KVFormat = "bf16") -> KVCache:
    return KVCache(KVLayout(kv, [HEADS] * LAYERS, context), context)


def test_pages_are_made_when_needed() -> None:
    """An empty cache has no page; each 256 positions bring one, and asking again brings none."""
    cache = _cache(1000)
    assert cache.nbytes == 0
    pages = []
    for positions in (1, 255, 256, 257, 256, 1000):
        cache.reserve(positions)
        pages.append(int(np.count_nonzero(cache.pages)))

    assert pages == [1, 1, 1, 2, 2, 4]
    assert cache.nbytes >= 4 * cache.page_bytes


def test_capacity_is_whole_pages() -> None:
    """A context is rounded up to pages; the table has room for all of them."""
    for context, capacity in ((1, 256), (256, 256), (257, 512), (5000, 5120)):
        cache = _cache(context)
        cache.reserve(context)
        assert cache.capacity == capacity
        assert len(cache.pages) >= capacity // PAGE


def test_pages_stay_where_they_are() -> None:
    """More pages do not move those that kernels already point to; none overlaps another."""
    cache = _cache(2000)
    cache.reserve(300)
    first = cache.pages[:2].tolist()
    cache.reserve(2000)
    starts = sorted(cache.pages[: cache.capacity // PAGE].tolist())

    assert cache.pages[:2].tolist() == first
    assert np.diff(starts).min() >= cache.page_bytes
    assert all(start % 64 == 0 for start in starts)


@pytest.mark.parametrize(("kv", "word"), [("bf16", 2), ("f32", 4)])
def test_bytes_of_a_position(kv: KVFormat, word: int) -> None:
    """K and V of every layer and KV head."""
    cache = _cache(10, kv)
    assert cache.bytes_per_position == LAYERS * 2 * KV_HEADS * HEAD_DIM * word
    assert cache.page_bytes == page_bytes(kv, LAYERS, KV_HEADS, HEAD_DIM)


@pytest.mark.parametrize("kv", get_args(KVFormat))
def test_layers_of_other_shapes(kv: KVFormat) -> None:
    """Layers lie one behind the other, as large as their own heads; one without takes nothing."""
    shapes = [HeadShape(8, 2, 32), None, HeadShape(8, 1, 128), HeadShape(4, 4, 64)]
    layout, at = KVLayout(kv, shapes, 512), 0
    for layer, h in enumerate(shapes):
        if h is None:
            continue
        k_at, v_at = layout.offsets(layer)
        one = KVLayout(kv, [h], 512)
        assert (k_at, v_at) == (at, at + one.offsets(0)[1])
        at += one.page_bytes

    assert layout.page_bytes == at


def test_arena_hands_out_zeroed_lines() -> None:
    """Parts are zeroed, start on cache lines and do not overlap."""
    arena = Arena(1000)
    parts = [arena.take(n) for n in (1, 64, 65, 100)]
    for n, part in enumerate(parts):
        assert part.ctypes.data % 64 == 0
        assert not part.any()
        part[:] = n + 1

    assert [len(p) for p in parts] == [1, 64, 65, 100]
    assert all((part == n + 1).all() for n, part in enumerate(parts))
    assert arena.nbytes == HUGE_PAGE
    assert arena.used <= 64 + 64 + 128 + 128


def test_arena_does_not_overflow() -> None:
    """More than there is cannot be taken: that would be our bug."""
    arena = Arena(HUGE_PAGE)
    arena.take(HUGE_PAGE)
    with pytest.raises(AssertionError):
        arena.take(1)


def test_memory_outlives_its_arena() -> None:
    """A part keeps its mapping alive."""
    part = Arena(10).take(10)
    part[:] = 7
    assert part.tolist() == [7] * 10


def test_a_page_whose_writer_is_gone() -> None:
    """The first that goes on behind what others rely on fills it up; who comes later copies."""
    layout = KVLayout("bf16", [HEADS] * LAYERS, 1000)
    first, known, second, third = (KVCache(layout, 1000) for _ in range(4))
    first.make_writable(0, 100)
    first.held[0].data[:] = 7
    known.adopt(first.held, 100)  # as the prefix cache does
    page = first.held[0]
    second.adopt(first.held, 100)
    assert second.wants(100, 110) > 0, "its writer is there"

    first.clear()

    assert second.wants(100, 110) == 0
    second.make_writable(100, 110)
    assert second.held[0] is page
    third.adopt(known.held, 90)
    assert third.wants(90, 95) > 0, "others rely on what it would write over"
    third.make_writable(90, 95)
    assert third.held[0] is not page
    assert (third.held[0].data == 7).all()
    other = KVCache(layout, 1000)
    other.adopt(known.held, 100)
    other.make_writable(100, 101)
    assert other.held[0] is not page, "it has a writer again"
