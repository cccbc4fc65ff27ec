"""Sequences that begin with the same pages: read once, with the bits that each gets alone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.feature_sets import in_turn
from helpers.kv import NO_CENTERS, NO_SINKS, queries
from helpers.kv_q8 import AnyCache, Queries, cache_of
from helpers.runners import Native, Runner, Table
from helpers.tiers import quick

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.attention import attention, scratch_bytes
from triplepoint.jit.kernels.batch import WALKS
from triplepoint.jit.kernels.kvcache import PAGE, key_format
from triplepoint.jit.kernels.split_kv import attention_partial, attention_reduce, entries_of
from triplepoint.jit.targets import detect
from triplepoint.runtime.forward.shared_prefix import PrefixFinder
from triplepoint.runtime.forward.tile_table import TileTable

here = pytest.mark.parametrize("native", [detect().name], indirect=True)
# head size, KV heads, query heads of each, cache format, dims of values that lie in keys
SHAPES = [
    (64, 2, 2, "bf16", 0), (96, 3, 3, "f32", 0), (32, 2, 1, "q8", 0), (128, 1, 7, "q8", 0),
    (96, 1, 16, "bf16", 64), (96, 1, 5, "q8", 64), (96, 1, 5, "f32", 64),
    (64, 2, 7, "k16v8", 0),
]  # fmt: skip
QEMU_SHAPES = [(64, 1, 2, "bf16", 0), (32, 1, 1, "q8", 0)]
# A page of each sequence by its letter; the position of the first row in the pass, and rows.
SEQUENCES = (
    ("ABCp", 3 * PAGE + 7, 1), ("ABq", 2 * PAGE, 2), ("ABCr", 3 * PAGE + 200, 1), ("xy", 300, 1),
    ("As", PAGE + 250, 5), ("ABCt", 3 * PAGE, 3), ("xz", 2 * PAGE - 1, 1),
)  # fmt: skip
MOST = 4  # pages of a table


@dataclass
class _Pages:
    """What the finder sees of a KV cache."""

    pages: Any


class Tree:
    """Sequences whose pages are the same as far as their letters are."""

    def __init__(self, runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
        self.dim, self.kv_heads, self.group, self.kv, self.value_dim = shape
        self.runner, self.heads = runner, self.kv_heads * self.group
        self.out_dim = self.value_dim or self.dim
        self.letters = sorted({letter for pages, _, _ in SEQUENCES for letter in pages})
        self.cache = self._cache(len(self.letters))
        size = (len(self.letters) * PAGE, self.kv_heads, self.dim)
        self.cache.write(*(rng.standard_normal(size).astype(np.float32) for _ in range(2)))
        self.page = dict(zip(self.letters, self.cache.pages, strict=True))
        self.junk = self._cache(1).pages[0]
        self.rows = sum(rows for _, _, rows in SEQUENCES)
        q = rng.standard_normal((self.rows, self.heads, self.dim))
        self.q = (q * 2 / np.sqrt(self.dim)).astype(np.float32)
        self.sinks = rng.standard_normal(self.heads).astype(np.float32)
        self.sizes = {"head_dim": self.dim, "kv_heads": self.kv_heads, "group": self.group}
        if self.value_dim:
            self.sizes["value_dim"] = self.value_dim

    def _cache(self, pages: int) -> AnyCache:
        return cache_of(self.runner.target, self.kv, self.kv_heads, self.dim, pages)

    def _table(self, join: bool) -> TileTable:
        number = {letter: n + 1 for n, letter in enumerate(self.letters)}
        key = [(n, start // PAGE, rows) for n, (_, start, rows) in enumerate(SEQUENCES)]
        pages: Any = [
            _Pages(np.array([number[letter] for letter in one])) for one, _, _ in SEQUENCES
        ]
        table = TileTable(self.rows, self.group, 1)
        spans = [(start, rows, MOST * n) for n, (_, start, rows) in enumerate(SEQUENCES)]
        self.units = table.describe(spans, PrefixFinder().find(key, pages) if join else None)
        assert join == table.tiles[: self.units, WALKS].any()
        return table

    def _tables(self, table: TileTable, once: bool) -> Table:
        """Page tables one behind the other; `once`: with junk where nothing should be read."""
        pages = [[self.page[letter] for letter in one] for one, _, _ in SEQUENCES]
        if once:
            entries = table.tiles[: table.entries]
            walks = entries[entries[:, WALKS] == 0]
            for n, own in enumerate(pages):
                mine = walks[walks[:, 3] == MOST * n]
                read = {c for walk in mine for c in range(walk[5], walk[6] or len(own))}
                for chunk in set(range(len(own))) - read:
                    own[chunk] = self.junk
        return Table([page for own in pages for page in own + [self.junk] * (MOST - len(own))])

    def _queries(self) -> np.ndarray:
        if self.kv == "q8":
            return Queries.of(self.q, self.runner.target).raw
        return queries(self.q, self.runner.target, key_format(self.kv))

    def _inputs(self, table: TileTable, once: bool) -> list[Any]:
        k_at, v_at = self.cache.offsets
        return [self._queries(), self._tables(table, once), k_at, k_at if self.value_dim else v_at]

    def _scratch(self) -> np.ndarray:
        return np.full(scratch_bytes(self.group, self.dim, self.value_dim), 0xFF, np.uint8)

    def attend(self, *, join: bool, once: bool = False, sink: bool = False, **rule: float) -> Any:
        """One pass of all: float32 [rows, heads, dim]."""
        table = self._table(join)
        out = np.full((self.rows, self.heads, self.out_dim), np.nan, np.float32)
        args = [*self._inputs(table, once), out, self.heads * self.out_dim, self._scratch(),
                table.tiles, table.rows, self.sinks if sink else NO_SINKS, NO_CENTERS]  # fmt: skip
        more = {"sink": True} if sink else {}
        kernel = spec(attention, **self.sizes, kv=self.kv, **rule, **more)
        self.runner.call(kernel, args, 0, self.units * self.kv_heads)
        return out

    def split(self, *, once: bool = False, sink: bool = False, window: int = 0) -> Any:
        """The same by parts of the caches."""
        table = self._table(True)
        size, entries = entries_of(table.tiles[: table.entries], self.heads, window)
        parts = np.full((size, self.out_dim), np.nan, np.float32)
        stats = np.full((size, 4), np.nan, np.float32)
        out = np.full((self.rows, self.heads, self.out_dim), np.nan, np.float32)
        args = [*self._inputs(table, once), parts, stats, self._scratch(), table.tiles, table.rows,
                entries, np.array([len(entries)]), NO_CENTERS]  # fmt: skip
        kernel = spec(attention_partial, **self.sizes, kv=self.kv, window=window)
        self.runner.call(kernel, args, 0, len(entries) * self.kv_heads)
        args = [parts, stats, out, self.heads * self.out_dim, self._scratch(), table.tiles,
                table.rows, self.sinks if sink else NO_SINKS]  # fmt: skip
        more = {"sink": True} if sink else {}
        kernel = spec(attention_reduce, **self.sizes, window=window, **more)
        self.runner.call(kernel, args, 0, self.rows * self.heads)
        return out


RULES = [{"window": 1}, {"window": 300}, {"window": 600}, {"cap": 5.0}, {"first": 3}]
CASES = [(shape, {}) for shape in SHAPES] + [(shape, rule) for shape in SHAPES for rule in RULES]
QUICK = [(shape, {}) for shape in SHAPES] + [(SHAPES[0], rule) for rule in RULES]
PARTS = list(itertools.product(SHAPES, (0, 1, 300, 600)))
OFTEN = [(SHAPES[1], 0), (SHAPES[2], 300), (SHAPES[4], 0)]


@here
@pytest.mark.parametrize("case", quick(CASES, ci=[*QUICK, *CASES[::4]]), ids=str)
def test_the_same_bits(native: Native, rng: np.random.Generator, case: tuple) -> None:
    """With every cache, windows that end before, in and behind what is shared, and caps."""
    shape, rule = case
    tree = Tree(native, rng, shape)

    assert np.array_equal(tree.attend(join=True, **rule), tree.attend(join=False, **rule))


@here
@pytest.mark.parametrize("case", quick(PARTS, ci=[*OFTEN, *PARTS[::3]]), ids=str)
def test_the_same_bits_from_parts(native: Native, rng: np.random.Generator, case: tuple) -> None:
    """Chunks that are shared out to threads are put together row by row, with sinks and without."""
    shape, window = case
    tree = Tree(native, rng, shape)
    for sink in (False, True):
        want = tree.attend(join=False, sink=sink, window=window)
        assert np.array_equal(tree.split(sink=sink, window=window), want)
        assert np.array_equal(tree.attend(join=True, sink=sink, window=window), want)


@here
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_shared_pages_are_read_by_one_table(
    native: Native, rng: np.random.Generator, shape: tuple
) -> None:
    """Of the others' tables only their own pages are followed: junk elsewhere changes nothing."""
    tree = Tree(native, rng, shape)
    want = tree.attend(join=False)

    assert np.array_equal(tree.attend(join=True, once=True), want)
    assert np.array_equal(tree.split(once=True), want)
    tree.page["A"] = tree.junk
    assert not np.array_equal(tree.attend(join=True), want), "what is read does matter"


@in_turn("runner", "shape", QEMU_SHAPES)
def test_on_every_feature_set(runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
    """The same on every feature set, in one go and from parts."""
    tree = Tree(runner, rng, shape)
    want = tree.attend(join=False)

    assert np.array_equal(tree.attend(join=True), want)
    assert np.array_equal(tree.split(), want)
