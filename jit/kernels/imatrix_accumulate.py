"""Sums of squares by column of a product's input, which make an importance matrix.

    scale[row] = 1 / (mean of x[row]^2 + eps)          where a norm follows, else 1   (row_scales)
    sums[c] += sum over rows of x[row, c]^2 scale[row]                                (square_sums)

The norm's own weights are constant by column: their squares are multiplied in at the end.
"""

from __future__ import annotations

import numpy as np

from ..simd import F32, I64, F32s, I32s, I64s, Kernel, Ptr, Value, f32, i64, kernel

COLUMNS = 64  # of a unit; rows are padded to it
_LANES = 16


@kernel
def row_scales(k: Kernel, x: F32s, scales: F32s, stride: I64, width: I64, eps: F32) -> None:
    """Compute each row's norm factor; unit = row of x [rows, stride], `width` values of it."""
    with k.units("row") as row:
        line = x.at(row * stride)
        whole = width // _LANES * _LANES
        wide = k.var(k.zeros(f32, _LANES))
        with k.range(0, whole, step=_LANES) as at:
            v = line.load(at, _LANES)
            wide.set(wide.value + v * v)
        total = k.var(wide.value.hsum())
        with k.range(whole, width, name="rest") as at:
            v = line.load(at)
            total.set(total.value + v * v)
        scales.store(row, 1.0 / (total.value / width.to(f32) + eps))


@kernel
def square_sums(k: Kernel, x: F32s, scales: F32s, sums: F32s, rows: I64s, stride: I64) -> None:
    """Add squares by column; unit = 64 columns of x [rows[0], stride]."""
    with k.units("columns") as unit:
        at = unit * COLUMNS
        totals = _zeros(k)
        with k.range(0, rows.load(0), name="row") as row:
            _add_row(k, totals, x.at(row * stride + at), scales.load(row))
        _add_to(sums.at(at), totals)


@kernel
def expert_square_sums(
    k: Kernel,
    x: F32s,
    scales: F32s,
    sums: F32s,
    counts: F32s,
    units: I64s,
    units_each: I64,
    active: I32s,
    starts: I32s,
    pairs: I32s,
    stride: I64,
    sums_stride: I64,
    *,
    share: int,
) -> None:
    """Add squares by expert: sums [experts, sums_stride], counts [experts] of the rows.

    units[0] / units_each experts are active; active, starts, pairs, share: see `gemm_experts`.
    """
    with k.units("columns") as unit:
        at = unit * COLUMNS
        with k.range(0, units.load(0) // units_each, name="slot") as slot:
            expert = active.load(slot).to(i64)
            start, end = (starts.load(slot + n).to(i64) for n in range(2))
            totals = _zeros(k)
            with k.range(start, end, name="pair") as n:
                row = pairs.load(n).to(i64) // share
                _add_row(k, totals, x.at(row * stride + at), scales.load(row))
            _add_to(sums.at(expert * sums_stride + at), totals)
            with k.if_(unit.eq(0)):
                counts.store(expert, counts.load(expert) + (end - start).to(f32))


def _zeros(k: Kernel) -> list:
    return [k.var(k.zeros(f32, _LANES)) for _ in range(COLUMNS // _LANES)]


def _add_row(k: Kernel, totals: list, line: Ptr, scale: Value) -> None:
    wide = scale.splat(_LANES)
    for n, total in enumerate(totals):
        v = line.load(n * _LANES, _LANES)
        total.set(total.value + v * v * wide)


def _add_to(sums: Ptr, totals: list) -> None:
    for n, total in enumerate(totals):
        sums.store(n * _LANES, sums.load(n * _LANES, _LANES) + total.value)


def reference(x: np.ndarray, eps: float | None) -> np.ndarray:
    """Sum squares: x float32 [rows, width] -> float64 [width]; eps: of the norm, None without."""
    wide = x.astype(np.float64)
    scales = 1.0 if eps is None else 1 / ((wide**2).mean(1, keepdims=True) + eps)
    return (wide**2 * scales).sum(0)
