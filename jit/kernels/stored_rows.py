"""A row stored with each position in the pages of a KV cache, and read back for the next position.

What a layer takes that looks one position back, where a sequence has no state to keep it in. Rows
are bf16, [256][width] in a page, so that what is read has the same bits whatever pass wrote it.
"""

from __future__ import annotations

import numpy as np

from ..dot import to_bf16_bits
from ..simd import I64, F32s, I64s, Kernel, Ptr, Value, f32, i16, i32, kernel
from .batch import ROW_POSITION, ROW_SLOTS, ROW_TABLE
from .kvcache import PAGE
from .rope import to_bf16

ROW_BYTES = 2  # of each value


def layer_bytes(width: int) -> int:
    """Return the bytes of the rows of a page."""
    return PAGE * width * ROW_BYTES


def _row(k: Kernel, table: Ptr, position: Value, offset: Value, width: int) -> Ptr:
    part = k.pointer(table.load(position // PAGE) + offset, i16)
    return part.at(position % PAGE * width)


@kernel
def keep_rows(
    k: Kernel, x: F32s, pages: I64s, offset: I64, x_stride: I64, rows: I64s, *, width: int
) -> None:
    """Store rows; unit = row of the pass: `width` values of x float32 [rows, x_stride].

    rows, pages and tables as in `batch.py` and `kvcache.py`; offset: bytes of a page before them.
    """
    lanes = k.lanes
    with k.units() as unit:
        row = rows.at(unit * ROW_SLOTS)
        table = pages.at(row.load(ROW_TABLE))
        into = _row(k, table, row.load(ROW_POSITION), offset, width)
        with k.range(0, width, step=lanes, name="dim") as d:
            into.store(d, to_bf16_bits(x.load(unit * x_stride + d, lanes)).to(i16))


@kernel
def rows_before(
    k: Kernel, out: F32s, pages: I64s, offset: I64, out_stride: I64, rows: I64s, *, width: int
) -> None:
    """Load the previous position's row into out float32 [rows, out_stride]; unit = row of the pass.

    Zeros before the first one.
    """
    lanes = k.lanes
    with k.units() as unit:
        row = rows.at(unit * ROW_SLOTS)
        position, table = row.load(ROW_POSITION), pages.at(row.load(ROW_TABLE))
        source = _row(k, table, (position - 1).max(0), offset, width)
        keep = (position > 0).select(k.const(-1, i32), 0).splat(lanes)
        with k.range(0, width, step=lanes, name="dim") as d:
            bits = source.load(d, lanes).to(i32, signed=False) << 16
            out.store(unit * out_stride + d, (bits & keep).bitcast(f32))


def reference(x: np.ndarray) -> np.ndarray:
    """Shift float32 [positions, width]: each position gets the row of the one before."""
    return np.concatenate([np.zeros_like(x[:1]), to_bf16(x)[:-1]])
