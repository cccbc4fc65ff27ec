"""Causal attention with grouped query heads over the KV cache, for prefill and decode alike.

    out[t, h] = sum over p <= position(t) of softmax(q[t, h] . k[p])_p v[p]

With a window w a token sees the last w positions, itself among them; with a cap c each score s
becomes c tanh(s / c) before the softmax.

Scores have lane = position and values lane = dim, so neither product needs a horizontal sum; all
query heads of a KV head share every load. Rows (token, head of the group) meet the cache in
chunks of `CHUNK` positions. A chunk gives its own maximum m_c, sum l_c and product o_c, which are
merged into the running ones by the online softmax

    m' = max(m, m_c),  l' = l e^(m - m') + l_c e^(m_c - m'),  o' likewise.

The chunks lie at fixed positions and masked scores count as exact zeros, so the result of a token
does not depend on how many tokens were in the pass, bit for bit.

The two products of each cache format are in `attention_float.py` and `attention_q8.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, V, f32, i32, kernel
from .attention_float import FloatProducts
from .attention_q8 import ByteProducts
from .gemm import for_tiles
from .kvcache import PAGE, KVFormat, head_part, head_words
from .mathlib import exp, tanh

CHUNK = PAGE  # positions whose scores are held at once: 16 rows of them are 16 KiB
TOGETHER = 2  # rows in the softmax's loops: what one waits for, another computes
NEVER = -3.0e38  # stands for minus infinity: finite, so that no inf - inf arises

Products = FloatProducts | ByteProducts


def token_tile(group: int) -> int:
    """Tokens of one unit: enough rows to reuse each load of the cache, few enough to stay in L2."""
    return max(1, 32 // group)


def scratch_bytes(group: int, head_dim: int) -> int:
    """Bytes of scratch that one thread needs."""
    rows = token_tile(group) * group
    return 4 * rows * (2 * CHUNK + head_dim + 4) + 256


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
    state: I64s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    kv: KVFormat,
    window: int = 0,
    cap: float = 0.0,
) -> None:
    """Unit = (token tile, kv head), kv head fastest. state = [tokens, position of token 0].

    `q` as `rope_store` writes it; pages and offsets as in `kvcache.py`; `out` float32
    [tokens, out_stride]; `scratch` is this thread's own.
    """
    tile = token_tile(group)
    products = _products(k, head_dim, group, kv)
    key_words, value_words = (head_words(kv, head_dim, part) for part in ("k", "v"))
    rows_most = tile * group
    scores = scratch.cast(f32)
    probs = scores.at(rows_most * CHUNK).cast(i32)
    sums = scores.at(rows_most * 2 * CHUNK)
    stats = sums.at(rows_most * head_dim)
    with k.units() as unit:
        first, head = unit // kv_heads * tile, unit % kv_heads
        tokens = (state.load(0) - first).min(tile)
        rows = tokens * group
        start = state.load(1) + first  # position of this tile's first token
        seen = start + tokens  # positions that its last token attends to
        queries = q.cast(i32).at((first * (kv_heads * group) + head * group) * products.query_words)
        _clear(k, sums, stats, rows, head_dim)
        # Chunks before the window of the tile's first token give nothing to any of its rows.
        lowest = (start - (window - 1)).max(0) // CHUNK if window else k.i64(0)
        with k.range(lowest * CHUNK, seen, step=CHUNK, name="chunk") as chunk:
            count, page = (seen - chunk).min(CHUNK), chunk // CHUNK
            keys = head_part(k, pages, page, k_offset, head, key_words)
            values = head_part(k, pages, page, v_offset, head, value_words)
            products.score(queries, keys, scores, rows, count, kv_heads, values)
            chunk_rows = _Rows(rows, group, start - chunk, count, window, cap)
            _softmax(k, products, scores, probs, values, stats, chunk_rows)
            # After these values come the keys of the next chunk, or of the next head.
            more = (chunk + CHUNK) < seen
            next_page, next_head = more.select(page + 1, lowest), more.select(head, head + 1)
            after = head_part(k, pages, next_page, k_offset, next_head, key_words)
            products.weigh(probs, values, rows, count, _Merge(k, sums, stats, head_dim), after)
        _write(k, sums, stats, out, rows, group, first, head, out_stride, head_dim)


def _products(k: Kernel, head_dim: int, group: int, kv: KVFormat) -> Products:
    if kv == "q8":
        return ByteProducts(k, head_dim, group)
    return FloatProducts(k, head_dim, group, kv)


# stats of a row: [m, l, e^(m - m') of the last chunk, e^(m_c - m') times the unit of its products]
_M, _L, _OLD, _NEW = range(4)


def _clear(k: Kernel, sums: Ptr, stats: Ptr, rows: V, head_dim: int) -> None:
    with k.range(0, rows, name="row") as row:
        stats.store(row * 4 + _M, k.f32(NEVER))
        stats.store(row * 4 + _L, k.f32(0))
        with k.range(0, head_dim, step=k.lanes, name="dim") as d:
            sums.store(row * head_dim + d, k.zeros(f32, k.lanes))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a tile in one chunk: row r sees the first `reach` + token(r) + 1 positions.

    `count` are the positions that any of them sees. With a `window` a row does not see what lies
    further back than that; where a whole chunk does, its sums are zeros.
    """

    rows: V
    group: int
    reach: V
    count: V
    window: int
    cap: float

    def inside(self, k: Kernel, block: V, limit: V) -> V:
        """Which positions of a block of lanes a row sees that ends at `limit`."""
        at = k.iota(k.lanes) + (block * k.lanes).to(i32).splat(k.lanes)
        within = at < limit
        return within & (at >= limit - self.window) if self.window else within


