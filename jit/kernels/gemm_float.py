"""Register tiles for panels of floats: f32, f16 and bf16."""

from __future__ import annotations

from ..simd import Ptr
from .panels import FORMATS, load_floats
from .prefetch import LINE, Prefetcher
from .tiles import PanelTile, Sums


class FloatTile(PanelTile):
    """The register tile for float panels, whose block is one value along K."""

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes, step_bytes = self.k, self.lanes, FORMATS[self.fmt].panel_block_bytes(self.lanes)
        steps = max(1, LINE // step_bytes)  # of a line
        with k.range(0, self.blocks, name="depth") as d:
            with k.if_((d & (steps - 1)).eq(0)):
                prefetcher.prefetch(d, step_bytes)
            ws = [
                load_floats(k, self.fmt, panel, (d * 2 + half) * lanes, lanes) for half in range(2)
            ]
            for row, pair in zip(rows, sums, strict=True):
                xs = row.splat(d, lanes)
                for w, total in zip(ws, pair, strict=True):
                    total.set(k.fma(w, xs, total.value))
