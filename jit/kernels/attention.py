"""Causal attention with grouped query heads over the KV cache, for prefill and decode alike.

    out[t, h] = sum over p <= position(t) of softmax(q[t, h] . k[p])_p v[p]

Scores have lane = position and values lane = dim, so neither product needs a horizontal sum; all
query heads of a KV head share every load. Rows (token, head of the group) meet the cache in
chunks of `CHUNK` positions. A chunk gives its own maximum m_c, sum l_c and product o_c, which are
merged into the running ones by the online softmax

    m' = max(m, m_c),  l' = l e^(m - m') + l_c e^(m_c - m'),  o' likewise.

The chunks lie at fixed positions and masked scores count as exact zeros, so the result of a token
does not depend on how many tokens were in the pass, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dot import bf16_dot, pair_high, pair_low, to_bf16_bits
from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, V, Var, f32, i32, kernel
from .gemm import for_tiles
from .kvcache import PAGE, KVFormat, head_part, head_words
from .mathlib import exp
from .rope import bf16_pairs

CHUNK = PAGE  # positions whose scores are held at once: 16 rows of them are 16 KiB
NEVER = -3.0e38  # stands for minus infinity: finite, so that no inf - inf arises


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
) -> None:
    """Unit = (token tile, kv head), kv head fastest. state = [tokens, position of token 0].

    `q` as `rope_store` writes it; pages and offsets as in `kvcache.py`; `out` float32
    [tokens, out_stride]; `scratch` is this thread's own.
    """
    tile = token_tile(group)
    shape = _Shape(k, head_dim, group, kv)
    words = head_words(kv, head_dim)
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
        queries = q.cast(i32).at((first * (kv_heads * group) + head * group) * shape.query_words)
        _clear(k, sums, stats, rows, head_dim)
        with k.range(0, seen, step=CHUNK, name="chunk") as chunk:
            count, page = (seen - chunk).min(CHUNK), chunk // CHUNK
            keys = head_part(k, pages, page, k_offset, head, words)
            values = head_part(k, pages, page, v_offset, head, words)
            shape.score(queries, keys, scores, rows, count, kv_heads)
            _softmax(k, shape, scores, probs, stats, rows, group, start - chunk, count)
            shape.weigh(probs, values, sums, stats, rows, count)
        _write(k, sums, stats, out, rows, group, first, head, out_stride, head_dim)


# stats of a row: [m, l, e^(m - m') of the last chunk, e^(m_c - m')]
_M, _L, _OLD, _NEW = range(4)


def _clear(k: Kernel, sums: Ptr, stats: Ptr, rows: V, head_dim: int) -> None:
    with k.range(0, rows, name="row") as row:
        stats.store(row * 4 + _M, k.f32(NEVER))
        stats.store(row * 4 + _L, k.f32(0))
        with k.range(0, head_dim, step=k.lanes, name="dim") as d:
            sums.store(row * head_dim + d, k.zeros(f32, k.lanes))


def _softmax(
    k: Kernel,
    shape: _Shape,
    scores: Ptr,
    probs: Ptr,
    stats: Ptr,
    rows: V,
    group: int,
    reach: V,
    count: V,
) -> None:
    """Scores of one chunk -> probabilities relative to the chunk's maximum, and the merge factors.

    Row r attends to the positions of this chunk up to `reach` + its token.
    """
    lanes = k.lanes
    blocks = (count + (lanes - 1)) // lanes
    with k.range(0, rows, name="row") as row:
        limit = (reach + row // group + 1).to(i32).splat(lanes)
        line, line_out = scores.at(row * CHUNK), probs.at(row * shape.prob_words)
        largest = k.var(k.f32(NEVER, lanes))
        with k.range(0, blocks, name="max") as b:
            inside = (k.iota(lanes) + (b * lanes).to(i32).splat(lanes)) < limit
            largest.set(largest.now.max(inside.select(line.load(b * lanes, lanes), NEVER)))
        most = largest.now.hmax()
        old = stats.load(row * 4 + _M)
        m = old.max(most)
        total = k.var(k.zeros(f32, lanes))
        with k.range(0, blocks, name="exp") as b:
            inside = (k.iota(lanes) + (b * lanes).to(i32).splat(lanes)) < limit
            p = exp(k, line.load(b * lanes, lanes) - most.splat(lanes))
            p = inside.select(p, 0.0)
            total.set(total.now + p)
            shape.store_probs(line_out, b, p)
        keep, add = exp(k, (old - m).splat(lanes)).at(0), exp(k, (most - m).splat(lanes)).at(0)
        stats.store(row * 4 + _M, m)
        merged = k.fma(stats.load(row * 4 + _L), keep, total.now.hsum() * add)
        stats.store(row * 4 + _L, merged)
        stats.store(row * 4 + _OLD, keep)
        stats.store(row * 4 + _NEW, add)


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


class _Shape:
    """The two products of attention for one head size and cache format."""

    def __init__(self, k: Kernel, head_dim: int, group: int, kv: KVFormat) -> None:
        self.k = k
        self.head_dim = head_dim
        self.group = group
        self.kv = kv
        self.pairs = bf16_pairs(k, kv)
        self.step = 2 if kv == "bf16" else 1  # positions that share one int32 of V, dims one of K
        self.key_words = head_dim // self.step
        # q is bf16 pairs where the target multiplies those, else float32.
        self.query_words = head_dim // 2 if self.pairs else head_dim
        self.prob_words = CHUNK // 2 if self.pairs else CHUNK
        # rows x vectors of sums: as many as leave room for the loads and one broadcast.
        self.rows_most, self.vectors_most = (6, 4) if k.target.registers >= 32 else (3, 3)

    def score(self, queries: Ptr, keys: Ptr, scores: Ptr, rows: V, count: V, kv_heads: int) -> None:
        """scores[row, p] = q[row] . k[p] for the `count` first positions of the chunk."""
        k, lanes = self.k, self.k.lanes
        blocks = (count + (lanes - 1)) // lanes

        def block_tile(first_block: V, vectors: int) -> None:
            at = [keys.at((first_block + n) * (lanes * self.key_words)) for n in range(vectors)]

            def row_tile(first_row: V, n_rows: int) -> None:
                lines = [self._query(queries, first_row + r, kv_heads) for r in range(n_rows)]
                sums = self._sums(n_rows, vectors)
                with k.range(0, self.key_words, name="dim") as d:
                    loaded = [p.load(d * lanes, lanes) for p in at]
                    for line, totals in zip(lines, sums, strict=True):
                        self._step(line, d, loaded, totals)
                for r, totals in enumerate(sums):
                    for n, total in enumerate(totals):
                        where = (first_row + r) * CHUNK + (first_block + n) * lanes
                        scores.store(where, total.now)

            for_tiles(k, rows, self.rows_most, row_tile)

        for_tiles(k, blocks, self.vectors_most, block_tile)

    def _query(self, queries: Ptr, row: V, kv_heads: int) -> Ptr:
        """Row (token, member) of this KV head in q [tokens, heads, words]."""
        token, member = row // self.group, row % self.group
        return queries.at((token * (kv_heads * self.group) + member) * self.query_words)

    def weigh(self, probs: Ptr, values: Ptr, sums: Ptr, stats: Ptr, rows: V, count: V) -> None:
        """sums[row] = sums[row] * old + (probabilities[row] . values) * new."""
        k, lanes = self.k, self.k.lanes
        steps = (count + (self.step - 1)) // self.step
        vectors_all = self.head_dim // lanes
        for first in range(0, vectors_all, self.vectors_most):
            dims = range(first, min(first + self.vectors_most, vectors_all))

            def row_tile(first_row: V, n_rows: int, dims: Sequence[int] = dims) -> None:
                lines = [probs.at((first_row + r) * self.prob_words) for r in range(n_rows)]
                totals = self._sums(n_rows, len(dims))
                with k.range(0, steps, name="position") as s:
                    loaded = [values.load(s * self.head_dim + d * lanes, lanes) for d in dims]
                    for line, mine in zip(lines, totals, strict=True):
                        self._step(line, s, loaded, mine)
                for r, mine in enumerate(totals):
                    row = first_row + r
                    old = stats.splat(row * 4 + _OLD, lanes)
                    new = stats.splat(row * 4 + _NEW, lanes)
                    for d, total in zip(dims, mine, strict=True):
                        at = row * self.head_dim + d * lanes
                        sums.store(at, k.fma(sums.load(at, lanes), old, total.now * new))

            for_tiles(k, rows, self.rows_most, row_tile)

    def _sums(self, rows: int, vectors: int) -> list[list[Var]]:
        zero = self.k.zeros(f32, self.k.lanes)
        return [[self.k.var(zero) for _ in range(vectors)] for _ in range(rows)]

    def _step(self, line: Ptr, at: V, loaded: list[V], totals: list[Var]) -> None:
        """One word of the shared dimension: one value, or a pair of bf16."""
        k, lanes = self.k, self.k.lanes
        if self.pairs:
            x = line.splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(bf16_dot(k, total.now, v, x))
        elif self.kv == "bf16":
            x0, x1 = (line.cast(f32).splat(at * 2 + n, lanes) for n in range(2))
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(pair_high(v), x1, k.fma(pair_low(v), x0, total.now)))
        else:
            x = line.cast(f32).splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(v.bitcast(f32), x, total.now))

    def store_probs(self, line: Ptr, block: V, p: V) -> None:
        """Probabilities of `lanes` positions, in the form that `weigh` multiplies."""
        lanes = p.lanes
        if not self.pairs:
            line.cast(f32).store(block * lanes, p)
            return
        bits = to_bf16_bits(p)
        even, odd = (bits.shuffle(range(n, lanes, 2)) for n in range(2))
        line.store(block * (lanes // 2), even | (odd << 16))


def reference(q: np.ndarray, keys: np.ndarray, values: np.ndarray, start: int) -> np.ndarray:
    """q float [tokens, heads, dim] (scaled), keys and values [positions, kv heads, dim].

    Token t attends to positions 0 … start + t; returns float32 [tokens, heads, dim].
    """
    tokens, heads, _ = q.shape
    group = heads // keys.shape[1]
    out = np.zeros(q.shape, np.float64)
    for t in range(tokens):
        seen = start + t + 1
        for h in range(heads):
            s = keys[:seen, h // group].astype(np.float64) @ q[t, h].astype(np.float64)
            p = np.exp(s - s.max())
            out[t, h] = (p / p.sum()) @ values[:seen, h // group].astype(np.float64)
    return out.astype(np.float32)