def _softmax(
    k: Kernel, products: Products, scores: Ptr, probs: Ptr, values: Ptr, stats: Ptr, part: _Rows
) -> None:
    """Scores of a chunk -> probabilities relative to the chunk's maximum, and merge factors."""
    lanes = k.lanes
    blocks = (part.count + (lanes - 1)) // lanes

    def row_tile(first: V, n_rows: int) -> None:
        rows = [first + r for r in range(n_rows)]
        limits = [(part.reach + row // part.group + 1).to(i32).splat(lanes) for row in rows]
        lines = [scores.at(row * CHUNK) for row in rows]
        outs = [
            products.probabilities(line, probs.at(row * products.prob_words), values)
            for row, line in zip(rows, lines, strict=True)
        ]
        largest = [k.var(k.f32(NEVER, lanes)) for _ in rows]
        with k.range(0, blocks, name="max") as b:
            for line, limit, most in zip(lines, limits, largest, strict=True):
                score = line.load(b * lanes, lanes)
                if part.cap:
                    score = tanh(k, score * (1 / part.cap)) * part.cap
                    line.store(b * lanes, score)
                most.set(_larger(part.inside(k, b, limit).select(score, NEVER), most.now))
        mosts = [most.now.fold(_larger) for most in largest]
        totals = [k.var(k.zeros(f32, lanes)) for _ in rows]
        with k.range(0, blocks, name="exp") as b:
            for line, limit, most, total, out in zip(
                lines, limits, mosts, totals, outs, strict=True
            ):
                inside = part.inside(k, b, limit)
                p = exp(k, line.load(b * lanes, lanes) - most.splat(lanes))
                p = inside.select(p, 0.0)
                total.set(total.now + p)
                out.put(b, p, inside)
        for row, most, total, out in zip(rows, mosts, totals, outs, strict=True):
            old = stats.load(row * 4 + _M)
            m = old.max(most)
            keep, add = exp(k, (old - m).splat(lanes)).at(0), exp(k, (most - m).splat(lanes)).at(0)
            stats.store(row * 4 + _M, m)
            merged = k.fma(stats.load(row * 4 + _L), keep, total.now.hsum() * add)
            stats.store(row * 4 + _L, merged)
            stats.store(row * 4 + _OLD, keep)
            stats.store(row * 4 + _NEW, out.finish(blocks, add))

    for_tiles(k, part.rows, TOGETHER, row_tile)


def _larger(a: V, b: V) -> V:
    """The larger one; `b` if `a` is NaN. One instruction on x86, which `V.max` is not."""
    return (a > b).select(a, b)


@dataclass(frozen=True, slots=True)
class _Merge:
    """Adds a chunk's products to the running sums: o' = o old + o_c new."""

    k: Kernel
    sums: Ptr
    stats: Ptr
    head_dim: int

    def row(self, row: V) -> Callable[[V | int, V], None]:
        """For one row: what takes the product of the vector of dims from `dim` on."""
        k, lanes = self.k, self.k.lanes
        old = self.stats.splat(row * 4 + _OLD, lanes)
        new = self.stats.splat(row * 4 + _NEW, lanes)

        def add(dim: V | int, product: V) -> None:
            at = row * self.head_dim + dim
            self.sums.store(at, k.fma(self.sums.load(at, lanes), old, product * new))

        return add


def _write(
    k: Kernel,
    sums: Ptr,
    stats: Ptr,
    out: Ptr,
    rows: V,
    group: int,
    first: V,
    head: V,
    out_stride: V,
    head_dim: int,
) -> None:
    with k.range(0, rows, name="row") as row:
        token, member = row // group, row % group
        line = out.at((first + token) * out_stride + (head * group + member) * head_dim)
        inverse = (1.0 / stats.load(row * 4 + _L)).splat(k.lanes)
        with k.range(0, head_dim, step=k.lanes, name="dim") as d:
            line.store(d, sums.load(row * head_dim + d, k.lanes) * inverse)


def reference(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    start: int,
    window: int = 0,
    cap: float = 0.0,
) -> np.ndarray:
    """q float [tokens, heads, dim] (scaled), keys and values [positions, kv heads, dim].

    Token t attends to positions 0 … start + t, or the last `window` of them; returns float32
    [tokens, heads, dim].
    """
    tokens, heads, _ = q.shape
    group = heads // keys.shape[1]
    out = np.zeros(q.shape, np.float64)
    for t in range(tokens):
        stop = start + t + 1
        seen = slice(max(0, stop - window) if window else 0, stop)
        for h in range(heads):
            s = keys[seen, h // group].astype(np.float64) @ q[t, h].astype(np.float64)
            s = cap * np.tanh(s / cap) if cap else s
            p = np.exp(s - s.max())
            out[t, h] = (p / p.sum()) @ values[seen, h // group].astype(np.float64)
    return out.astype(np.float32)
