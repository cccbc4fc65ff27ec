"""Embedding rows: token ids -> float32, straight from the mapped file."""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I8s, I32s, Kernel, Ptr, Value, f32, i8, i16, i32, i64, kernel
from .codebook import TABLES, table_values
from .embed_k import block_k
from .mathlib import f16_to_f32
from .panels import FACTOR, FORMATS, Format, half_power, load_floats, nvfp4_block, small_scale


@kernel
def embed(
    k: Kernel,
    table: I8s,
    ids: I32s,
    out: F32s,
    row_bytes: I64,
    blocks: I64,
    out_stride: I64,
    *,
    fmt: str,
    scale: float = 1.0,
) -> None:
    """Set out[token] = scale * row ids[token] of `table` (file layout), float32; unit = token."""
    form = FORMATS[fmt]
    with k.units("token") as token:
        row = table.at(ids.load(token).to(i64) * row_bytes)
        line = out.at(token * out_stride)
        with k.range(0, blocks, name="block") as block:
            if form.sub_blocks > 1:
                _nvfp4(k, *nvfp4_block(row, block), line.at(block * form.block))
            else:
                _block(k, fmt, row.at(block * form.file_bytes), line.at(block * form.block))
        if scale != 1.0:
            with k.range(0, blocks * form.block, name="scale") as i:
                line.store(i, line.load(i) * scale)


def _block(k: Kernel, fmt: str, src: Ptr, out: Ptr) -> None:
    if FORMATS[fmt].family == "float":
        out.store(0, load_floats(k, fmt, src, 0, 1))
    elif FORMATS[fmt].family == "k":
        block_k(k, fmt, src, out)
    elif fmt == "q8_0":
        scale, lanes = f16_to_f32(k, src.cast(i16).load()), min(k.lanes, 16)
        for n in range(0, 32, lanes):
            out.store(n, _scaled(src.cast(i8).load(2 + n, lanes), scale))
    else:
        _nibbles(k, FORMATS[fmt], src, out)


def _nibbles(k: Kernel, form: Format, src: Ptr, out: Ptr) -> None:
    """Dequantize a block of nibbles, with fifth bits, a min or a table if the format has them."""
    lanes, zero_point = min(k.lanes, 16), form.zero_point(k.target)
    if form.name == "mxfp4":
        scale = (half_power(src.load()) << 23).bitcast(f32)
    else:
        scale = f16_to_f32(k, src.cast(i16).load())
    minimum = f16_to_f32(k, src.cast(i16).load(1)) if form.has_min else None
    bits = src.at(form.head_bytes - 4).cast(i32).load() if form.has_fifth else None
    for n in range(0, 16, lanes):
        raw = src.at(form.head_bytes).cast(i8).load(n, lanes)
        for high, q in enumerate((raw & 15, raw >> 4)):
            wide = q.to(i32, signed=False)
            if bits is not None:
                own = (bits >> (16 * high + n)).splat(lanes) >> k.iota(lanes)
                wide = wide | ((own & 1) << 4)
            weight = wide - zero_point
            if form.name in TABLES:
                weight = table_values(k, wide, TABLES[form.name])
            value = _scaled(weight, scale)
            out.store(16 * high + n, value if minimum is None else value + minimum.splat(lanes))


def _nvfp4(k: Kernel, scales: Ptr, nibbles: Ptr, out: Ptr) -> None:
    """Dequantize 32 weights: their two scales, and their nibbles."""
    lanes = min(k.lanes, 8)
    for sub in range(2):
        bits = (small_scale(scales.load(sub)) << 7).to(i16)
        scale = f16_to_f32(k, bits) * FACTOR
        for n in range(0, 8, lanes):
            raw = nibbles.cast(i8).load(8 * sub + n, lanes)
            for high, q in enumerate((raw & 15, raw >> 4)):
                weight = table_values(k, q.to(i32, signed=False), TABLES["nvfp4"])
                out.store(16 * sub + 8 * high + n, _scaled(weight, scale))


def _scaled(q: Value, scale: Value) -> Value:
    return q.to(i32).to(f32) * scale.splat(q.lanes)


def reference(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Gather rows float32 [vocabulary, width] (dequantized) -> [tokens, width]."""
    return rows[ids]
