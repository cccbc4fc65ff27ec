"""Which rows of a pass read the pages that their sequences share together."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from helpers.kv import descriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.jit.kernels.attention import joined_tile, token_tile
from triplepoint.jit.kernels.batch import (
    COUNT,
    FIRST,
    FROM,
    ROW_INDEX,
    ROW_POSITION,
    ROW_TILE,
    START,
    TABLE,
    UNTIL,
    WALKS,
)
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.forward.shared_prefix import PrefixFinder, SharedPrefix, Together
from triplepoint.runtime.forward.tile_table import TileTable

_VERSIONS = count()
GROUP = 4  # tiles of 8 rows, of 16 where sequences join


@dataclass
class Cache:
    """What the finder sees of a KV cache; pages are numbers here, 0 where there are none."""

    pages: Any
    version: int = field(default_factory=lambda: next(_VERSIONS))


def cache(*pages: int) -> Any:
    return Cache(np.array([*pages, 0, 0], np.int64))


def find(*parts: tuple[Any, int, int], finder: PrefixFinder | None = None) -> SharedPrefix | None:
    key = [(cache.version, start // PAGE, rows) for cache, start, rows in parts]
    return (finder or PrefixFinder()).find(key, [cache for cache, _, _ in parts])


def found(*parts: tuple[Any, int, int]) -> SharedPrefix:
    shared = find(*parts)
    assert shared is not None
    return shared


def test_whole_pages_that_several_have() -> None:
    """Only pages that are full before the first row, and the same memory, count."""
    a, b, c = cache(1, 2, 3, 4), cache(1, 2, 3, 5), cache(9, 2, 3)
    shared = found((a, 3 * PAGE + 7, 1), (c, 600, 1), (b, 2 * PAGE + 255, 1))

    (tile,) = shared.tiles(16)
    assert sorted(tile.spans) == [0, 2]
    assert tile.walks == [(0, 2, 0, 2), (0, 1, 2, 0), (1, 2, 2, 0)]
    assert shared.reading(16).spans == [
        Together(2 * PAGE, 2.0),
        Together(),
        Together(2 * PAGE, 2.0),
    ]
    assert shared.readers(16) == 2
    assert find((a, PAGE - 1, 1), (b, 700, 1)) is None, "the first page is not full"
    assert find((a, 700, 1), (c, 700, 1)) is None
    assert find((a, 700, 1)) is None


def test_a_tree_is_walked_from_its_root() -> None:
    """What all share comes first, then what some do; readers are averages over the pages."""
    caches = [cache(1, 2, 30), cache(1, 2, 3, 40), cache(1, 2, 3, 41), cache(1, 50)]
    starts = (600, 3 * PAGE, 3 * PAGE + 9, 400)
    shared = found(*((c, start, 1) for c, start in zip(caches, starts, strict=True)))

    (tile,) = shared.tiles(16)
    read = [(end - first, start, stop) for first, end, start, stop in tile.walks]
    assert read == [(4, 0, 1), (1, 1, 0), (3, 1, 2), (1, 2, 0), (2, 2, 3), (1, 3, 0), (1, 3, 0)]
    together, (ones, average) = shared.reading(16)
    assert [one.positions // PAGE for one in together] == [2, 3, 3, 1]
    assert together[3].readers == 4
    assert together[1].readers == pytest.approx(3 / (1 / 4 + 1 / 3 + 1 / 2))
    once = sum(one.positions / one.readers for one in together)
    assert once == pytest.approx(3 * PAGE), "so many positions are read, all in all"
    assert (ones, average) == (4, (9 * PAGE // 4, pytest.approx(3)))


def test_tiles_have_room_for_so_many() -> None:
    """Who does not fit begins another tile; a span that fills half of one stays by itself."""
    same = [(cache(1, 2), 600, n) for n in (1, 9, 3, 1, 8, 7, 6)]
    shared = found(*same)

    tiles = shared.tiles(16)
    assert [[same[span][2] for span in tile.spans] for tile in tiles] == [[1, 3, 1, 8], [7, 6]]
    assert shared.readers(16) == 3
    assert [len(tile.spans) for tile in found(*((cache(1), 300, 1),) * 8).tiles(16, 4)] == [2] * 4


def test_the_same_is_looked_for_once() -> None:
    """As long as the rows are on the same pages; then anew."""
    finder, a, b = PrefixFinder(), cache(1, 2), cache(1, 3)
    first = find((a, 300, 1), (b, 400, 1), finder=finder)
    assert first is not None
    assert find((a, 301, 1), (b, 401, 1), finder=finder) is first
    for other in ([(a, 301, 2), (b, 401, 1)], [(a, 513, 1), (b, 401, 1)]):
        assert find(*other, finder=finder) is not first
    again = find((a, 300, 1), (b, 400, 1), finder=finder)
    b.version = next(_VERSIONS)
    b.pages[0] = 7
    assert again is not None
    assert find((a, 300, 1), (b, 400, 1), finder=finder) is None


def _table(shared: SharedPrefix | None, *spans: tuple[int, int, int]) -> TileTable:
    table = TileTable(sum(rows for _, rows, _ in spans), GROUP, 1)
    table.describe(spans, shared)
    return table


def test_a_joined_tile_as_kernels_read_it() -> None:
    """Rows of sequences that are not neighbors, between a prompt and one that shares nothing."""
    caches = [cache(1, 2), cache(8, 9), cache(1, 2), cache(1, 2)]
    starts, counts = (600, 520, 560, 2 * PAGE), (2, 1, 20, 1)
    shared = found(*zip(caches, starts, counts, strict=True))
    spans = [(s, n, 10 * at) for at, (s, n) in enumerate(zip(starts, counts, strict=True))]
    table = _table(shared, *spans)
    rows, tiles = table.rows, table.tiles

    assert rows[:24, ROW_POSITION].tolist() == [600, 601, 520, *range(560, 580), 512]
    assert rows[:24, ROW_TILE].tolist() == [4, 4, 0, *[1] * 8, *[2] * 8, *[3] * 4, 4]
    assert tiles[:4, [FIRST, COUNT, START, TABLE]].tolist() == [
        [2, 1, 520, 10], [3, 8, 560, 20], [11, 8, 568, 20], [19, 4, 576, 20]]  # fmt: skip
    assert not tiles[:4, [FROM, UNTIL, WALKS]].any()
    assert tiles[4, [FIRST, COUNT, FROM, WALKS]].tolist() == [24, 3, 5, 3]
    walks = tiles[5:8, [FIRST, COUNT, START, TABLE, FROM, UNTIL]].tolist()
    assert walks[0] == [24, 3, 512, walks[0][3], 0, 2]
    assert sorted(walks[1:], key=lambda walk: walk[3]) == [
        [24 if walks[1][3] == 0 else 25, 2, 600, 0, 2, 0],
        [26 if walks[1][3] == 0 else 24, 1, 512, 30, 2, 0]]  # fmt: skip
    places = rows[24:27, ROW_INDEX]
    assert sorted(places) == [0, 1, 23]
    assert rows[places, ROW_INDEX].tolist() == [24, 25, 26]
    assert table.entries == 8


def test_nothing_is_left_of_joined_tiles() -> None:
    """The pass after one with joined tiles is described as if it were the first."""
    caches = [cache(1, 2) for _ in range(3)]
    shared = found(*((c, 600, 1) for c in caches))
    spans = [(600, 1, 10 * n) for n in range(3)]
    table = _table(shared, *spans)
    assert table.tiles[0, WALKS] == 4
    assert table.describe(spans) == 3
    rows, tiles = descriptor(*spans, tile=token_tile(GROUP))

    assert np.array_equal(table.rows[:3], rows)
    assert np.array_equal(table.tiles[:3], tiles)


def _chunks(tiles: np.ndarray, tile: int, place: int) -> list[tuple[int, int]]:
    """Table and chunk of what a place of a tile meets, in their order."""
    entry = tiles[tile]
    walks = tiles[entry[FROM] :][: entry[WALKS]] if entry[WALKS] else [entry]
    met = []
    for walk in walks:
        if walk[FIRST] <= place < walk[FIRST] + walk[COUNT]:
            end = walk[UNTIL] or -(-(walk[START] + walk[COUNT]) // PAGE)
            met += [(int(walk[TABLE]), chunk) for chunk in range(walk[FROM], end)]
    return met


_tree = st.lists(st.integers(0, 2), min_size=0, max_size=4)
_sequence = st.tuples(_tree, st.integers(0, PAGE - 1), st.integers(1, 20))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(sequences=st.lists(_sequence, min_size=1, max_size=9), moves=st.integers(1, 5))
def test_every_row_meets_its_own_chunks(
    sequences: list[tuple[list[int], int, int]], moves: int
) -> None:
    """Each once, in their order, and from a table whose page is the row's own; also as rows go on.

    Rows are on the tiles and at the places that `rows` says, each place is one row's, and no tile
    has more rows than there is room for.
    """
    paths = [tuple(tree) for tree, _, _ in sequences]
    numbers: dict[tuple[int, ...], int] = {}
    tables = [
        [numbers.setdefault(path[: n + 1], len(numbers) + 1) for n in range(len(path))]
        + [1000 + own, 2000 + own]
        for own, path in enumerate(paths)
    ]
    caches = [Cache(np.array(table, np.int64)) for table in tables]
    starts = [
        len(path) * PAGE + within for path, (_, within, _) in zip(paths, sequences, strict=True)
    ]
    counts = [rows for _, _, rows in sequences]
    finder, table = PrefixFinder(), TileTable(sum(counts), GROUP, 1)
    for _ in range(moves):
        shared = find(*zip(caches, starts, counts, strict=True), finder=finder)
        spans = [(s, n, at) for at, (s, n) in enumerate(zip(starts, counts, strict=True))]
        units = table.describe(spans, shared)
        seen: list[int] = []
        at = 0
        for own, (start, rows) in enumerate(zip(starts, counts, strict=True)):
            for row in range(at, at + rows):
                assert table.rows[row, ROW_POSITION] == start + row - at
                tile, place = (int(table.rows[row, slot]) for slot in (ROW_TILE, ROW_INDEX))
                assert tile < units
                assert table.rows[place, ROW_INDEX] == row
                seen.append(place)
                met = _chunks(table.tiles, tile, place)
                assert all(chunk == n for n, (_, chunk) in enumerate(met))
                assert len(met) > (start + row - at) // PAGE
                for where, chunk in met[: (start + row - at) // PAGE + 1]:
                    assert tables[where][chunk] == tables[own][chunk]
            at += rows
        assert len(set(seen)) == len(seen)
        sizes = table.tiles[:units, COUNT]
        joined = table.tiles[:units, WALKS] > 0
        assert sizes[~joined].max(initial=0) <= token_tile(GROUP)
        assert sizes[joined].max(initial=0) <= joined_tile(GROUP)
        for first, end in pairwise(sorted({*table.tiles[:units, FIRST].tolist(), 1 << 60})):
            assert end - first >= table.tiles[:units][table.tiles[:units, FIRST] == first, COUNT]
        starts = [start + n for start, n in zip(starts, counts, strict=True)]
