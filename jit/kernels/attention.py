"""Causal attention with grouped query heads over the KV cache, for prefill and decode alike.

    out[t, h] = sum over p <= position(t) of softmax(q[t, h] . k[p])_p v[p]

With a window w a token sees the last w positions, itself among them; with a cap c each score s
becomes c tanh(s / c) before the softmax. With sinks a head's sum has e^sink in it, for which there
is no value: what is seen gets less than 1 altogether.

Scores have lane = position and values lane = dim, so neither product needs a horizontal sum; all
query heads of a KV head share every load. Rows (token, head of the group) meet the cache in
chunks of `CHUNK` positions. A chunk gives its own maximum m_c, sum l_c and product o_c, which are
merged into the running ones by the online softmax (arXiv:1805.02867)

    m' = max(m, m_c),  l' = l e^(m - m') + l_c e^(m_c - m'),  o' likewise.

The chunks lie at fixed positions and masked scores count as exact zeros, so the result of a token
does not depend on how many tokens were in the pass, bit for bit.

Nor does it depend on whose rows a tile has: sequences that begin with the same pages may meet these
together (`batch.py`), which reads them once.

Chunks may be computed apart and merged afterwards, with the same bits: `split_kv.py`. The products,
by cache format: `attention_float.py`, `attention_tiles.py` (AMX), `attention_q8.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, Value, f32, i32, kernel
from .attention_float import FloatKeys, FloatValues, Following
from .attention_q8 import ByteKeys, ByteValues
from .attention_tiles import TileKeys, TileValues, configured, padded
from .batch import (
    COUNT,
    FIRST,
    FROM,
    ROW_INDEX,
    ROW_POSITION,
    ROW_SLOTS,
    START,
    TABLE,
    TILE_SLOTS,
    UNTIL,
    WALKS,
)
from .key_values import piece_bytes
from .kvcache import PAGE, KVFormat, head_part, head_words, key_format, value_format
from .mathlib import exp_below_each, larger, tanh
from .rope import bf16_tiles
from .tiles import for_tiles

CHUNK = PAGE  # positions whose scores are held at once: 16 rows of them are 16 KiB
JOINED_ROWS = 64  # of a tile of several sequences, at most
TOGETHER = 4  # rows in the softmax's loops: what one waits for, others compute
NEVER = -3.0e38  # stands for minus infinity: finite, so that no inf - inf arises

KeyProducts = FloatKeys | ByteKeys | TileKeys
ValueProducts = FloatValues | ByteValues | TileValues


def token_tile(group: int) -> int:
    """Return the maximum tokens of a tile: enough rows to reuse cache loads, few enough for L2."""
    return max(1, 32 // group)


def joined_tile(group: int) -> int:
    """Return the maximum tokens of a tile of several sequences: memory counts for more than L2."""
    return max(token_tile(group), JOINED_ROWS // group)


def scratch_bytes(group: int, head_dim: int, value_dim: int = 0) -> int:
    """Return the bytes of scratch of one thread; value_dim: as for `attention`."""
    rows, out_dim = padded(joined_tile(group) * group), value_dim or head_dim
    words = 2 * CHUNK + out_dim + 4 + head_dim // 2
    return 4 * rows * words + 256 + (piece_bytes() if value_dim else 0)


@kernel
def attention(
    k: Kernel,
    q: I8s,
    pages: I64s,
    k_offset: I64,
    v_offset: I64,
    out: F32s,
    out_stride: I64,
    scratch: I8s,
    tiles: I64s,
    rows: I64s,
    sinks: F32s,
    centers: F32s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    kv: KVFormat,
    window: int = 0,
    cap: float = 0.0,
    sink: bool = False,
    value_dim: int = 0,
    first: int = 0,
    centered: int = 0,
) -> None:
    """Attend to the cache; unit = (tile, kv head), kv head fastest. tiles, rows: as in `batch.py`.

    `q` as `rope_store` writes it; pages, tables and offsets as in `kvcache.py`; `out` float32
    [tokens, out_stride]; `scratch` is this thread's own. sinks: float32 [heads], read with `sink`.
    value_dim: of values that are the first dims of keys; 0: they are apart, and as wide.
    first: the first position of a sequence that is seen, by rows that are not before it; it is in
    the first page. centered: pairs of dims whose u and v are behind each query (`rope.py`), and
    centers: `rope.center_angles`, read then.
    """
    reader = KVReader(k, q, pages, k_offset, v_offset, scratch, tiles, rows, centers,
                head_dim=head_dim, value_dim=value_dim, kv_heads=kv_heads, group=group, kv=kv,
                window=window, cap=cap, first=first, centered=centered)  # fmt: skip
    running = OnlineSoftmax(k, reader.sums, reader.stats, reader.out_dim)
    with reader.ready(), k.units() as unit:
        tile = reader.tile(unit // kv_heads, unit % kv_heads)
        with k.range(0, tile.rows, name="row") as row:
            running.clear(row, sinks.at(tile.head * group + row % group) if sink else None)
        with tile.walks() as walk:
            mine = running.behind((walk.first - tile.first) * group)
            with k.range(walk.lowest * CHUNK, walk.seen, step=CHUNK, name="chunk") as chunk:
                walk.attend_chunk(chunk, mine)
        with k.range(0, tile.rows, name="row") as row:
            token, member = reader.row_at(tile.first + row // group), row % group
            running.write(
                row, out.at(token * out_stride + (tile.head * group + member) * reader.out_dim)
            )


class ChunkSink(Protocol):
    """The consumer of a chunk's result for a row: its maximum and sum, then its products."""

    def chunk(self, row: Value, maximum: Value, total: Value, unit: Callable[[], Value]) -> None:
        """Receive a row's m_c and l_c; `unit()` is the scale of its products: call it last."""
        ...

    def row(self, row: Value) -> Callable[[Value | int, Value], None]:
        """Return a function (dim, product) that takes a row's p . V, a vector at a time."""
        ...


