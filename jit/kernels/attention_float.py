"""Attention's two products over bf16 and float32 caches: bf16 pairs where the CPU multiplies them.

Queries and probabilities are bf16 pairs on those targets, float32 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..dot import bf16_dot, bf16_pairs_of, pair_high, pair_low
from ..simd import Kernel, Ptr, Value, Var, f32
from .gemm import for_tiles
from .key_values import turn
from .kvcache import PAGE, KVFormat
from .rope import bf16_pairs

LINE_WORDS = 16


class Merge(Protocol):
    """Where the products with the values go; see `attention.py`."""

    def row(self, row: Value) -> Callable[[Value | int, Value], None]: ...


class FloatProducts:
    """The two products of attention for one head size."""

    def __init__(
        self,
        k: Kernel,
        head_dim: int,
        value_dim: int,
        kv: KVFormat,
        piece: Ptr | None = None,
    ) -> None:
        """piece: scratch for values that are the first dims of keys; see `key_values.py`."""
        self.k = k
        self.piece = piece
        self.value_dim = value_dim
        self.kv = kv
        self.pairs = bf16_pairs(k, kv)
        self.step = 2 if kv == "bf16" else 1  # positions that share one int32 of V, dims one of K
        self.key_words = head_dim // self.step
        # q is bf16 pairs where the target multiplies those, else float32.
        self.query_words = head_dim // 2 if self.pairs else head_dim
        self.prob_words = PAGE // 2 if self.pairs else PAGE
        # rows x vectors of sums: as many as leave room for the loads and one broadcast.
        # With so many of those rows there is arithmetic enough to read ahead meanwhile.
        many = k.target.registers >= 32
        self.rows_most, self.vectors_most, self.rows_asking = (6, 4, 5) if many else (3, 3, 3)

    def qk(
        self,
        query: Callable[[Value], Ptr],
        keys: Ptr,
        scores: Ptr,
        rows: Value,
        count: Value,
        after: Ptr,
    ) -> None:
        """scores[row, p] = q[row] . k[p] for the `count` first positions of the chunk.

        query: where a row's lies. `after` is what will be read next.
        """
        k, lanes = self.k, self.k.lanes
        blocks = (count + (lanes - 1)) // lanes
        ahead = _Ahead(after, PAGE * self.key_words, k.var(k.i64(0)))

        def block_tile(first_block: Value, vectors: int) -> None:
            at = [keys.at((first_block + n) * (lanes * self.key_words)) for n in range(vectors)]

            def row_tile(first_row: Value, n_rows: int) -> None:
                lines = [query(first_row + r) for r in range(n_rows)]
                sums = self._sums(n_rows, vectors)
                with k.range(0, self.key_words, name="dim") as d:
                    if n_rows >= self.rows_asking:
                        ahead.ask()
                    loaded = [p.load(d * lanes, lanes) for p in at]
                    for line, totals in zip(lines, sums, strict=True):
                        self._step(line, d, loaded, totals)
                for r, totals in enumerate(sums):
                    for n, total in enumerate(totals):
                        where = (first_row + r) * PAGE + (first_block + n) * lanes
                        scores.store(where, total.value)

            for_tiles(k, rows, self.rows_most, row_tile)

        for_tiles(k, blocks, self.vectors_most, block_tile)

    def probabilities(self, scores: Ptr, out: Ptr, values: Ptr) -> FloatRow:
        """Takes one row's probabilities, in the form that `pv` multiplies."""
        return FloatRow(self.k, out, self.pairs)

    def pv(
        self, probs: Ptr, values: Ptr, rows: Value, count: Value, merge: Merge, after: Ptr
    ) -> None:
        """Probabilities [rows, count] . values [count, dims], to be merged into the sums.

        `after` is what will be read next.
        """
        k, lanes = self.k, self.k.lanes
        steps = (count + (self.step - 1)) // self.step
        vectors_all = self.value_dim // lanes
        ahead = _Ahead(after, PAGE * self.key_words, k.var(k.i64(0)))
        for first in range(0, vectors_all, self.vectors_most):
            dims = range(first, min(first + self.vectors_most, vectors_all))
            base, width = values.at(first * lanes), self.value_dim
            if self.piece is not None:
                base, width = self.piece, len(dims) * lanes
                self._turn(values, dims, count)

            def row_tile(
                first_row: Value,
                n_rows: int,
                dims: Sequence[int] = dims,
                base: Ptr = base,
                width: int = width,
            ) -> None:
                lines = [probs.at((first_row + r) * self.prob_words) for r in range(n_rows)]
                totals = self._sums(n_rows, len(dims))
                with k.range(0, steps, name="position") as s:
                    if n_rows >= self.rows_asking:
                        ahead.ask()
                    loaded = [base.load(s * width + n * lanes, lanes) for n in range(len(dims))]
                    for line, mine in zip(lines, totals, strict=True):
                        self._step(line, s, loaded, mine)
                for r, mine in enumerate(totals):
                    add = merge.row(first_row + r)
                    for d, total in zip(dims, mine, strict=True):
                        add(d * lanes, total.value)

            for_tiles(k, rows, self.rows_most, row_tile)

    def _turn(self, keys: Ptr, dims: Sequence[int], count: Value) -> None:
        """These vectors of dims of a chunk's keys, as values lie."""
        k, lanes, piece = self.k, self.k.lanes, self.piece
        assert piece is not None, "values are apart"
        each = lanes // self.step  # words of dims in a vector of them
        with k.range(0, (count + (lanes - 1)) // lanes, name="turned") as block:
            rows = [keys.at((block * self.key_words + d * each) * lanes) for d in dims]
            turn(k, rows, lanes, self.step, piece, block * each, len(dims) * lanes)

    def _sums(self, rows: int, vectors: int) -> list[list[Var]]:
        zero = self.k.zeros(f32, self.k.lanes)
        return [[self.k.var(zero) for _ in range(vectors)] for _ in range(rows)]

    def _step(self, line: Ptr, at: Value, loaded: list[Value], totals: list[Var]) -> None:
        """One word of the shared dimension: one value, or a pair of bf16."""
        k, lanes = self.k, self.k.lanes
        if self.pairs:
            x = line.splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(bf16_dot(k, total.value, v, x))
        elif self.kv == "bf16":
            x0, x1 = (line.cast(f32).splat(at * 2 + n, lanes) for n in range(2))
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(pair_high(v), x1, k.fma(pair_low(v), x0, total.value)))
        else:
            x = line.cast(f32).splat(at, lanes)
            for v, total in zip(loaded, totals, strict=True):
                total.set(k.fma(v.bitcast(f32), x, total.value))


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Asks for what will be read next, `words` int32 of it, a line at a time.

    A chunk's keys and values do not fit into L1; without questions its first tile of rows waited
    for L3 (a Zen 5, 252 tokens behind 4,096: both products took 1.3 times as long).
    """

    part: Ptr
    words: int
    at: Var

    def ask(self) -> None:
        at = self.at.value
        self.part.prefetch(at, locality=2)
        self.at.set((at + LINE_WORDS).min(self.words - LINE_WORDS))


@dataclass(frozen=True, slots=True)
class FloatRow:
    """One row's probabilities on their way to memory."""

    k: Kernel
    out: Ptr
    pairs: bool

    def put(self, block: Value, p: Value, inside: Value | None) -> None:
        """Probabilities of one vector of positions: 0, or what `exp` makes, which is normal."""
        lanes = p.lanes
        if self.pairs:
            self.out.store(block * (lanes // 2), bf16_pairs_of(self.k, p))
        else:
            self.out.cast(f32).store(block * lanes, p)

    def finish(self, blocks: Value) -> Value:
        """What products with this row count."""
        return self.k.f32(1)
