"""The rows and tiles of each pass for heads of one shape, as kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...jit.kernels.attention import joined_tile, token_tile
from ...jit.kernels.batch import (
    COUNT,
    FIRST,
    FROM,
    PART,
    ROW_INDEX,
    ROW_POSITION,
    ROW_SLOTS,
    ROW_TILE,
    START,
    TABLE,
    TILE_SLOTS,
    UNTIL,
    WALKS,
    describe,
    own_indices,
)
from ...jit.kernels.kvcache import PAGE
from ...jit.pool import aligned
from .shared_prefix import JoinedTile, SharedPrefix

SpanRows = tuple[int, int, int]  # of a span: position of its first row, rows, page table


class TileTable:
    """Rows and attention tiles of a pass, in the layout that kernels read.

    Attributes:
        rows, tiles: as `jit/kernels/batch.py` has them.
        joined: maximum rows of a tile of several sequences, and minimum number of such tiles.
        entries: how many of `tiles` the last pass has, walks of joined tiles among them.
    """

    def __init__(self, max_tokens: int, group: int, min_joined: int) -> None:
        """Create the table; min_joined: the minimum number of joined tiles, if there are any."""
        self._max_tokens, self._tile = max_tokens, token_tile(group)
        self.joined = joined_tile(group), min_joined
        # Behind rows: places of joined tiles. Of those each row has one walk of its own, and what
        # rows share makes fewer than there are of them.
        self.rows = own_indices(aligned((2 * max_tokens, ROW_SLOTS), np.int64))
        self.tiles = aligned((3 * max_tokens, TILE_SLOTS), np.int64)
        # Plain memory views: a number of their own costs a third of what one of numpy's does.
        self.fast = self.rows.reshape(-1).data, self.tiles.reshape(-1).data
        self.entries = 1  # of a pass of one row, which nobody describes here
        self._shared: SharedPrefix | None = None  # whose joined tiles there are now
        self._joined = 0  # entries of tiles that they may have; not 0 either where that broke off
        self._starts: list[int] = []  # slots of the tiles that each span of one row has
        self._count = 0

    def describe(self, spans: Sequence[SpanRows], shared: SharedPrefix | None = None) -> int:
        """Write the rows and tiles of a pass; return the number of tiles."""
        if shared is not None and shared is self._shared and self._starts:
            self._move(spans)
            return self._count
        self._shared = None
        if self._joined:
            own_indices(self.rows)
            self.tiles[: self._joined, PART:] = 0
            self._joined = 0
        made = describe(self.rows, self.tiles, spans, self._tile)
        self._count = self.entries = made
        if shared is not None and shared.tiles(*self.joined):
            self._join_tiles(spans, shared, made)
        return self._count

    def _move(self, spans: Sequence[SpanRows]) -> None:
        """Update the last pass's descriptor: one row of each sequence, at other positions."""
        rows, tiles = self.fast
        row = ROW_POSITION
        for (start, _, _), slot in zip(spans, self._starts, strict=True):
            rows[row] = tiles[slot] = start
            row += ROW_SLOTS

    def _join_tiles(self, spans: Sequence[SpanRows], shared: SharedPrefix, made: int) -> None:
        """Replace tiles of few rows by joined tiles."""
        joined = shared.tiles(*self.joined)
        counts = np.array([count for _, count, _ in spans])
        alone = np.ones(len(spans), bool)
        for tile in joined:
            alone[tile.spans] = False
        per_span = -(-counts // self._tile)
        remaining = alone[np.repeat(np.arange(len(spans)), per_span)]
        at, total = int(remaining.sum()), int(counts.sum())
        self._joined = 3 * total
        numbers = np.cumsum(remaining) - 1
        self.tiles[:at] = self.tiles[:made][remaining]
        self.rows[:total, ROW_TILE] = numbers[self.rows[:total, ROW_TILE]]
        starts = (numbers[np.cumsum(per_span) - per_span] * TILE_SLOTS + START).tolist()
        self._write(spans, joined, (np.cumsum(counts) - counts).tolist(), at, starts)
        self._starts = starts if total == len(spans) else []
        self._shared = shared

    def _write(
        self,
        spans: Sequence[SpanRows],
        joined: Sequence[JoinedTile],
        first_rows: Sequence[int],
        at: int,
        starts: list[int],
    ) -> None:
        """Write joined tiles from number `at` on, and their walks after them.

        starts: where the position of each span's first row stands is written there.
        """
        rows, tiles = self.fast
        index, walk = self._max_tokens, at + len(joined)
        for number, tile in enumerate(joined, at):
            firsts = []
            for span in tile.spans:
                firsts.append(index)
                for row in range(first_rows[span], first_rows[span] + spans[span][1]):
                    rows[row * ROW_SLOTS + ROW_TILE] = number
                    rows[row * ROW_SLOTS + ROW_INDEX] = index
                    rows[index * ROW_SLOTS + ROW_INDEX] = row
                    index += 1
            firsts.append(index)
            self._entry(number, firsts[0], index - firsts[0], spans[tile.spans[0]], walk)
            tiles[number * TILE_SLOTS + WALKS] = len(tile.walks)
            for first, end, begin, stop in tile.walks:
                span = tile.spans[first]
                self._entry(walk, firsts[first], firsts[end] - firsts[first], spans[span], begin)
                tiles[walk * TILE_SLOTS + UNTIL] = stop
                if stop:  # a bound that holds until one of them is on its next page
                    first_position = min(spans[n][0] for n in tile.spans[first:end])
                    tiles[walk * TILE_SLOTS + START] = first_position // PAGE * PAGE
                else:
                    starts[span] = walk * TILE_SLOTS + START
                walk += 1
        self._count, self.entries = at + len(joined), walk

    def _entry(self, number: int, first: int, count: int, span: SpanRows, begin: int) -> None:
        tiles, slot = self.fast[1], number * TILE_SLOTS
        tiles[slot + FIRST], tiles[slot + COUNT] = first, count
        tiles[slot + START], tiles[slot + TABLE] = span[0], span[2]
        tiles[slot + PART], tiles[slot + FROM] = 0, begin
        tiles[slot + UNTIL] = tiles[slot + WALKS] = 0