class KVReader:
    """The traversal of the cache by rows of token tiles, independent of how chunks are merged.

    `sums` and `stats` have room for the rows of a tile.
    """

    def __init__(
        self,
        k: Kernel,
        q: Ptr,
        pages: Ptr,
        k_offset: Value,
        v_offset: Value,
        scratch: Ptr,
        tiles: Ptr,
        rows: Ptr,
        centers: Ptr,
        *,
        head_dim: int,
        value_dim: int,
        kv_heads: int,
        group: int,
        kv: KVFormat,
        window: int,
        cap: float,
        first: int = 0,
        centered: int = 0,
    ) -> None:
        assert not (cap and centered), "a cap bounds the whole score"
        self.first, self.centers, self.centered = first, centers, centered
        self.k, self.q, self.tiles, self.rows = k, q, tiles, rows
        self.pages, self.offsets = pages, (k_offset, v_offset)
        self.kv_heads, self.group, self.window, self.cap = kv_heads, group, window, cap
        self.out_dim, self.shared = value_dim or head_dim, value_dim > 0
        self.words = head_words(kv, head_dim, "k"), head_words(kv, head_dim, "v")
        max_rows = padded(joined_tile(group) * group)
        self.scores = scratch.cast(f32)
        self.probs = self.scores.at(max_rows * CHUNK).cast(i32)
        self.sums = self.scores.at(max_rows * 2 * CHUNK)
        self.stats = self.sums.at(max_rows * self.out_dim)
        queries = self.stats.at(max_rows * 4).cast(i32)
        piece = queries.at(max_rows * (head_dim // 2)) if self.shared else None
        of_keys = key_format(kv)
        of_values = value_format(kv, in_keys=self.shared)
        self.keys: KeyProducts
        self.values: ValueProducts
        if of_keys == "q8":
            self.keys = ByteKeys(k, head_dim)
        elif bf16_tiles(k.target, of_keys, head_dim):
            self.keys = TileKeys(k, head_dim, queries)
        else:
            self.keys = FloatKeys(k, head_dim, of_keys)
        if of_values == "q8":
            self.values = ByteValues(k, head_dim, self.out_dim, piece)
        elif bf16_tiles(k.target, of_values, head_dim):
            self.values = TileValues(k, head_dim, self.out_dim, piece)
        else:
            self.values = FloatValues(k, head_dim, self.out_dim, of_values, piece)
        self.query_stride = self.keys.query_words + 2 * centered

    def ready(self) -> AbstractContextManager[None]:
        """Configure the AMX tiles, if the products use them, for the code inside."""
        tiles = isinstance(self.keys, TileKeys) or isinstance(self.values, TileValues)
        return configured(self.k) if tiles else nullcontext()

    def tile(self, number: Value, head: Value) -> Tile:
        """Return the rows of one KV head in one tile of the pass."""
        slots = self.tiles.at(number * TILE_SLOTS)
        return Tile(self, slots, head, slots.load(FIRST), slots.load(COUNT) * self.group)

    def walk(self, slots: Ptr, head: Value, following: tuple[Ptr, Value] | None = None) -> Walk:
        """Return the walk of an entry of `tiles`; following: the entry and head to prefetch."""
        first, tokens, start, until = (slots.load(n) for n in (FIRST, COUNT, START, UNTIL))
        seen = (until > 0).select(until * CHUNK, start + tokens)
        after, next_head = following or (slots, head + 1)
        return Walk(
            self, first, head, tokens * self.group, start, seen, self.lowest(slots),
            self.table(slots), (self.table(after), self.lowest(after), next_head),
        )  # fmt: skip

    def lowest(self, slots: Ptr) -> Value:
        """Return the first chunk that an entry of `tiles` reads."""
        return lowest_chunk(self.k, slots, self.window)

    def table(self, slots: Ptr) -> Ptr:
        """Return the page table of an entry of `tiles`."""
        return self.pages.at(slots.load(TABLE))

    def row_at(self, index: Value) -> Value:
        """Return the row of the pass that has index `index` in tiles."""
        return self.rows.load(index * ROW_SLOTS + ROW_INDEX)


def lowest_chunk(k: Kernel, slots: Ptr, window: int) -> Value:
    """Return the first chunk of an entry of `tiles` that is visible to its rows."""
    begin = slots.load(FROM)
    return begin.max((slots.load(START) - (window - 1)).max(0) // CHUNK) if window else begin


@dataclass(frozen=True, slots=True)
class Tile:
    """The rows of one KV head in one tile of the pass; `first`: the index of its first token."""

    reader: KVReader
    slots: Ptr
    head: Value
    first: Value
    rows: Value

    @contextmanager
    def walks(self) -> Iterator[Walk]:
        """Loop over the tile's walks."""
        reader, k = self.reader, self.reader.k
        count = self.slots.load(WALKS)
        joined = reader.tiles.at(self.slots.load(FROM) * TILE_SLOTS)
        base = k.choose(count > 0, joined, self.slots)
        with k.range(0, count.max(1), name="walk") as n:
            here = base.at(n * TILE_SLOTS)
            more = (n + 1) < count
            after = k.choose(more, here.at(TILE_SLOTS), base)
            yield reader.walk(here, self.head, (after, more.select(self.head, self.head + 1)))


@dataclass(frozen=True, slots=True)
class Walk:
    """Rows that attend to the same chunks, from chunk `lowest` up to position `seen`.

    first: the index of the first token; start: its position, or a bound where all rows see all.
    pages: the page table; following: page table, first chunk and head of the next walk.
    """

    reader: KVReader
    first: Value
    head: Value
    rows: Value
    start: Value
    seen: Value
    lowest: Value
    pages: Ptr
    following: tuple[Ptr, Value, Value]

    def query(self, row: Value) -> Ptr:
        """Return the address of row (token, member) of this KV head in q [tokens, heads, words]."""
        reader = self.reader
        token, member = reader.row_at(self.first + row // reader.group), row % reader.group
        at = (token * reader.kv_heads + self.head) * reader.group + member
        return reader.q.cast(i32).at(at * reader.query_stride)

    def center(self, row: Value, chunk: Value) -> Value:
        """Return the key bias's share of each score of a row with the chunk: see `rope.py`."""
        reader, pairs = self.reader, self.reader.centered
        own = self.query(row).at(reader.keys.query_words).cast(f32)
        angles = reader.centers.at(chunk // PAGE * (2 * pairs))
        lanes = math.gcd(pairs, reader.k.lanes)
        total = reader.k.zeros(f32, lanes)
        for at in range(0, 2 * pairs, lanes):
            total = reader.k.fma(own.load(at, lanes), angles.load(at, lanes), total)
        return total.hsum()

    def limit(self, row: Value, chunk: Value) -> Value:
        """Return how many of a chunk's positions a row sees; its size or more means all."""
        reader, token = self.reader, row // self.reader.group
        if not reader.window:
            return self.start - chunk + token + 1
        number = reader.row_at(self.first + token)  # a walk of many may begin before each window
        return reader.rows.load(number * ROW_SLOTS + ROW_POSITION) - chunk + 1

    def attend_chunk(self, chunk: Value, into: ChunkSink) -> None:
        """Compute scores, softmax and products of the chunk that begins at position `chunk`."""
        reader, k, rows = self.reader, self.reader.k, self.rows
        k_offset, v_offset = reader.offsets
        key_words, value_words = reader.words
        count, page = (self.seen - chunk).min(CHUNK), chunk // CHUNK
        keys = head_part(k, self.pages, page, k_offset, self.head, key_words)
        # After the values come the keys of the next chunk, of the next walk or of the next head.
        more, (table, first_page, head) = (chunk + CHUNK) < self.seen, self.following
        next_table = k.choose(more, self.pages, table)
        next_page, next_head = more.select(page + 1, first_page), more.select(self.head, head)
        following = self._following(
            head_part(k, next_table, next_page, k_offset, next_head, key_words),
            more.select(self.seen - chunk - CHUNK, self.seen).min(CHUNK),
            key_words,
        )
        values, after = keys, following
        if not reader.shared:
            values = head_part(k, self.pages, page, v_offset, self.head, value_words)
            after = self._following(values, count, value_words)
        reader.keys.qk(self.query, keys, reader.scores, rows, count, after)
        unseen = (k.i64(reader.first) - chunk).max(0) if reader.first else None
        limit = partial(self.limit, chunk=chunk)
        center = partial(self.center, chunk=chunk) if reader.centered else None
        part = _Rows(rows, limit, count, reader.window, reader.cap, unseen, center)
        _softmax(k, reader.values, reader.scores, reader.probs, values, into, part)
        reader.values.pv(reader.probs, values, rows, count, into, following)

    def _following(self, part: Ptr, positions: Value, page_words: int) -> Following:
        """Return what to prefetch of a part that has `page_words` in all, in whole vectors."""
        lanes = self.reader.k.lanes
        blocks = (positions + (lanes - 1)) // lanes
        return Following(part, blocks * (page_words * lanes // PAGE))


# stats of a row: [m, l, e^(m - m') of the last chunk, e^(m_c - m') times the unit of its products]
_M, _L, _OLD, _NEW = range(4)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a walk in one chunk: each sees the positions before its `limit`.

    `count` are the positions that any of them sees. With a `window` a row does not see what lies
    further back than that; where a whole chunk does, its sums are zeros. No row sees the first
    `unseen` positions of the chunk. `center`: the key bias's share of all scores of a row.
    """

    rows: Value
    limit: Callable[[Value], Value]
    count: Value
    window: int
    cap: float
    unseen: Value | None = None
    center: Callable[[Value], Value] | None = None

    def blocks(
        self, k: Kernel, limits: Sequence[Value], name: str
    ) -> Iterator[tuple[Value, list[Value | None]]]:
        """Loop over blocks of lanes; yield each, and for each limit the visible lanes or None.

        None: all lanes, in a loop of their own, between those of blocks that are seen in part.
        """
        lanes, zero = k.lanes, k.i64(0)
        end = (self.count + (lanes - 1)) // lanes
        low, high = zero, limits[0]
        for limit in limits:
            high = high.min(limit)
            low = low.max(limit - self.window) if self.window else low
        low = low if self.unseen is None else low.max(self.unseen)
        low = ((low + (lanes - 1)) // lanes).min(end)
        high = (high.max(0) // lanes).min(end).max(low)
        ends = [limit.to(i32).splat(lanes) for limit in limits]
        partly = [(zero, low)] if self.window or self.unseen is not None else []
        for start, stop in (*partly, (low, high), (high, end)):
            whole = start is low
            with k.range(start, stop, name=name) as block:
                yield block, [None if whole else self._inside(k, block, end) for end in ends]

    def _inside(self, k: Kernel, block: Value, limit: Value) -> Value:
        """Return which positions of a block of lanes a row with that limit sees."""
        at = k.iota(k.lanes) + (block * k.lanes).to(i32).splat(k.lanes)
        within = at < limit
        if self.window:
            within = within & (at >= limit - self.window)
        if self.unseen is not None:
            within = within & (at >= self.unseen.to(i32).splat(k.lanes))
        return within


def _softmax(
    k: Kernel,
    products: ValueProducts,
    scores: Ptr,
    probs: Ptr,
    values: Ptr,
    into: ChunkSink,
    part: _Rows,
) -> None:
    """Turn a chunk's scores into probabilities relative to its maximum, which `into` receives."""
    lanes, blocks = k.lanes, (part.count + (k.lanes - 1)) // k.lanes

    def row_tile(first: Value, n_rows: int) -> None:
        rows = [first + r for r in range(n_rows)]
        limits = [part.limit(row) for row in rows]
        lines = [scores.at(row * CHUNK) for row in rows]
        outs = [
            products.probabilities(line, probs.at(row * products.prob_words), values)
            for row, line in zip(rows, lines, strict=True)
        ]
        largest = [k.var(k.f32(NEVER, lanes)) for _ in rows]
        for b, seen in part.blocks(k, limits, "max"):
            for line, inside, maximum in zip(lines, seen, largest, strict=True):
                score = line.load(b * lanes, lanes)
                if part.cap:
                    score = tanh(k, score * (1 / part.cap)) * part.cap
                    line.store(b * lanes, score)
                score = score if inside is None else inside.select(score, NEVER)
                maximum.set(larger(score, maximum.value))
        maxima = [maximum.value.fold(larger) for maximum in largest]
        totals = [k.var(k.zeros(f32, lanes)) for _ in rows]
        for b, seen in part.blocks(k, limits, "exp"):
            scores_here = [line.load(b * lanes, lanes) for line in lines]
            below = [x - top.splat(lanes) for x, top in zip(scores_here, maxima, strict=True)]
            ps = exp_below_each(k, below)
            for p, inside, total, out in zip(ps, seen, totals, outs, strict=True):
                p = p if inside is None else inside.select(p, 0.0)
                total.set(total.value + p)
                out.put(b, p, inside)
        for row, maximum, total, out in zip(rows, maxima, totals, outs, strict=True):
            if part.center is not None:
                maximum = maximum + part.center(row)  # the rest is relative to it
            into.chunk(row, maximum, total.value.hsum(), partial(out.finish, blocks))

    for_tiles(k, part.rows, TOGETHER, row_tile)


@dataclass(frozen=True, slots=True)
class OnlineSoftmax:
    """The running maximum, sum and products of rows; chunks are merged one by one.

    sums: float32 [rows, head_dim]; stats: float32 [rows, 4].
    """

    k: Kernel
    sums: Ptr
    stats: Ptr
    head_dim: int

    def behind(self, rows: Value) -> OnlineSoftmax:
        """Return a view of the state of the rows after the first `rows`."""
        sums, stats = self.sums.at(rows * self.head_dim), self.stats.at(rows * 4)
        return OnlineSoftmax(self.k, sums, stats, self.head_dim)

    def clear(self, row: Value, sink: Ptr | None = None) -> None:
        """Reset a row: no positions seen, except for the head's sink if it has one."""
        k = self.k
        self.stats.store(row * 4 + _M, sink.load(0) if sink else k.f32(NEVER))
        self.stats.store(row * 4 + _L, k.f32(1 if sink else 0))
        with k.range(0, self.head_dim, step=k.lanes, name="dim") as d:
            self.sums.store(row * self.head_dim + d, k.zeros(f32, k.lanes))

    def chunk(self, row: Value, maximum: Value, total: Value, unit: Callable[[], Value]) -> None:
        """Update a row's m and l by a chunk; store the factors of old and new products."""
        k, stats, lanes = self.k, self.stats, self.k.lanes
        old = stats.load(row * 4 + _M)
        m = old.max(maximum)
        both = exp_below_each(k, [(old - m).splat(lanes), (maximum - m).splat(lanes)])
        keep, add = (e.at(0) for e in both)
        stats.store(row * 4 + _M, m)
        stats.store(row * 4 + _L, k.fma(stats.load(row * 4 + _L), keep, total * add))
        stats.store(row * 4 + _OLD, keep)
        stats.store(row * 4 + _NEW, add * unit())

    def row(self, row: Value) -> Callable[[Value | int, Value], None]:
        """Return a function that adds a chunk's products to the sums: o' = o old + o_c new."""
        k, lanes = self.k, self.k.lanes
        old = self.stats.splat(row * 4 + _OLD, lanes)
        new = self.stats.splat(row * 4 + _NEW, lanes)

        def add(dim: Value | int, product: Value) -> None:
            at = row * self.head_dim + dim
            self.sums.store(at, k.fma(self.sums.load(at, lanes), old, product * new))

        return add

    def write(self, row: Value, out: Ptr) -> None:
        """Write o / l to `out`: float32 [head_dim]."""
        k = self.k
        inverse = (1.0 / self.stats.load(row * 4 + _L)).splat(k.lanes)
        with k.range(0, self.head_dim, step=k.lanes, name="dim") as d:
            out.store(d, self.sums.load(row * self.head_dim + d, k.lanes) * inverse)


def reference(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    start: int,
    window: int = 0,
    cap: float = 0.0,
    sinks: np.ndarray | None = None,
    first: int = 0,
) -> np.ndarray:
    """Attend: q float [tokens, heads, dim] (scaled), keys and values [positions, kv heads, dim].

    Token t attends to positions 0 … start + t, or the last `window` of them; returns float32
    [tokens, heads, dim of values]. sinks: float [heads]. first: the first that is seen.
    """
    tokens, heads, _ = q.shape
    group = heads // keys.shape[1]
    out = np.zeros((*q.shape[:2], values.shape[-1]), np.float64)
    for t in range(tokens):
        stop = start + t + 1
        seen = slice(max(first, stop - window) if window else first, stop)
        for h in range(heads):
            s = keys[seen, h // group].astype(np.float64) @ q[t, h].astype(np.float64)
            s = cap * np.tanh(s / cap) if cap else s
            sink = -np.inf if sinks is None else float(sinks[h])
            maximum = max(s.max(), sink)
            p = np.exp(s - maximum)
            p /= p.sum() + np.exp(sink - maximum)
            out[t, h] = p @ values[seen, h // group].astype(np.float64)
    return out.astype(np.float32)
