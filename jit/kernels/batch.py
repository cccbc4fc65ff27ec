"""The descriptor of a pass: its rows, and the tiles of rows that attend together.

A pass computes rows of one or of many sequences: a prompt's chunk, one token of a decode, a draft
to be verified are all just rows. GEMMs and norms take them as they come; rotation, cache writes and
attention have to know whose they are:

    rows   int64 [indices, ROW_SLOTS]  position, page table, tile and index of each row
    tiles  int64 [tiles, TILE_SLOTS]  rows of consecutive indices, usually those of consecutive
                                      positions of a sequence
    runs   int64 [sequences, TILE_SLOTS]  all rows of each sequence, which follow one another

A tile has `attention.token_tile` rows at most. PART is for `split_kv.py`. Page tables are
named by their distance from a base address: see `kvcache.py`.

**Joined tiles.** Where sequences begin with the same pages, few rows of each may be one tile, so
that those pages are read once for all of them. Such a tile has WALKS entries of `tiles` from its
FROM on, which are done one after the other: the rows FIRST … FIRST + COUNT - 1 attend to the chunks
FROM … UNTIL - 1 of TABLE. UNTIL is 0 where they go on to their own positions, from START on. First
come chunks that many rows share, then those of fewer, at last each sequence's own. So every row
meets its chunks in their order, as it does alone. Any other tile is its own only walk.

The rows of a joined tile need not follow one another in the pass, so tiles name *indices*. The
index of a row is its number unless it is in a joined tile; there it is that of a further entry of
`rows`. ROW_INDEX of a row is its index, and that of such a further entry is its row.

What a sequence has instead of positions in layers with a recurrence, its state, is one block of
float32 for all such layers. The two entries before its page table are addresses of it: where a
pass reads it, and where it leaves what its rows have made of it. Both may be the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

ROW_POSITION, ROW_TABLE, ROW_TILE, ROW_INDEX = range(4)
ROW_SLOTS = 4
FIRST, COUNT, START, TABLE, PART, FROM, UNTIL, WALKS = range(8)
TILE_SLOTS = 8
FEW = 24  # rows of a span up to which they are written one by one
STATE_ENTRIES = 2  # before a page table
STATE_FROM, STATE_TO = -2, -1  # entries of a page table


def own_indices(rows: np.ndarray) -> np.ndarray:
    """Write each row's own index into `rows`."""
    rows[:, ROW_INDEX] = np.arange(len(rows))
    return rows


def describe(
    rows: np.ndarray, tiles: np.ndarray, spans: Iterable[tuple[int, int, int]], tile: int
) -> int:
    """Write the descriptor of a pass; return the number of tiles.

    rows, tiles: see above, with room for all; rows have their own indices. spans: position of the
    first row, rows and page table of each sequence, in the order of the rows. tile: maximum
    rows of a tile.
    """
    at = made = 0
    row, each = rows.reshape(-1).data, tiles.reshape(-1).data  # numbers at a third of numpy's price
    for start, count, table in spans:
        if count == 1:  # a decode: as below, but by far the most frequent
            slot = at * ROW_SLOTS
            row[slot + ROW_POSITION], row[slot + ROW_TABLE] = start, table
            row[slot + ROW_TILE] = made
            slot = made * TILE_SLOTS
            each[slot + FIRST], each[slot + COUNT] = at, 1
            each[slot + START], each[slot + TABLE] = start, table
            at, made = at + 1, made + 1
            continue
        if count > FEW:
            made += _describe_many(rows, tiles, (start, count, table), at, made, tile)
            at += count
            continue
        for first in range(0, count, tile):
            size, slot = min(tile, count - first), made * TILE_SLOTS
            each[slot + FIRST], each[slot + COUNT] = at, size
            each[slot + START], each[slot + TABLE] = start, table
            for _ in range(size):
                slot = at * ROW_SLOTS
                row[slot + ROW_POSITION], row[slot + ROW_TABLE] = start, table
                row[slot + ROW_TILE] = made
                at, start = at + 1, start + 1
            made += 1
    return made


def _describe_many(
    rows: np.ndarray, tiles: np.ndarray, span: tuple[int, int, int], at: int, made: int, tile: int
) -> int:
    """Describe one span whose first row is `at` and first tile `made`; return its tiles."""
    start, count, table = span
    end, more = at + count, -(-count // tile)
    rows[at:end, ROW_POSITION] = np.arange(start, start + count)
    rows[at:end, ROW_TABLE] = table
    rows[at:end, ROW_TILE] = np.arange(count) // tile + made
    new = tiles[made : made + more]
    new[:, FIRST], new[:, START] = np.arange(at, end, tile), np.arange(start, start + count, tile)
    new[:, COUNT], new[:, TABLE] = tile, table
    new[-1, COUNT] = count - (more - 1) * tile
    return more


def describe_runs(runs: np.ndarray, spans: Iterable[tuple[int, int, int]]) -> int:
    """Write an entry of `runs` for each span, as of `describe`; return their number."""
    at = made = 0
    for start, count, table in spans:
        runs[made, [FIRST, COUNT, START, TABLE]] = at, count, start, table
        at, made = at + count, made + 1
    return made
