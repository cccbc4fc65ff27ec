"""Matrix products with panels of any format: out[t, row] = sum over K of w[row, K] * x[t, K].

One driver serves decode (one token: a GEMV) and prefill (a GEMM): a unit is one panel of
`2 * lanes` rows, the tokens are cut into near-equal tiles of at most `quant_tile_tokens`, and each
output value is one chain of operations over K in file order. So a token's result has the same bits
whether it came alone, in a chunk of 7 or in a whole prompt.

What a format does with a tile of tokens is in `TILES`. From `unpack_from` tokens on a thread first
unpacks a panel's weights to bytes, and the scales of most formats to what multiplies, in memory of
its own, and all tiles read those: the same values, so the same bits.
"""

from __future__ import annotations

import numpy as np

from ..dot import few_registers
from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, Value, kernel
from ..targets import CpuTarget
from . import gemm_blocks, gemm_k, gemm_small, gemm_xs
from .activations import BLOCK_BYTES
from .codebook import TABLES
from .epilogue import Epilogue
from .gemm_float import FloatTile
from .grids8 import PAIRED
from .panels import FORMATS
from .prefetch import Prefetcher, TileIndex, silent
from .sign_magnitude import block_bytes, splits_signs
from .tiles import (
    PanelTile,
    RowPointers,
    TileGemm,
    few_tile_tokens,
    for_numbered_tiles,
    quant_tile_tokens,
    rows_in_order,
    single_tile_tokens,
    tile_tokens,
)

_OF_FAMILY = {"float": FloatTile, "blocks": gemm_blocks.Tile, "k": gemm_k.Tile}
TILES: dict[str, type[PanelTile]] = {
    **{name: _OF_FAMILY[form.family] for name, form in FORMATS.items()},
    **dict.fromkeys(gemm_small.MAX_Q, gemm_small.Tile),
    **dict.fromkeys(gemm_xs.TABLED, gemm_xs.Tile),
}
"""The register tile of each format."""

# Tokens from which a panel is unpacked once, which else each tile does: the more there is to
# unpack, the sooner it pays.
UNPACK_FROM = {
    **{name: 25 for name, form in FORMATS.items() if form.family == "k"},
    "q4_k": 19, "q5_k": 13, "q6_k": 10,
}  # fmt: skip
# The same with int16 sums and few registers. There it is soon: 9 tokens take 0.89 to 0.95 of the
# time with Q4_K, and 0.73 to 0.78 with Q5_K and Q6_K (AVX2 on a Zen 4), 36 take 0.60 to 1.01 with
# blocks of 32 (a Zen 3, docs/measured.md).
FEW_UNPACK_FROM = {
    **dict.fromkeys(UNPACK_FROM, 9), "q5_k": 8, "q6_k": 6,
    "q4_0": 48, "q4_1": 20, "q5_0": 6, "q5_1": 6, "q8_0": 17, "iq4_nl": 9, "mxfp4": 7, "nvfp4": 16,
}  # fmt: skip
# Intel's, Q4_0 too: 252 take 0.75 to 0.94 (Emerald Rapids), 13 up to 1.25; with a fifth bit 36 take
# 0.92 to 0.95 (Ice Lake), 20 take 1.04 to 1.05.
VNNI_UNPACK_FROM = {
    **{name: 48 for name, form in FORMATS.items() if form.family == "blocks" and name != "q8_0"},
    "q5_0": 30, "q5_1": 30,
}  # fmt: skip
FEW = 48  # tokens below which tiles are those of `few_tile_tokens`


def unpack_from(fmt: str, target: CpuTarget) -> int:
    """Return the minimum number of tokens for which panels are unpacked; 0: never."""
    if FORMATS[fmt].family == "float":
        return 0
    if few_registers(target):
        return FEW_UNPACK_FROM[fmt]
    if fmt in UNPACK_FROM:
        return UNPACK_FROM[fmt]
    if target.dot == "portable" and fmt in TABLES:
        return 2  # no instruction looks a byte up: that is most of the time
    return VNNI_UNPACK_FROM.get(fmt, 0) if target.vnni_alone else 0


