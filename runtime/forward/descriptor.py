"""What is set before a pass: whose rows it computes, and how much work each op has.

Kernels read the rows and tiles of a pass as `jit/kernels/batch.py` has them. The units of an op are
a multiple of one of the pass's counts; whoever writes more of the descriptor adds a count of its
own by `counted`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...jit.kernels import attention, rope
from ...jit.kernels.batch import (
    COUNT,
    ROW_POSITION,
    ROW_SLOTS,
    ROW_TABLE,
    START,
    TABLE,
    TILE_SLOTS,
    describe,
    describe_runs,
)
from ...jit.pool import aligned
from .batch import Span
from .tensors import HeadShape

# Counts of every pass: 1; its rows; those that want logits; tiles for the usual heads; groups of
# rows that are rotated together; panels of the output head.
ONE, TOKENS, OUTPUTS, TILES, ROTATIONS, PANELS = range(6)
Describe = Callable[[Sequence[Span], Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a pass for heads of one shape.

    Attributes:
        rows, tiles: as `jit/kernels/batch.py` has them; count: which count their number is.
    """

    heads: HeadShape
    rows: np.ndarray
    tiles: np.ndarray
    count: int


class PassDescriptor:
    """The descriptor of a pass of up to `most_tokens` tokens.

    Attributes:
        rows, tiles, runs: whose rows a pass computes, as `jit/kernels/batch.py` has it.
        ids: their token ids; wanted: rows whose logits are.
        panels: of the output head, which of its `head_panels` the pass takes.
        experts_hit: for each layer with experts, how many a pass took: int64 [1].
    """

    head_panels = 0

    def __init__(self, most_tokens: int, heads: HeadShape) -> None:
        self.most_tokens = most_tokens
        self.decode = most_tokens == 1
        self.heads = heads
        self.ids = aligned(max(16, most_tokens), np.int32)
        self.rows = aligned((most_tokens, ROW_SLOTS), np.int64)
        self.tiles = aligned((most_tokens, TILE_SLOTS), np.int64)
        self.runs = aligned((most_tokens, TILE_SLOTS), np.int64)
        self.wanted = aligned(max(16, most_tokens), np.int32)
        self.panels = aligned(1, np.int32)
        self._listed = 0  # how many panels the last pass took, if it did not take all
        self.experts_hit: list[np.ndarray] = []
        # Plain memory views: a number of their own costs a third of what one of numpy's does.
        self._fast = tuple(
            x.reshape(-1).data for x in (self.rows, self.tiles, self.ids, self.wanted)
        )
        self._tile = attention.token_tile(heads.group)
        self._tilings = {heads: Tiling(heads, self.rows, self.tiles, TILES)}
        self._counts = [1, *[0] * PANELS]  # of the last pass
        self._counted: list[Describe] = []  # the counts behind those of every pass
        self._units: dict[tuple[int, int], np.ndarray] = {}
        self._fast_units: list[tuple[memoryview, int, int]] = []
        self._runs = 0  # which count they are

    def set_pass(self, spans: Sequence[Span], panels: np.ndarray | None = None) -> None:
        """This pass computes the rows of `spans`, `most_tokens` at most.

        panels: of the output head, those that are wanted; None: all.
        """
        tokens, outputs, tiles = self._one_row(spans[0]) if self.decode else self._rows(spans)
        taken = self.head_panels if outputs else 0
        if panels is not None or self._listed:
            taken = self._list_panels(panels, taken)
        counts = [1, tokens, outputs, tiles, -(-tokens // rope.TOKENS), taken]
        for describe_more in self._counted:
            counts.append(describe_more(spans, counts))
        if counts != self._counts:
            self._counts = counts
            for units, count, times in self._fast_units:
                units[0] = counts[count] * times
        for hit in self.experts_hit:
            hit[0] = 0

    def _one_row(self, span: Span) -> tuple[int, int, int]:
        """The descriptor of one row: the other slots are zeros for good."""
        row, tile, ids, _ = self._fast
        ids[0] = span.ids[0]
        row[ROW_POSITION], row[ROW_TABLE] = span.start, span.table
        tile[COUNT], tile[START], tile[TABLE] = 1, span.start, span.table
        return 1, span.outputs, 1

    def _rows(self, spans: Sequence[Span]) -> tuple[int, int, int]:
        """Write the descriptor; numbers of rows, of wanted ones and of tiles."""
        at = outputs = 0
        _, _, one, rows = self._fast
        places: list[tuple[int, int, int]] = []
        for table, start, ids, wanted in spans:
            count = len(ids)
            if count == 1:
                one[at] = ids[0]
            else:
                self.ids[at : at + count] = ids
            at += count
            for row in range(at - wanted, at):
                rows[outputs] = row
                outputs += 1
            places.append((start, count, table))
        return at, outputs, describe(self.rows, self.tiles, places, self._tile)

    def _list_panels(self, panels: np.ndarray | None, usual: int) -> int:
        """Take these panels of the output head, or all again; how many."""
        self.panels[: self._listed] = np.arange(self._listed)
        self._listed = 0 if panels is None else len(panels)
        if panels is None:
            return usual
        self.panels[: len(panels)] = panels
        return len(panels)

    # --- what a pass is asked for while it is built

    def units(self, count: int, times: int = 1) -> np.ndarray:
        """`times` one of the pass's counts, as each pass sets it: int64 [1]."""
        found = self._units.get((count, times))
        if found is None:
            found = self._units[count, times] = aligned(8, np.int64)[:1]
            found[0] = self._counts[count] * times
            self._fast_units.append((found.data, count, times))
        return found

    def counted(self, describe_more: Describe) -> int:
        """One more count of each pass: what `describe_more` makes of its spans and earlier counts.

        It may write what kernels read of the pass.
        """
        self._counted.append(describe_more)
        self._counts.append(0)
        return len(self._counts) - 1

    def units_of_runs(self, parts: int) -> np.ndarray:
        """Units of an op on each of so many parts of each of `runs`."""
        self._runs = self._runs or self.counted(
            lambda spans, _: describe_runs(self.runs, _places(spans))
        )
        return self.units(self._runs, parts)

    def tiling(self, heads: HeadShape) -> Tiling:
        """The tiles for heads of this shape. Those of one row are alike for all."""
        if heads not in self._tilings:
            rows, tiles, count = self.rows, self.tiles, TILES
            if not self.decode:
                rows, tiles = aligned(rows.shape, np.int64), aligned(tiles.shape, np.int64)
                most = attention.token_tile(heads.group)
                count = self.counted(lambda spans, _: describe(rows, tiles, _places(spans), most))
            self._tilings[heads] = Tiling(heads, rows, tiles, count)
        return self._tilings[heads]


def _places(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """The same as `describe` takes them."""
    return [(span.start, len(span.ids), span.table) for span in spans]
