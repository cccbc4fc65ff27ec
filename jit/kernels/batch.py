"""What kernels read of a pass: its rows, and the tiles of rows that attend together.

A pass computes rows of one or of many sequences: a prompt's chunk, one token of a decode, a draft
to be verified are all just rows. GEMMs and norms take them as they come; rotation, cache writes and
attention have to know whose they are:

    rows   int64 [rows, ROW_SLOTS]    position, page table and tile of each row
    tiles  int64 [tiles, TILE_SLOTS]  consecutive rows that are consecutive positions of a sequence
    runs   int64 [sequences, TILE_SLOTS]  all rows of each sequence, which follow one another

A tile has `attention.token_tile` rows at most. PART is for `split_kv.py`. Page tables are
named by their distance from a base address: see `kvcache.py`.

What a sequence has instead of positions in layers with a recurrence, its state, is one block of
float32 for all such layers. The two entries before its page table are addresses of it: where a
pass reads it, and where it leaves what its rows have made of it. Both may be the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

ROW_POSITION, ROW_TABLE, ROW_TILE = range(3)
ROW_SLOTS = 4
FIRST, COUNT, START, TABLE, PART = range(5)
TILE_SLOTS = 8
STATE_ENTRIES = 2  # before a page table
STATE_FROM, STATE_TO = -2, -1  # entries of a page table


def describe(
    rows: np.ndarray, tiles: np.ndarray, spans: Iterable[tuple[int, int, int]], tile: int
) -> int:
    """Write the descriptor of a pass; the number of tiles.

    rows, tiles: see above, with room for all. spans: position of the first row, rows and page table
    of each sequence, in the order of the rows. tile: most rows of a tile.
    """
    at = made = 0
    for start, count, table in spans:
        end, more = at + count, -(-count // tile)
        offsets = np.arange(count)
        rows[at:end, ROW_POSITION] = start + offsets
        rows[at:end, ROW_TABLE] = table
        rows[at:end, ROW_TILE] = made + offsets // tile
        new = tiles[made : made + more]
        first = offsets[::tile]
        new[:, FIRST], new[:, START] = at + first, start + first
        new[:, COUNT], new[:, TABLE] = np.minimum(count - first, tile), table
        at, made = end, made + more
    return made


def describe_runs(runs: np.ndarray, spans: Iterable[tuple[int, int, int]]) -> int:
    """Write `runs` of the same spans, each whole; their number."""
    at = made = 0
    for start, count, table in spans:
        runs[made, [FIRST, COUNT, START, TABLE]] = at, count, start, table
        at, made = at + count, made + 1
    return made
