"""Split-KV attention: chunks are parallel too, for passes with fewer KV heads than threads.

`attention_partial` computes what a chunk gives to the rows of a tile (m_c, l_c, o_c) and leaves it
in memory; after a barrier `attention_reduce` puts the chunks of a row together, in the same order
and by the same operations as `attention` does on the way. So the bits are the same, whoever
computed which chunk.

    parts        float32 [part row, head_dim], o_c before it is multiplied by its unit
    part_stats   float32 [part row, 4]: m_c, l_c, unit

A walk's part rows begin at its slot PART: [chunk][token of the walk][head], the chunks counted from
the first that the walk sees. Only as many are touched as the KV length has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, Value, f32, kernel
from .attention import CHUNK, KVReader, OnlineSoftmax, Walk, lowest_chunk
from .batch import (
    COUNT,
    FIRST,
    FROM,
    PART,
    ROW_INDEX,
    ROW_SLOTS,
    ROW_TILE,
    START,
    TILE_SLOTS,
    UNTIL,
    WALKS,
)
from .kvcache import KVFormat

_MAX, _TOTAL, _UNIT = range(3)  # of a row's part_stats


def entries_of(tiles: np.ndarray, heads: int, window: int = 0) -> tuple[int, np.ndarray]:
    """Assign part rows to the walks of a pass; return their number, and the entries of all.

    tiles int64 [tiles, TILE_SLOTS], walks of joined ones among them: slot PART is written, alike
    for every window. Entries int64 [count, 2], of a walk and a chunk each, as `attention_partial`
    wants them.
    """
    first, tokens = tiles[:, FROM], tiles[:, COUNT]
    ends = -(-(tiles[:, START] + tokens) // CHUNK)
    joined = tiles[:, WALKS] > 0
    if tiles[:, UNTIL].any():
        ends = np.where(tiles[:, UNTIL] > 0, tiles[:, UNTIL], ends)
    if joined.any():  # its walks do all of it
        ends = np.where(joined, first, ends)
    rows = np.cumsum((ends - first) * tokens) * heads
    tiles[0, PART], tiles[1:, PART] = 0, rows[:-1]
    lowest = first
    if window:
        lowest = np.maximum(first, (tiles[:, START] - (window - 1)) // CHUNK)
    counts = np.maximum(0, ends - lowest)
    entries = np.empty((int(counts.sum()), 2), np.int64)
    entries[:, 0] = np.repeat(np.arange(len(tiles)), counts)
    before = np.repeat(np.cumsum(counts) - counts - lowest, counts)
    entries[:, 1] = np.arange(len(entries)) - before
    return int(rows[-1]), entries


@kernel
def attention_partial(
    k: Kernel,
    q: I8s,
    pages: I64s,
    k_offset: I64,
    v_offset: I64,
    parts: F32s,
    part_stats: F32s,
    scratch: I8s,
    tiles: I64s,
    rows: I64s,
    entries: I64s,
    count: I64s,
    centers: F32s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    kv: KVFormat,
    window: int = 0,
    cap: float = 0.0,
    value_dim: int = 0,
    centered: int = 0,
) -> None:
    """Attend to single chunks; unit = (kv head, entry), entry fastest. The rest as for `attention`.

    entries int64 [count[0], 2]: a walk, and one of the chunks that it meets.
    """
    reader = KVReader(k, q, pages, k_offset, v_offset, scratch, tiles, rows, centers,
                head_dim=head_dim, value_dim=value_dim, kv_heads=kv_heads, group=group, kv=kv,
                window=window, cap=cap, centered=centered)  # fmt: skip
    total = count.load(0)
    with reader.ready(), k.units() as unit:
        entry = entries.at(unit % total * 2)
        slots, chunk = tiles.at(entry.load(0) * TILE_SLOTS), entry.load(1)
        walk = reader.walk(slots, unit // total)
        line = slots.load(PART) + (chunk - walk.lowest) * slots.load(COUNT) * (kv_heads * group)
        walk.attend_chunk(chunk * CHUNK, _Stored(walk, line, parts, part_stats, reader.out_dim))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A chunk's result, stored for `attention_reduce`."""

    walk: Walk
    line: Value
    parts: Ptr
    part_stats: Ptr
    head_dim: int

    def _at(self, row: Value) -> Value:
        group, heads = self.walk.reader.group, self.walk.reader.kv_heads * self.walk.reader.group
        token, member = row // group, row % group
        return self.line + token * heads + self.walk.head * group + member

    def chunk(self, row: Value, maximum: Value, total: Value, unit: Callable[[], Value]) -> None:
        stats = self.part_stats.at(self._at(row) * 4)
        for slot, value in ((_MAX, maximum), (_TOTAL, total), (_UNIT, unit())):
            stats.store(slot, value)

    def row(self, row: Value) -> Callable[[Value | int, Value], None]:
        out = self.parts.at(self._at(row) * self.head_dim)
        return out.store


@kernel
def attention_reduce(
    k: Kernel,
    parts: F32s,
    part_stats: F32s,
    out: F32s,
    out_stride: I64,
    scratch: I8s,
    tiles: I64s,
    rows: I64s,
    sinks: F32s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    window: int = 0,
    sink: bool = False,
    value_dim: int = 0,
) -> None:
    """Merge chunks; unit = (row of the pass, head), head fastest; `out` float32 [rows, out_stride].

    rows, tiles: as `batch.py` has them; sinks: as for `attention`.
    """
    heads, head_dim = kv_heads * group, value_dim or head_dim
    running = OnlineSoftmax(k, scratch.cast(f32), scratch.cast(f32).at(head_dim), head_dim)
    row = k.i64(0)
    with k.units() as unit:
        token, head = unit // heads, unit % heads
        index = rows.load(token * ROW_SLOTS + ROW_INDEX)
        tile = tiles.at(rows.load(token * ROW_SLOTS + ROW_TILE) * TILE_SLOTS)
        walks = tile.load(WALKS)
        base = k.choose(walks > 0, tiles.at(tile.load(FROM) * TILE_SLOTS), tile)
        running.clear(row, sinks.at(head) if sink else None)
        with k.range(0, walks.max(1), name="walk") as step:
            walk = base.at(step * TILE_SLOTS)
            first, count, start, until = (walk.load(n) for n in (FIRST, COUNT, START, UNTIL))
            # The chunks of the row's walk, also those that only its other tokens see.
            lowest = lowest_chunk(k, walk, window)
            end = (until > 0).select(until, (start + count + (CHUNK - 1)) // CHUNK)
            mine = (index >= first) & (index < first + count)
            line = walk.load(PART) + (index - first) * heads + head
            with k.range(0, mine.select(end - lowest, 0), name="chunk") as number:
                at = line + number * (count * heads)
                maximum, total, size = (part_stats.load(at * 4 + n) for n in (_MAX, _TOTAL, _UNIT))
                running.chunk(row, maximum, total, lambda size=size: size)
                add = running.row(row)
                with k.range(0, head_dim, step=k.lanes, name="dim") as d:
                    add(d, parts.load(at * head_dim + d, k.lanes))
        running.write(row, out.at(token * out_stride + head * head_dim))
