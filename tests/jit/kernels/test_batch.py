"""Passes of several sequences: each row is computed as if its sequence were alone."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kv import NO_CENTERS, NO_SINKS, Cache, descriptor, queries, read_queries
from helpers.kv_q8 import ByteCache, Queries
from helpers.runners import Native, Table

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.attention import attention, scratch_bytes, token_tile
from triplepoint.jit.kernels.batch import (
    COUNT,
    FIRST,
    ROW_POSITION,
    ROW_TABLE,
    ROW_TILE,
    START,
    TABLE,
    TILE_SLOTS,
    describe_runs,
)
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.jit.kernels.split_kv import attention_partial, attention_reduce, entries_of
from triplepoint.jit.targets import detect

here = pytest.mark.parametrize("native", [detect().name], indirect=True)
SHAPES = [(64, 1, 4, "bf16"), (96, 3, 3, "f32"), (32, 2, 1, "q8")]
# Of each sequence: position of its first row in the pass, rows; a prompt's chunk, decodes, a draft.
SPANS = ((3, 40), (PAGE + 7, 1), (PAGE - 2, 5), (0, 1), (2 * PAGE + 250, 9))
PAGES = 4


def test_descriptor() -> None:
    """Positions, tables and tiles of rows; no tile holds rows of two sequences."""
    rows, tiles = descriptor((7, 5, 30), (0, 1, 10), (2, 4, 0), tile=4)

    assert rows[:, ROW_POSITION].tolist() == [7, 8, 9, 10, 11, 0, 2, 3, 4, 5]
    assert rows[:, ROW_TABLE].tolist() == [30] * 5 + [10] + [0] * 4
    assert rows[:, ROW_TILE].tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 3]
    assert tiles[:, FIRST].tolist() == [0, 4, 5, 6]
    assert tiles[:, COUNT].tolist() == [4, 1, 1, 4]
    assert tiles[:, START].tolist() == [7, 11, 0, 2]
    assert tiles[:, TABLE].tolist() == [30, 30, 10, 0]


def test_runs() -> None:
    """All rows of a sequence are one run, however many they are."""
    runs = np.zeros((5, TILE_SLOTS), np.int64)

    assert describe_runs(runs, [(7, 5, 30), (0, 1, 10), (2, 300, 0)]) == 3
    assert runs[:, FIRST].tolist() == [0, 5, 6, 0, 0]
    assert runs[:, COUNT].tolist() == [5, 1, 300, 0, 0]
    assert runs[:, START].tolist() == [7, 0, 2, 0, 0]
    assert runs[:, TABLE].tolist() == [30, 10, 0, 0, 0]


class Sequences:
    """Queries, keys and values of some sequences with a cache each, as passes over them see it."""

    def __init__(self, native: Native, rng: np.random.Generator, shape: tuple) -> None:
        self.dim, self.kv_heads, self.group, self.kv = shape
        self.heads, self.native = self.kv_heads * self.group, native
        self.caches = []
        for _ in SPANS:
            size = (PAGES * PAGE, self.kv_heads, self.dim)
            cache = (
                ByteCache(native.target, self.kv_heads, self.dim, PAGES)
                if self.kv == "q8"
                else Cache(native.target, self.kv, self.kv_heads, self.dim, PAGES)
            )
            cache.write(*(rng.standard_normal(size).astype(np.float32) for _ in range(2)))
            self.caches.append(cache)
        self.rows = sum(count for _, count in SPANS)
        self.q = rng.standard_normal((self.rows, self.heads, self.dim)).astype(np.float32)
        shape = (2, self.rows, self.kv_heads, self.dim)
        self.k, self.v = rng.standard_normal(shape).astype(np.float32)
        self.sizes = {"head_dim": self.dim, "kv_heads": self.kv_heads, "group": self.group}

    def part(self, number: int) -> slice:
        """The rows of one sequence."""
        first = sum(count for _, count in SPANS[:number])
        return slice(first, first + SPANS[number][1])

    def _spans(self, which: list[int]) -> list[tuple[int, int, int]]:
        return [(*SPANS[n], PAGES * at) for at, n in enumerate(which)]

    def _pages(self, which: list[int]) -> Table:
        return Table([page for n in which for page in self.caches[n].pages])

    def _take(self, x: np.ndarray, which: list[int]) -> np.ndarray:
        return np.ascontiguousarray(np.concatenate([x[self.part(n)] for n in which]))

    def _queries(self, which: list[int]) -> np.ndarray:
        q = self._take(self.q, which)
        if self.kv == "q8":
            return Queries.of(q, self.native.target).raw
        return queries(q, self.native.target, self.kv)

    def _scratch(self) -> np.ndarray:
        return np.full(scratch_bytes(self.group, self.dim), 0xFF, np.uint8)

    def attend(self, which: list[int], **rule: float) -> np.ndarray:
        """One pass of those sequences: float32 [rows, heads, dim]."""
        rows, tiles = descriptor(*self._spans(which), tile=token_tile(self.group))
        q = self._queries(which)
        out = np.full((tiles[:, COUNT].sum(), self.heads, self.dim), np.nan, np.float32)
        args = [q, self._pages(which), *self.caches[0].offsets, out, self.heads * self.dim,
                self._scratch(), tiles, rows, NO_SINKS, NO_CENTERS]  # fmt: skip
        kernel = spec(attention, **self.sizes, kv=self.kv, **rule)
        self.native.call(kernel, args, 0, len(tiles) * self.kv_heads)
        return out

    def attend_split(self, which: list[int], window: int = 0) -> np.ndarray:
        """The same by parts of the caches."""
        rows, tiles = descriptor(*self._spans(which), tile=token_tile(self.group))
        size, entries = entries_of(tiles, self.heads, window)
        parts = np.full((size, self.dim), np.nan, np.float32)
        stats = np.full((size, 4), np.nan, np.float32)
        out = np.full((len(rows), self.heads, self.dim), np.nan, np.float32)
        args = [self._queries(which), self._pages(which), *self.caches[0].offsets, parts, stats,
                self._scratch(), tiles, rows, entries,
                np.array([len(entries)]), NO_CENTERS]  # fmt: skip
        kernel = spec(attention_partial, **self.sizes, kv=self.kv, window=window)
        self.native.call(kernel, args, 0, len(entries) * self.kv_heads)
        args = [parts, stats, out, self.heads * self.dim, self._scratch(), tiles, rows, NO_SINKS]
        kernel = spec(attention_reduce, **self.sizes, window=window)
        self.native.call(kernel, args, 0, len(rows) * self.heads)
        return out

    def rotate(self, which: list[int]) -> np.ndarray:
        """Rotate and store the rows of those sequences; the queries."""
        rows, _ = descriptor(*self._spans(which), tile=token_tile(self.group))
        q, k, v = (self._take(x, which) for x in (self.q, self.k, self.v))
        cos, sin = rope.tables(PAGES * PAGE, self.dim, 1e4)
        raw = np.zeros(q.size * 4, np.uint8)
        one = np.ones(self.dim, np.float32)
        args = [q, k, v, one, one, one, cos, sin, one, raw, self._pages(which),
                *self.caches[0].offsets, self.heads * self.dim, self.kv_heads * self.dim, 1e-6,
                0.125, np.array([len(rows)]), rows]  # fmt: skip
        kernel = spec(rope.rope_store, **self.sizes, norm=True, kv=self.kv)
        self.native.call(kernel, args, 0, -(-len(rows) // rope.TOKENS) * self.kv_heads)
        if self.kv == "q8":
            return Queries(raw, q.shape, self.native.target).values
        return read_queries(raw, q.shape, self.native.target, self.kv)


@here
@pytest.mark.parametrize("rule", [{}, {"window": 300}, {"cap": 5.0}], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_in_company(
    native: Native, rng: np.random.Generator, shape: tuple, rule: dict[str, float]
) -> None:
    """Rows of five sequences in one pass get the bits that each sequence gets alone."""
    all_ = Sequences(native, rng, shape)
    together = all_.attend([0, 1, 2, 3, 4], **rule)
    for n in range(len(SPANS)):
        assert np.array_equal(together[all_.part(n)], all_.attend([n], **rule)), n


@here
@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_split_attention_in_company(
    native: Native, rng: np.random.Generator, shape: tuple, window: int
) -> None:
    """The parts of caches of very different lengths come together as in one go."""
    all_ = Sequences(native, rng, shape)
    everyone = list(range(len(SPANS)))
    whole = all_.attend(everyone, **({"window": window} if window else {}))

    assert np.array_equal(all_.attend_split(everyone, window), whole)


@here
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cache_writes_in_company(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Queries, and the bytes of every page, are those of passes of one sequence each."""
    seed = int(rng.integers(1 << 30))
    alone = Sequences(native, np.random.default_rng(seed), shape)
    company = Sequences(native, np.random.default_rng(seed), shape)
    together = company.rotate([4, 2, 0, 1, 3])
    at = 0
    for n in (4, 2, 0, 1, 3):
        want = alone.rotate([n])
        assert np.array_equal(together[at : at + len(want)], want), n
        at += len(want)
        for mine, theirs in zip(company.caches[n].pages, alone.caches[n].pages, strict=True):
            assert np.array_equal(mine, theirs), n


def test_the_test_can_fail(native: Native, rng: np.random.Generator) -> None:
    """A row that is given its neighbor's page table gets another result."""
    all_ = Sequences(native, rng, SHAPES[0])
    right = all_.attend([1])
    all_.caches[1] = all_.caches[4]

    assert not np.array_equal(all_.attend([1]), right)
