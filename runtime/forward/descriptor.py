"""The descriptor of a pass, written before it runs: its rows, and the units of each op.

Kernels read the rows and tiles of a pass as `jit/kernels/batch.py` has them. The units of an op are
a multiple of one of the pass's counts; whoever writes more of the descriptor adds a count of its
own by `counted`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...jit.kernels import rope
from ...jit.kernels.batch import (
    COUNT,
    ROW_POSITION,
    ROW_TABLE,
    START,
    TABLE,
    TILE_SLOTS,
    describe_runs,
)
from ...jit.pool import aligned
from .batch import Span
from .shared_prefix import SharedPrefix
from .tensors import HeadShape
from .tile_table import TileTable

# Counts of every pass: 1; its rows; those that want logits; tiles for the usual heads; groups of
# rows that are rotated together; panels of the output head.
ONE, TOKENS, OUTPUTS, TILES, ROTATIONS, PANELS = range(6)
Describe = Callable[[Sequence[Span], Sequence[int]], int]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of a pass for heads of one shape.

    Attributes:
        table: its rows and tiles; count: index of the pass's count of tiles, for `units`.
    """

    heads: HeadShape
    table: TileTable
    count: int

    @property
    def rows(self) -> np.ndarray:
        return self.table.rows

    @property
    def tiles(self) -> np.ndarray:
        return self.table.tiles


class PassDescriptor:
    """The descriptor of a pass of up to `max_tokens` tokens.

    Attributes:
        rows, tiles, runs: whose rows a pass computes, as `jit/kernels/batch.py` has it.
        ids: their token ids; wanted: rows whose logits are.
        panels: of the output head, which of its `head_panels` the pass takes.
        experts_hit: for each layer with experts, how many a pass took: int64 [1].
    """

    head_panels = 0
    parts_shared_out = False  # whether one tile's attention has work for all threads

    def __init__(self, max_tokens: int, heads: HeadShape, threads: int = 1) -> None:
        self.max_tokens = max_tokens
        self.decode = max_tokens == 1
        self.heads = heads
        self.ids = aligned(max(16, max_tokens), np.int32)
        self._threads = threads
        self._table = self._tile_table(heads)
        self.rows, self.tiles = self._table.rows, self._table.tiles
        self.runs = aligned((max_tokens, TILE_SLOTS), np.int64)
        self.wanted = aligned(max(16, max_tokens), np.int32)
        self.panels = aligned(1, np.int32)
        self.bounded = False  # whether the pass lists its panels itself
        self._listed = 0  # how many panels the last pass took, if it did not take all
        self.experts_hit: list[np.ndarray] = []
        self._fast = *self._table.fast, self.ids.data, self.wanted.data
        self._tilings = {heads: Tiling(heads, self._table, TILES)}
        self._shared_prefix: SharedPrefix | None = None  # of this pass
        self._counts = [1, *[0] * PANELS]  # of the last pass
        self._counted: list[Describe] = []  # the counts behind those of every pass
        self._units: dict[tuple[int, int], np.ndarray] = {}
        self._fast_units: list[tuple[memoryview, int, int]] = []
        self._runs = 0  # which count they are

    def set_pass(
        self,
        spans: Sequence[Span],
        panels: np.ndarray | None = None,
        shared: SharedPrefix | None = None,
        *,
        bounded: bool = False,
    ) -> None:
        """Describe a pass over the rows of `spans`, `max_tokens` at most.

        panels: of the output head, those that are wanted; None: all. shared: what the sequences of
        these spans have in common, and may read together. bounded: of the output head, those that
        may hold the largest logit: see `head_bound.py`.
        """
        self.bounded = bounded
        self._shared_prefix = shared
        tokens, outputs, tiles = self._one_row(spans[0]) if self.decode else self._rows(spans)
        taken = self.head_panels if outputs and not bounded else 0
        if panels is not None or self._listed:
            taken = self._list_panels(panels, taken)
        counts = [1, tokens, outputs, tiles, -(-tokens // rope.TOKENS), taken]
        for describe_more in self._counted:
            counts.append(describe_more(spans, counts))
        if counts != self._counts:
            self._counts = []  # none until all of them are there: Ctrl-C may come in between
            for units, count, times in self._fast_units:
                units[0] = counts[count] * times
            self._counts = counts
        for hit in self.experts_hit:
            hit[0] = 0

    def _one_row(self, span: Span) -> tuple[int, int, int]:
        """Describe one row: the other slots are always zero."""
        row, tile, ids, _ = self._fast
        ids[0] = span.ids[0]
        row[ROW_POSITION], row[ROW_TABLE] = span.start, span.table
        tile[COUNT], tile[START], tile[TABLE] = 1, span.start, span.table
        return 1, span.outputs, 1

    def _rows(self, spans: Sequence[Span]) -> tuple[int, int, int]:
        """Write the descriptor; return the numbers of rows, of rows with logits, and of tiles."""
        at = outputs = 0
        _, _, one, rows = self._fast
        spans_at: list[tuple[int, int, int]] = []
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
            spans_at.append((start, count, table))
        return at, outputs, self._table.describe(spans_at, self._shared_prefix)

    def _list_panels(self, panels: np.ndarray | None, usual: int) -> int:
        """Select these panels of the output head, or all; return their number."""
        self.panels[: self._listed] = np.arange(self._listed)
        self._listed = 0 if panels is None else len(panels)
        if panels is None:
            return usual
        self.panels[: len(panels)] = panels
        return len(panels)

    @property
    def joined(self) -> tuple[int, int]:
        """Maximum rows and minimum number of joined tiles, for the usual heads: see `TileTable`."""
        return self._table.joined

    # --- what a pass is asked for while it is built

    def units(self, count: int, times: int = 1) -> np.ndarray:
        """Return the pass's count number `count` times `times`, updated by each pass: int64 [1]."""
        found = self._units.get((count, times))
        if found is None:
            found = self._units[count, times] = aligned(8, np.int64)[:1]
            found[0] = self._counts[count] * times
            self._fast_units.append((found.data, count, times))
        return found

    def counted(self, describe_more: Describe) -> int:
        """Add a count that `describe_more` computes for each pass; return its number, for `units`.

        `describe_more` gets spans and counts, and may write what kernels read of the pass.
        """
        self._counted.append(describe_more)
        self._counts.append(0)
        return len(self._counts) - 1

    def units_of_runs(self, parts: int) -> np.ndarray:
        """Return the units of an op on each of `parts` parts of each sequence's run."""
        self._runs = self._runs or self.counted(
            lambda spans, _: describe_runs(self.runs, _span_rows(spans))
        )
        return self.units(self._runs, parts)

    def tiling(self, heads: HeadShape) -> Tiling:
        """Return the tiles for heads of this shape; those of one row are equal for all shapes."""
        if heads not in self._tilings:
            table, count = self._table, TILES
            if not self.decode:
                table = self._tile_table(heads)

                def describe(spans: Sequence[Span], _: Sequence[int]) -> int:
                    return table.describe(_span_rows(spans), self._shared_prefix)

                count = self.counted(describe)
            self._tilings[heads] = Tiling(heads, table, count)
        return self._tilings[heads]

    def _tile_table(self, heads: HeadShape) -> TileTable:
        min_tiles = 1 if self.parts_shared_out else -(-self._threads // heads.kv_heads)
        return TileTable(self.max_tokens, heads.group, min_tiles)


def _span_rows(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """Convert spans to the form that `describe` takes."""
    return [(span.start, len(span.ids), span.table) for span in spans]
