"""Register tiles for panels of floats: f32, f16 and bf16."""

from __future__ import annotations

from ..simd import Kernel, Ptr, Value, f32, i16, i32
from .mathlib import f16_to_f32
from .panels import FORMATS
from .prefetch import LINE, Prefetcher
from .tiles import PanelTile, Sums


class FloatTile(PanelTile):
    """The register tile; a block is one value along K."""

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add products; see `PanelTile.products`."""
        k, lanes, step_bytes = self.k, self.lanes, FORMATS[self.fmt].panel_block_bytes(self.lanes)
        steps = max(1, LINE // step_bytes)  # of a line
        with k.range(0, self.blocks, name="depth") as d:
            with k.if_((d & (steps - 1)).eq(0)):
                prefetcher.prefetch(d, step_bytes)
            ws = [_weights(k, self.fmt, panel, d * 2 + half) for half in range(2)]
            for row, pair in zip(rows, sums, strict=True):
                xs = row.splat(d, lanes)
                for w, total in zip(ws, pair, strict=True):
                    total.set(k.fma(w, xs, total.value))


def _weights(k: Kernel, fmt: str, panel: Ptr, vector: Value) -> Value:
    lanes = k.lanes
    if fmt == "f32":
        return panel.cast(f32).load(vector * lanes, lanes)
    bits = panel.cast(i16).load(vector * lanes, lanes)
    if fmt == "f16":
        return f16_to_f32(k, bits)
    return (bits.to(i32, signed=False) << 16).bitcast(f32)
