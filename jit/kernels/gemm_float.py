"""Register tiles for panels of floats: f32, f16 and bf16."""

from __future__ import annotations

from ..simd import Ptr
from .panels import FORMATS, load_floats
from .prefetch import Pieces, Prefetcher
from .tiles import PanelTile, Sums

PIECE = 8  # values of each row before which a tile prefetches once


class FloatTile(PanelTile):
    """The register tile for float panels, whose block is one value along K."""

    @property
    def pieces(self) -> Pieces:
        """Each has `PIECE` values of every row."""
        return Pieces(self.blocks // PIECE, PIECE * FORMATS[self.fmt].panel_block_bytes(self.lanes))

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes = self.k, self.lanes
        with k.range(0, self.blocks, name="depth") as d:
            with k.if_((d % PIECE).eq(0)):
                prefetcher.prefetch(d // PIECE)
            ws = [
                load_floats(k, self.fmt, panel, (d * 2 + half) * lanes, lanes) for half in range(2)
            ]
            for row, pair in zip(rows, sums, strict=True):
                xs = row.splat(d, lanes)
                for w, total in zip(ws, pair, strict=True):
                    total.set(k.fma(w, xs, total.value))
