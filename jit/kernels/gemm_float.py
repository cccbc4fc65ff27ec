"""Matrix products with panels of floats: out[t, row] = sum over K of w[row, K] * x[t, K]."""

from __future__ import annotations

from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, Value, f32, i16, i32, kernel
from .epilogue import Epilogue, apply_epilogue, prefetch_outputs
from .mathlib import f16_to_f32
from .panels import FORMATS
from .prefetch import LINE, Prefetcher, TileIndex, silent
from .tiles import RowPointers, TileGemm, for_numbered_tiles, rows_in_order, tile_tokens


@kernel
def gemm_float(
    k: Kernel,
    weights: I8s,
    x: F32s,
    out: F32s,
    depth: I64,
    x_stride: I64,
    out_stride: I64,
    count: I64s,
    *,
    fmt: str,
    epilogue: Epilogue,
    tile: int = 0,
) -> None:
    """Multiply float32 rows `x` [tokens, x_stride] by f32, f16 or bf16 panels; unit = panel."""
    product = float_product(k, fmt, epilogue, depth, tile)
    panel_bytes = depth * FORMATS[fmt].panel_block_bytes(k.lanes)
    with k.units() as unit:
        pointers = rows_in_order(x, x_stride, out, out_stride)
        product(weights.at(unit * panel_bytes), panel_bytes, count.load(0), pointers, unit)


def float_product(
    k: Kernel, fmt: str, epilogue: Epilogue, depth: Value | int, tile: int = 0
) -> TileGemm:
    """Return the product with panels of floats: tiles of twice as many tokens."""
    lanes, max_tile = k.lanes, 2 * (tile or tile_tokens(k.target))
    step_bytes = FORMATS[fmt].panel_block_bytes(lanes)
    steps = max(1, LINE // step_bytes)  # of a line

    def product(
        panel: Ptr, following: Value, count: Value, pointers: RowPointers, unit: Value
    ) -> None:
        def one(first: Value, tokens: int, tile_index: TileIndex) -> None:
            prefetcher = Prefetcher(
                k, panel, following, tile_index, enabled=count > silent(k.target)
            )
            rows, outs = pointers(first, tokens)
            sums = [[k.var(k.zeros(f32, lanes)) for _ in range(2)] for _ in range(tokens)]
            prefetch_outputs(k, epilogue, outs, unit)
            with k.range(0, depth, name="depth") as d:
                with k.if_((d & (steps - 1)).eq(0)):
                    prefetcher.prefetch(d, step_bytes)
                ws = [_float_weights(k, fmt, panel, d * 2 + half) for half in range(2)]
                for row, pair in zip(rows, sums, strict=True):
                    xs = row.splat(d, lanes)
                    for w, total in zip(ws, pair, strict=True):
                        total.set(k.fma(w, xs, total.value))
            apply_epilogue(k, epilogue, sums, outs, unit)

        for_numbered_tiles(k, count, max_tile, one)

    return product


def _float_weights(k: Kernel, fmt: str, panel: Ptr, vector: Value) -> Value:
    lanes = k.lanes
    if fmt == "f32":
        return panel.cast(f32).load(vector * lanes, lanes)
    bits = panel.cast(i16).load(vector * lanes, lanes)
    if fmt == "f16":
        return f16_to_f32(k, bits)
    return (bits.to(i32, signed=False) << 16).bitcast(f32)
