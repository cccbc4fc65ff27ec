"""Attention whose chunks are shared out too, for passes with fewer KV heads than threads.

`attention_parts` computes what a chunk gives to the rows of a tile (m_c, l_c, o_c) and leaves it in
memory; after a barrier `attention_merge` puts the chunks of a row together, in the same order and
by the same operations as `attention` does on the way. So the bits are the same, whoever computed
which chunk.

    parts        float32 [chunk, rows, head_dim], o_c before it is multiplied by its unit
    part_stats   float32 [chunk, rows, 4]: m_c, l_c, unit

where row = token * heads + head, and chunks are counted from the first that any row of the pass
sees. Only as many are touched as the KV length has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, V, f32, kernel
from .attention import CHUNK, Running, Tile, Walk, lowest_chunk, token_tile
from .kvcache import KVFormat

_MOST, _TOTAL, _UNIT = range(3)  # of a row's part_stats


def chunks(tokens: int, start: int, window: int = 0) -> int:
    """Chunks that a pass of `tokens` tokens from position `start` on meets."""
    lowest = max(0, start - (window - 1)) // CHUNK if window else 0
    return -(-(start + tokens) // CHUNK) - lowest


@kernel
def attention_parts(
    k: Kernel,
    q: I8s,
    pages: I64s,
    k_offset: I64,
    v_offset: I64,
    parts: F32s,
    part_stats: F32s,
    part_rows: I64,
    scratch: I8s,
    state: I64s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    kv: KVFormat,
    window: int = 0,
    cap: float = 0.0,
) -> None:
    """Unit = (token tile, kv head, chunk), chunk fastest: `chunks` of them for each tile and head.

    part_rows: rows that `parts` has for each chunk. The rest as for `attention`.
    """
    walk = Walk(k, q, pages, k_offset, v_offset, scratch, state, head_dim=head_dim,
                kv_heads=kv_heads, group=group, kv=kv, window=window, cap=cap)  # fmt: skip
    start = state.load(1)
    base = lowest_chunk(k, start, window)
    count = (start + state.load(0) + (CHUNK - 1)) // CHUNK - base
    with k.units() as unit:
        share, number = unit // count, unit % count
        tile = walk.tile(share // kv_heads * walk.tokens, share % kv_heads)
        chunk = base + number
        # Another tile may see more, or begin sooner.
        with k.if_((chunk >= tile.lowest) & (chunk * CHUNK < tile.seen)):
            tile.meet(chunk * CHUNK, _Apart(tile, number * part_rows, parts, part_stats, head_dim))


@dataclass(frozen=True, slots=True)
class _Apart:
    """A chunk's result, left for `attention_merge`."""

    tile: Tile
    line: V
    parts: Ptr
    part_stats: Ptr
    head_dim: int

    def _at(self, row: V) -> V:
        group, heads = self.tile.walk.group, self.tile.walk.kv_heads * self.tile.walk.group
        token, member = self.tile.first + row // group, row % group
        return self.line + token * heads + self.tile.head * group + member

    def chunk(self, row: V, most: V, total: V, unit: Callable[[], V]) -> None:
        stats = self.part_stats.at(self._at(row) * 4)
        for slot, value in ((_MOST, most), (_TOTAL, total), (_UNIT, unit())):
            stats.store(slot, value)

    def row(self, row: V) -> Callable[[V | int, V], None]:
        out = self.parts.at(self._at(row) * self.head_dim)
        return out.store


@kernel
def attention_merge(
    k: Kernel,
    parts: F32s,
    part_stats: F32s,
    part_rows: I64,
    out: F32s,
    out_stride: I64,
    scratch: I8s,
    state: I64s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    window: int = 0,
) -> None:
    """Unit = (token, head), head fastest; `out` float32 [tokens, out_stride]."""
    heads, tokens = kv_heads * group, token_tile(group)
    running = Running(k, scratch.cast(f32), scratch.cast(f32).at(head_dim), head_dim)
    start = state.load(1)
    base, row = lowest_chunk(k, start, window), k.i64(0)
    with k.units() as unit:
        # The chunks of the row's tile, also those that only its other tokens see.
        first = unit // heads // tokens * tokens
        seen = start + (first + tokens).min(state.load(0))
        lowest = lowest_chunk(k, start + first, window)
        running.clear(row)
        with k.range(lowest - base, (seen + (CHUNK - 1)) // CHUNK - base, name="chunk") as number:
            at = number * part_rows + unit
            most, total, size = (part_stats.load(at * 4 + n) for n in (_MOST, _TOTAL, _UNIT))
            running.chunk(row, most, total, lambda size=size: size)
            add = running.row(row)
            with k.range(0, head_dim, step=k.lanes, name="dim") as d:
                add(d, parts.load(at * head_dim + d, k.lanes))
        running.write(row, out.at(unit // heads * out_stride + unit % heads * head_dim))