def scratch_bytes(fmt: str, depth: int, target: CpuTarget) -> int:
    """Return the bytes of scratch of one thread, to unpack a panel of `depth` values a row."""
    if not unpack_from(fmt, target):
        return 64
    split, lanes, scales = splits_signs(fmt, target), target.lanes, 0
    if FORMATS[fmt].family == "k":
        scales = depth // (16 if fmt in ("q2_k", "q3_k", "q6_k", *PAIRED) else 32)
    return (depth // 32 * block_bytes(lanes) if split else 2 * lanes * depth) + 8 * lanes * scales


@kernel
def gemm_quant(
    k: Kernel,
    weights: I8s,
    x: I8s,
    out: F32s,
    out_stride: I64,
    count: I64s,
    scratch: I8s,
    *,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    tile: int = 0,
    max_single_tile: int = 0,
) -> None:
    """Multiply int8 activation blocks `x` [tokens, depth / 32] by panels of `blocks`; unit = panel.

    `count[0]` is the number of tokens; `out` is float32 [tokens, out_stride]; scratch, tile,
    max_single_tile: as for `tile_gemm`.
    """
    product = tile_gemm(k, fmt, epilogue, blocks, scratch, tile, max_single_tile)
    form = FORMATS[fmt]
    panel_bytes = form.panel_bytes(blocks, k.lanes)
    x_stride = blocks * (form.block // 32) * BLOCK_BYTES
    with k.units() as unit:
        panel = weights.at(unit * panel_bytes)
        pointers = rows_in_order(x, x_stride, out, out_stride)
        product(panel, k.i64(panel_bytes), count.load(0), pointers, unit)


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
    product = tile_gemm(k, fmt, epilogue, depth, None, tile)
    panel_bytes = depth * FORMATS[fmt].panel_block_bytes(k.lanes)
    with k.units() as unit:
        pointers = rows_in_order(x, x_stride, out, out_stride)
        product(weights.at(unit * panel_bytes), panel_bytes, count.load(0), pointers, unit)


def tile_gemm(
    k: Kernel,
    fmt: str,
    epilogue: Epilogue,
    blocks: int | Value,
    scratch: Ptr | None,
    tile: int = 0,
    max_single_tile: int = 0,
) -> TileGemm:
    """Return an emitter of products with panels of `blocks` blocks, for kernels of any panels.

    scratch: each thread's own, `scratch_bytes` of it; None for floats. tile: tokens of a register
    tile at most; 0: the usual. Up to `max_single_tile` tokens are one tile, though it does not fit
    into the registers; 0: the usual, too.
    """
    target, family, many = k.target, FORMATS[fmt].family, unpack_from(fmt, k.target)
    if family == "float":
        max_tile = few = 2 * (tile or tile_tokens(target))
        single = 0
    else:
        max_tile = tile or quant_tile_tokens(target)
        single = max_single_tile or single_tile_tokens(target)
        few = max(max_tile, few_tile_tokens(target))
    panel_tile = TILES[fmt](k, fmt, epilogue, blocks)
    pieces = panel_tile.pieces

    def product(
        panel: Ptr, following: Value, count: Value, pointers: RowPointers, unit: Value
    ) -> None:
        def tiles(
            max_tile: Value, sizes: tuple[int, int], single: int = 0, unpacked: Ptr | None = None
        ) -> None:
            def emit(first: Value, tokens: int, index: TileIndex) -> None:
                # Super-blocks are prefetched in every pass: see `prefetch.py`.
                enabled = None if family == "k" else count > silent(target)
                prefetcher = Prefetcher(k, panel, following, index, pieces, enabled)
                panel_tile.emit(panel, prefetcher, *pointers(first, tokens), unit, unpacked)

            for_numbered_tiles(k, count, max_tile, emit, sizes, single, pieces.lines, alone)

        # Two tiles at least: so many tokens each, or more.
        alone = (max_tile + 1) // 2
        largest = (count < FEW).select(k.i64(few), max_tile)
        if not many:
            tiles(largest, (1, max(few, single)), single)
            return
        assert scratch is not None, "room to unpack a panel"
        with k.if_(count < many):
            packed = min(single, many - 1)
            tiles(largest, (1, max(few, packed)), packed)
        with k.if_(count >= many):
            panel_tile.unpack(panel, scratch)
            smallest = min(n // -(-n // max_tile) for n in range(many, many + max_tile * max_tile))
            tiles(k.i64(max_tile), (smallest, max_tile), 0, scratch)

    return product


def reference(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Multiply weights float [rows, K] by x float [tokens, K] -> float32 [tokens, rows]."""
    return (x.astype(np.float64) @ weights.astype(np.float64).T).astype(np.float32)
