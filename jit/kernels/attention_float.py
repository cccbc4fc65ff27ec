"""Attention's two products over bf16 and float32 caches: bf16 pairs where the CPU multiplies them.

Queries and probabilities are bf16 pairs on those targets, float32 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from ..dot import bf16_dot, bf16_pairs_of, pair_high, pair_low
from ..simd import Kernel, Ptr, Value, Var, f32
from .key_values import PIECE_DIMS, turn
from .kvcache import PAGE, Stored
from .rope import bf16_pairs, query_words
from .tiles import for_tiles

LINE_WORDS = 16


class Merge(Protocol):
    """The receiver of the products with the values: see `ChunkSink` in `attention.py`."""

    def row(self, row: Value) -> Callable[[Value | int, Value], None]: ...


RowAt = Callable[[Value], Ptr]
"""Returns the address of a query row, given its number."""


class Following(NamedTuple):
    """The keys or values to read next: the first `words` int32 of `part`."""

    part: Ptr
    words: Value


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Register tiles whose sums leave room for the loads and one broadcast.

    lines: of a step's loads. min_rows: of any tile, for the code that is emitted.
    """

    rows: int
    vectors: int
    lines: int
    min_rows: int = 1

    def ahead(self, k: Kernel, after: Following, rows: Value) -> Ahead:
        """Return what prefetches `after` in the steps of all tiles of `rows` rows."""
        return Ahead.of(k, after, (rows + (self.rows - 1)) // self.rows if self.rows > 2 else None)


def _tilings(k: Kernel) -> tuple[_Tiling, ...]:
    """Return one tiling, or one for few rows, which are memory-bound, and one for more.

    With 16 registers 4 rows of 2 vectors are faster than 3 of 3: 1.03 times for prefill behind
    4,096, 1.0 to 1.4 times for 3 to 8 rows.
    """

    def lines(vectors: int) -> int:
        return -(-vectors * k.lanes // LINE_WORDS)

    if k.target.registers < 32:
        return (_Tiling(4, 2, lines(2)),)
    return _Tiling(2, 8, lines(8)), _Tiling(6, 4, lines(4), min_rows=3)


def turn_values(
    k: Kernel,
    keys: Ptr,
    key_words: int,
    first: Value,
    vectors: int,
    count: Value,
    piece: Ptr,
    step: int = 2,
) -> None:
    """Transpose vectors of dims of a chunk's keys into `piece`, laid out as values are."""
    lanes = k.lanes
    each = lanes // step  # words of dims in a vector of them
    with k.range(0, (count + (lanes - 1)) // lanes, name="turned") as block:
        start = keys.at((block * key_words + first * each) * lanes)
        rows = [start.at(n * each * lanes) for n in range(vectors)]
        turn(k, rows, lanes, step, piece, block * each, vectors * lanes)


class _Products:
    """What products with bf16 or float32 numbers of the cache have in common."""

    def __init__(self, k: Kernel, head_dim: int, stored: Stored) -> None:
        self.k = k
        self.stored: Stored = stored
        self.pairs = bf16_pairs(k.target, stored, head_dim)
        self.step = 2 if stored == "bf16" else 1  # positions that share one int32 of V, dims of K
        self.key_words = head_dim // self.step
        self.tilings = _tilings(k)

    def _tiled(self, rows: Value) -> Iterator[_Tiling]:
        """Emit the code inside for each of the tilings."""
        few, more = self.tilings[0], self.tilings[-1]
        if few is more:
            yield few
            return
        with self.k.if_(rows <= few.rows):
            yield few
        with self.k.if_(rows > few.rows):
            yield more

    def _sums(self, rows: int, vectors: int) -> list[list[Var]]:
        zero = self.k.zeros(f32, self.k.lanes)
        return [[self.k.var(zero) for _ in range(vectors)] for _ in range(rows)]

    def _step(self, line: Ptr, at: Value, loaded: list[Value], totals: list[Var]) -> None:
        """Add one word of the shared dimension: one value, or a pair of bf16."""
        k, lanes = self.k, self.k.lanes
        if self.pairs:
            x = line.splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(bf16_dot(k, total.value, v, x))
        elif self.stored == "bf16":
            x0, x1 = (line.cast(f32).splat(at * 2 + n, lanes) for n in range(2))
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(pair_high(v), x1, k.fma(pair_low(v), x0, total.value)))
        else:
            x = line.cast(f32).splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(v.bitcast(f32), x, total.value))


class FloatKeys(_Products):
    """Attention's products q k for one head size, over bf16 or float32 keys."""

    def __init__(self, k: Kernel, head_dim: int, stored: Stored) -> None:
        super().__init__(k, head_dim, stored)
        self.query_words = query_words(k.target, stored, head_dim)

    def qk(
        self, query: RowAt, keys: Ptr, scores: Ptr, rows: Value, count: Value, after: Following
    ) -> None:
        """Compute scores[row, p] = q[row] . k[p] for the `count` first positions of the chunk.

        `after`: what to prefetch.
        """
        k, lanes = self.k, self.k.lanes
        blocks = (count + (lanes - 1)) // lanes

        def block_tile(first_block: Value, vectors: int, tiling: _Tiling, ahead: Ahead) -> None:
            at = [keys.at((first_block + n) * (lanes * self.key_words)) for n in range(vectors)]

            def row_tile(first_row: Value, n_rows: int) -> None:
                lines = [query(first_row + r) for r in range(n_rows)]
                sums = self._sums(n_rows, vectors)
                with k.range(0, self.key_words, name="dim") as d:
                    ahead.prefetch(tiling.lines)
                    loaded = [p.load(d * lanes, lanes) for p in at]
                    for line, totals in zip(lines, sums, strict=True):
                        self._step(line, d, loaded, totals)
                for r, totals in enumerate(sums):
                    for n, total in enumerate(totals):
                        where = (first_row + r) * PAGE + (first_block + n) * lanes
                        scores.store(where, total.value)

            for_tiles(k, rows, tiling.rows, row_tile, tiling.min_rows)

        for tiling in self._tiled(rows):
            ahead = tiling.ahead(k, after, rows)
            for_tiles(k, blocks, tiling.vectors, partial(block_tile, tiling=tiling, ahead=ahead))


class FloatValues(_Products):
    """Attention's products p v for one head size, over bf16 or float32 values."""

    def __init__(
        self, k: Kernel, head_dim: int, value_dim: int, stored: Stored, piece: Ptr | None = None
    ) -> None:
        """Set up products; piece: scratch for values that are dims of keys (`key_values.py`)."""
        super().__init__(k, head_dim, stored)
        self.value_dim, self.piece = value_dim, piece
        self.prob_words = PAGE // 2 if self.pairs else PAGE

    def probabilities(self, scores: Ptr, out: Ptr, values: Ptr) -> FloatRow:
        """Return the writer of one row's probabilities, in the form that `pv` multiplies."""
        return FloatRow(self.k, out, self.pairs)

    def pv(
        self, probs: Ptr, values: Ptr, rows: Value, count: Value, merge: Merge, after: Following
    ) -> None:
        """Compute probabilities [rows, count] . values [count, dims], merged into the sums.

        `after`: what to prefetch.
        """
        k, lanes = self.k, self.k.lanes
        steps = count // self.step
        vectors_all = self.value_dim // lanes

        def dims_tile(first: Value, vectors: int, tiling: _Tiling, ahead: Ahead) -> None:
            base, width = values.at(first * lanes), self.value_dim
            if self.piece is not None:
                base, width = self.piece, vectors * lanes
                turn_values(k, values, self.key_words, first, vectors, count, self.piece, self.step)

            def row_tile(first_row: Value, n_rows: int) -> None:
                lines = [probs.at((first_row + r) * self.prob_words) for r in range(n_rows)]
                totals = self._sums(n_rows, vectors)
                with k.range(0, steps, name="position") as s:
                    ahead.prefetch(tiling.lines)
                    loaded = [base.load(s * width + n * lanes, lanes) for n in range(vectors)]
                    for line, mine in zip(lines, totals, strict=True):
                        self._step(line, s, loaded, mine)
                if self.step > 1:  # the other half of the last pair may hold NaN
                    with k.if_((count % self.step) > 0):
                        last = [base.load(steps * width + n * lanes, lanes) for n in range(vectors)]
                        for line, mine in zip(lines, totals, strict=True):
                            self._step(line, steps, [v & 0xFFFF for v in last], mine)
                for r, mine in enumerate(totals):
                    add = merge.row(first_row + r)
                    for n, total in enumerate(mine):
                        add((first + n) * lanes, total.value)

            for_tiles(k, rows, tiling.rows, row_tile, tiling.min_rows)

        for tiling in self._tiled(rows):
            ahead = tiling.ahead(k, after, rows)
            max_vectors = min(tiling.vectors, vectors_all)
            if self.piece is not None:
                max_vectors = min(max_vectors, PIECE_DIMS // lanes)
            whole = vectors_all // max_vectors * max_vectors
            with k.range(0, whole, step=max_vectors, name="dims") as first:
                dims_tile(first, max_vectors, tiling, ahead)
            if whole < vectors_all:
                dims_tile(k.i64(whole), vectors_all - whole, tiling, ahead)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A prefetcher of the next keys or values: `words` int32 of them, a cache line at a time.

    A chunk's keys and values do not fit into L1; without prefetches its first tile of rows waited
    for L3 (a Zen 5, 252 tokens behind 4,096: both products took 1.3 times as long). On a Zen 4 a
    token of two rows behind 4,096 takes 0.56 of the time that it took without (AVX2; 0.87 with
    AVX-512), and reads at 0.85 (0.95) of what DRAM gives.

    Tiles of rows read the same keys and values, and share what comes next: a token of 7 or 8 rows
    a head behind 1,024 and 4,096 takes 0.76 to 0.89 of the time that it takes if the first tile
    asks for all (two threads of an Ice Lake; q8 0.88 to 0.90).
    """

    part: Ptr
    words: Value
    at: Var
    tiles: Value | None
    """Tiles of rows that share it; None: one."""

    @classmethod
    def of(cls, k: Kernel, after: Following, tiles: Value | None = None) -> Ahead:
        return cls(after.part, after.words, k.var(k.i64(0)), tiles)

    def prefetch(self, lines: int) -> None:
        """Prefetch for a step that reads so many lines of its own part, or a tile's share."""
        at, part, half, quarter = self.at.value, self.part, -(-lines // 2), -(-lines // 4)
        share: Value | int = lines
        if self.tiles is not None and lines > 1:
            several = self.tiles.eq(2).select(part.k.i64(half), quarter)
            share = (self.tiles < 2).select(part.k.i64(lines), several)
        with ExitStack() as inside:
            inside.enter_context(part.k.if_(at < self.words))
            for n in range(lines):
                if not isinstance(share, int) and n in (quarter, half):
                    inside.enter_context(part.k.if_(share > n))
                part.prefetch(at + n * LINE_WORDS, locality=2)
        self.at.set(at + share * LINE_WORDS)


@dataclass(frozen=True, slots=True)
class FloatRow:
    """The writer of one row's probabilities, as bf16 pairs or float32."""

    k: Kernel
    out: Ptr
    pairs: bool

    def put(self, block: Value, p: Value, inside: Value | None) -> None:
        """Store the probabilities of one vector of positions: 0, or a normal result of `exp`."""
        lanes = p.lanes
        if self.pairs:
            self.out.store(block * (lanes // 2), bf16_pairs_of(self.k, p))
        else:
            self.out.cast(f32).store(block * lanes, p)

    def finish(self, blocks: Value) -> Value:
        """Return the scale of products with this row: 1."""
        return self.k.f32(1)
