"""The output head: logits of all tokens, or of the few allowed ones.

A unit is one panel of a list, so that a grammar that allows a few tokens costs the reading of a few
panels. A panel of the list is multiplied by the code that multiplies it among all: a logit has the
same bits whatever else is computed.
"""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I8s, I32s, I64s, Kernel, Ptr, Value, f32, i64, kernel
from .activations import BLOCK_BYTES
from .gemm import tile_gemm
from .panels import FORMATS


@kernel
def gemm_selected(
    k: Kernel,
    weights: I8s,
    x: I8s,
    out: F32s,
    x_bytes: I64,
    out_stride: I64,
    count: I64s,
    panels: I32s,
    scratch: I8s,
    *,
    fmt: str,
    blocks: int,
    tile: int = 0,
    max_single_tile: int = 0,
) -> None:
    """Multiply prepared rows of `x` by the listed panels; unit = index in the list.

    `count[0]` is the number of rows, `out` float32 [rows, out_stride]: a panel's products go to its
    own columns, the others stay as they are. `panels` has one entry more than there are units: the
    panel to look ahead to. x_bytes: bytes of a row, for float formats. scratch: each thread's own;
    tile, max_single_tile: as for `tile_gemm`.
    """
    form = FORMATS[fmt]
    panel_bytes = form.panel_bytes(blocks, k.lanes)
    product = tile_gemm(k, fmt, "store", blocks, scratch, tile, max_single_tile)
    floats = form.family == "float"
    stride = x_bytes if floats else k.i64(blocks * (form.block // 32) * BLOCK_BYTES)

    def pointers(first: Value, tokens: int) -> tuple[list[Ptr], list[Ptr]]:
        start = x.at(first * stride)
        rows = [start.at(t * stride) for t in range(tokens)]
        rows = [row.cast(f32) for row in rows] if floats else rows
        return rows, [out.at((first + t) * out_stride) for t in range(tokens)]

    with k.units() as unit:
        at = panels.load(unit).to(i64)
        following = (panels.load(unit + 1).to(i64) - at) * panel_bytes
        product(weights.at(at * panel_bytes), following, count.load(0), pointers, at)


def panels_of(mask: np.ndarray, rows: int) -> np.ndarray:
    """List the panels of `rows` rows (a power of 2 from 8 to 64) that hold an allowed token: int64.

    mask: uint32 bits of the allowed tokens.
    """
    return np.flatnonzero(mask.view(f"u{rows // 8}"))


def count_panels(mask: np.ndarray, rows: int) -> int:
    """Count the panels that `panels_of` would list: much faster where nearly all are listed."""
    return int(np.count_nonzero(mask.view(f"u{rows // 8}")))


def reference(weights: np.ndarray, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute float32 logits: weights float [vocabulary, K], x float [K]; NaN where masked."""
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(weights)].astype(bool)
    out = np.full(len(weights), np.nan, np.float32)
    out[allowed] = weights[allowed].astype(np.float64) @ x.astype(np.float64)
    return out
