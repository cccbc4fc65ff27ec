"""Attention's two products over the int8 cache (`cache_q8.py`), both in integer dot products.

    score[p] = sum over blocks of 32 dims of s_q s_k[p] (sum(q k[p]) - z sum(q))
    P[p] = round(p[p] s_v[p] / u),  u = max over the chunk of p[p] s_v[p] / 16383
    o = u sum(P[p] v[p])

The scale of a value is taken into its probability before that becomes an integer of 14 bits, with
one unit u for a row in a chunk. With 7 bits every probability below 1/254 of the largest would
vanish, and of a long context most are that small. Sums of a chunk are exact in int32: 256 products
of at most 16383 * 127 make 5.3e8.

Where the target sums four byte products well, a probability is two bytes of 7 bits, each summed for
itself; elsewhere it is an int16, and bytes of the cache are widened to meet it. So the integers,
and but for the order of float sums the results, are the same on every target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..dot import Dot, dot_words
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32
from .attention_float import LINE_WORDS, Ahead, Following, Merge, RowAt
from .cache_q8 import (
    GROUP_DIMS,
    QUADS,
    SCALE_WORDS,
    TINY,
    block_words,
    even_odd,
    key_vectors,
    quads,
    query_words,
    scales,
    wide,
    zero_point,
)
from .key_values import turn
from .kvcache import PAGE, SCALE_DIMS
from .mathlib import round_to_int
from .tiles import for_tiles

HALF_BITS = 7  # of a probability in one byte: bytes that are the same, signed or not
MAX_Q = (1 << 2 * HALF_BITS) - 1
SCORE_ROWS = 4  # of a tile of scores: as many as leave room for the loads and one broadcast


class _Bytes:
    """Dot products of four bytes: a probability is two bytes, each with its own sum."""

    halves, words, unrolled = 2, 1, True  # words: int32 of four queries or of half probabilities

    def __init__(self, k: Kernel) -> None:
        self.key_dot = Dot(k)
        # Never kept in 16 bits: a chunk of products does not fit.
        self.value_dot = Dot(k, max_q=(1 << HALF_BITS) - 1, steps=QUADS)

    def cached(self, data: Value) -> tuple[Value, ...]:
        """Return bytes of the cache in the form that queries and probabilities multiply."""
        return (data,)

    def with_query(self, acc: Value, keys: tuple[Value, ...], q: list[Value]) -> Value:
        return self.key_dot.step(acc, keys[0], q[0])

    def with_probability(self, acc: Value, values: tuple[Value, ...], p: list[Value]) -> Value:
        return self.value_dot.step(acc, p[0], values[0])

    def total(self, sums: list[Value]) -> Value:
        """Combine the sums of both halves."""
        return (sums[0] << HALF_BITS) + sums[1]


class _Words:
    """Dot products of int16 pairs: the even and the odd ones of four, after widening."""

    # Not unrolled: LLVM would widen the bytes of all steps first, and have nowhere to keep them.
    halves, words, unrolled = 1, 2, False

    def __init__(self, k: Kernel) -> None:
        self.k = k

    def cached(self, data: Value) -> tuple[Value, ...]:
        return even_odd(data)

    def with_query(self, acc: Value, keys: tuple[Value, ...], q: list[Value]) -> Value:
        for a, b in zip(keys, q, strict=True):
            acc = word_dot(self.k, acc, a, b)
        return acc

    with_probability = with_query

    def total(self, sums: list[Value]) -> Value:
        return sums[0]


def word_dot(k: Kernel, acc: Value, a: Value, b: Value) -> Value:
    """Add int16 products: acc[i] + a[2i] b[2i] + a[2i+1] b[2i+1]; a, b int32 [lanes] of pairs."""
    if k.target.dot != "portable":
        return dot_words(k, acc, a, b)
    # In this form LLVM finds `pmaddwd`.
    products = a.bitcast(i16).to(i32) * b.bitcast(i16).to(i32)
    even, odd = (products.shuffle(range(n, products.lanes, 2)) for n in range(2))
    return acc + (even + odd)


class _Products:
    """What both products over bytes of the cache have in common."""

    def __init__(self, k: Kernel, head_dim: int) -> None:
        self.k, self.head_dim = k, head_dim
        self.dots = _Words(k) if wide(k.target) else _Bytes(k)

    def _splats(self, line: Ptr, at: Value | int) -> list[Value]:
        """Return the words of four queries or probabilities, each in every lane."""
        return [line.splat(at + n, self.k.lanes) for n in range(self.dots.words)]


class ByteKeys(_Products):
    """Attention's products q k for one head size, over int8 keys."""

    def __init__(self, k: Kernel, head_dim: int) -> None:
        super().__init__(k, head_dim)
        self.query_words = head_dim // SCALE_DIMS * query_words(k.target)

    def qk(
        self, query: RowAt, keys: Ptr, scores: Ptr, rows: Value, count: Value, after: Following
    ) -> None:
        """Compute scores[row, p] = q[row] . k[p] for the `count` first positions of the chunk.

        `after`: what to prefetch, so that memory does not wait for the softmax.
        """
        k, lanes = self.k, self.k.lanes
        vectors = key_vectors(k.target)
        positions = vectors * lanes
        blocks, size = self.head_dim // SCALE_DIMS, block_words(positions)
        ahead = Ahead.of(k, after, (rows + (SCORE_ROWS - 1)) // SCORE_ROWS)
        with k.range(0, (count + (positions - 1)) // positions, name="tile") as tile:
            start = tile * (blocks * size)

            def row_tile(first_row: Value, n_rows: int) -> None:
                lines = [query(first_row + r) for r in range(n_rows)]
                sums = [[k.var(k.zeros(f32, lanes)) for _ in range(vectors)] for _ in lines]
                with k.range(0, blocks, name="block") as b:
                    here = [line.at(b * query_words(k.target)) for line in lines]
                    ahead.prefetch(-(-size // LINE_WORDS))
                    self._score_block(keys.at(start + b * size), here, sums)
                for r, totals in enumerate(sums):
                    for n, total in enumerate(totals):
                        at = (first_row + r) * PAGE + tile * positions + n * lanes
                        scores.store(at, total.value)

            for_tiles(k, rows, SCORE_ROWS, row_tile)

    def _score_block(self, block: Ptr, queries: list[Ptr], sums: list[list[Var]]) -> None:
        """Add the products of 32 dims of a tile of keys."""
        k, dots, lanes = self.k, self.dots, self.k.lanes
        vectors = range(len(sums[0]))
        words = block.at(len(vectors) * lanes // 2)
        zero = zero_point(k.target) != 0
        starts = [q.splat(1, lanes) if zero else k.zeros(i32, lanes) for q in queries]
        accs = [[k.var(start) for _ in vectors] for start in starts]

        def quad(n: Value | int) -> None:
            keys = [dots.cached(words.load((n * len(vectors) + v) * lanes, lanes)) for v in vectors]
            for query, mine in zip(queries, accs, strict=True):
                q = self._splats(query, n * dots.words + 2)
                for acc, key in zip(mine, keys, strict=True):
                    acc.set(dots.with_query(acc.value, key, q))

        if dots.unrolled:
            for n in range(SCALE_DIMS // 4):
                quad(n)
        else:
            with k.range(0, SCALE_DIMS // 4, name="quad") as n:
                quad(n)
        key_scales = [scales(k, block, v * lanes) for v in vectors]
        for query, mine, totals in zip(queries, accs, sums, strict=True):
            scale = query.cast(f32).splat(0, lanes)
            for acc, key_scale, total in zip(mine, key_scales, totals, strict=True):
                total.set(k.fma(acc.value.to(f32), key_scale * scale, total.value))


class ByteValues(_Products):
    """Attention's products p v for one head size, over int8 values."""

    def __init__(self, k: Kernel, head_dim: int, value_dim: int, piece: Ptr | None = None) -> None:
        """Set up products; piece: scratch for values that are dims of keys (`key_values.py`)."""
        super().__init__(k, head_dim)
        self.value_dim, self.piece = value_dim, piece
        self.prob_words = 2 * QUADS
        # Rows of a tile: as many as leave room for the loads, one broadcast and what a dot needs.
        self.weigh_rows = 3 if self.dots.halves == 2 else 4
        self.weigh_vectors = 4 if k.target.registers >= 32 else 2

    def probabilities(self, scores: Ptr, out: Ptr, values: Ptr) -> ByteRow:
        """Return the writer of one row's probabilities, in the form that `pv` multiplies."""
        largest = self.k.var(self.k.zeros(i32, self.k.lanes))
        return ByteRow(self.k, scores, out, partial(self._value_scales, values), largest)

    def _value_scales(self, values: Ptr, at: Value) -> Value:
        """Return the scales of a vector of positions; for values in keys, of the first dims."""
        if self.piece is None:
            return scales(self.k, values, at)
        positions = key_vectors(self.k.target) * self.k.lanes
        size = self.head_dim // SCALE_DIMS * block_words(positions)
        return scales(self.k, values.at(at // positions * size), at % positions)

    def pv(
        self, probs: Ptr, values: Ptr, rows: Value, count: Value, merge: Merge, after: Following
    ) -> None:
        """Compute probabilities [rows, count] . values [count, dims], merged into the sums.

        `after`: what to prefetch.
        """
        k, lanes = self.k, self.k.lanes
        data = values.at(SCALE_WORDS) if self.piece is None else self.piece
        whole = self.value_dim // GROUP_DIMS * GROUP_DIMS
        ahead = Ahead.of(k, after, (rows + (self.weigh_rows - 1)) // self.weigh_rows)
        for start, stop in ((0, whole), (whole, self.value_dim)):
            if start == stop:
                continue
            size = min(GROUP_DIMS, stop - start)
            vectors = min(self.weigh_vectors, size // lanes)
            with k.range(start, stop, step=size, name="group") as group:
                base = group * QUADS
                if self.piece is not None:
                    self._turn(values, group, size, count)
                    base = k.i64(0)
                with k.range(0, size, step=vectors * lanes, name="dims") as within:

                    def row_tile(
                        first_row: Value, n_rows: int, base: Value = base, within: Value = within,
                        size: int = size, vectors: int = vectors,
                    ) -> None:  # fmt: skip
                        lines = [probs.at((first_row + r) * self.prob_words) for r in range(n_rows)]
                        sums = self._weigh_sums(n_rows, vectors)
                        with k.range(0, (count + 3) // 4, name="quad") as n:
                            at = n * size + base
                            if self.piece is None:
                                ahead.prefetch(-(-vectors * lanes // LINE_WORDS))
                            self._weigh_quad(data.at(at + within), lines, n, sums)
                        for r, mine in enumerate(sums):
                            add = merge.row(first_row + r)
                            for v, halves in enumerate(mine):
                                total = self.dots.total([half.value for half in halves])
                                add(group + within + v * lanes, total.to(f32))

                    for_tiles(k, rows, self.weigh_rows, row_tile)

    def _turn(self, keys: Ptr, group: Value, size: int, count: Value) -> None:
        """Transpose `size` dims of a chunk's keys from `group` on into the layout of values."""
        k, lanes, piece = self.k, self.k.lanes, self.piece
        assert piece is not None, "values are apart"
        positions = key_vectors(k.target) * lanes
        block = block_words(positions)
        flip = 0x80808080 if zero_point(k.target) else 0
        with k.range(0, (count + (positions - 1)) // positions, name="turned") as tile:
            start = (tile * (self.head_dim // SCALE_DIMS) + group // SCALE_DIMS) * block
            for v in range(key_vectors(k.target)):
                rows = []
                for d in range(0, size, lanes):
                    quads = d % SCALE_DIMS // 4 * positions
                    at = d // SCALE_DIMS * block + positions // 2 + quads + v * lanes
                    rows.append(keys.at(start + at))
                first = tile * (positions // 4) + v * (lanes // 4)
                turn(k, rows, positions, 4, piece, first, size, flip)

    def _weigh_sums(self, rows: int, vectors: int) -> list[list[list[Var]]]:
        """Return zero sums for each row and vector of dims, one for each half of probabilities."""
        k, halves = self.k, self.dots.halves
        zero = k.zeros(i32, k.lanes)
        return [[[k.var(zero) for _ in range(halves)] for _ in range(vectors)] for _ in range(rows)]

    def _weigh_quad(
        self, data: Ptr, lines: list[Ptr], n: Value, sums: list[list[list[Var]]]
    ) -> None:
        """Add the products of four positions."""
        dots, lanes = self.dots, self.k.lanes
        values = [dots.cached(data.load(v * lanes, lanes)) for v in range(len(sums[0]))]
        for line, mine in zip(lines, sums, strict=True):
            ps = [self._splats(line.at(h * QUADS), n * dots.words) for h in range(dots.halves)]
            for value, halves in zip(values, mine, strict=True):
                for p, total in zip(ps, halves, strict=True):
                    total.set(dots.with_probability(total.value, value, p))


@dataclass(frozen=True, slots=True)
class ByteRow:
    """The writer of one row's probabilities: float32 first, then integers of a common unit."""

    k: Kernel
    line: Ptr
    out: Ptr
    scales: Callable[[Value], Value]
    largest: Var

    def put(self, block: Value, p: Value, inside: Value | None) -> None:
        """Store the probabilities of a vector of positions, 0 where not `inside` (None: all)."""
        at = block * p.lanes
        weighted = p * self.scales(at)
        if inside is not None:
            # What lies behind the last position may be anything, NaN too: it counts as zero.
            weighted = inside.select(weighted, 0.0)
        self.line.store(at, weighted)
        # As bits, NaN is larger than any number and shows in the unit.
        self.largest.set(self.largest.value.max(weighted.bitcast(i32)))

    def finish(self, blocks: Value) -> Value:
        """Convert the row to integers; return their unit, which scales products with them."""
        k, lanes = self.k, self.k.lanes
        largest = self.largest.value.hmax().bitcast(f32)
        inverse = (largest > TINY).select(float(MAX_Q) / largest, 0.0).splat(lanes)
        with k.range(0, blocks, name="bytes") as b:
            p = round_to_int(self.line.load(b * lanes, lanes) * inverse)
            if wide(k.target):
                self.out.store(b * (lanes // 2), quads(p.to(i16)))
            else:
                for half, part in enumerate((p >> HALF_BITS, p & 127)):
                    words = part.to(i8).bitcast(i32)
                    self.out.store(b * (lanes // 4) + half * QUADS, words)
        return largest * (1.0 / MAX_Q)
