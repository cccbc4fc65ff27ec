"""One block of a K-quant row as float32: embedding rows are read in the file's own layout."""

from __future__ import annotations

from collections.abc import Iterator

from ..simd import Kernel, Ptr, Value, f32, i8, i16, i32
from . import grids, grids8
from .codebook import IQ4_NL, TABLES, UNIT, table_values
from .grids8 import EIGHTS
from .mathlib import f16_to_f32
from .panels_k import six_bits
from .panels_small import GRIDS, q3_scales, xs_scales


def block_k(k: Kernel, fmt: str, src: Ptr, out: Ptr) -> None:
    """Dequantize 256 weights of one row from the file's block at `src` to float32 at `out`."""
    other = {"q2_k": _block_q2, "q3_k": _block_q3, "q6_k": _block_q6, "iq4_xs": _block_xs}.get(fmt)
    if other:
        other(k, src, out)
        return
    if fmt in GRIDS or fmt in EIGHTS:
        _block_grid(k, fmt, src, out)
        return
    d, dmin = (f16_to_f32(k, src.cast(i16).load(n)) for n in range(2))
    packed = [src.at(4).load(n).to(i32, signed=False) for n in range(12)]
    scales, mins = six_bits(packed)
    nibbles = src.at(16 if fmt == "q4_k" else 48)
    for sub in range(8):
        scale, minimum = d * scales[sub].to(f32), dmin * mins[sub].to(f32)
        for n in range(0, 32, k.lanes):
            q = _bytes(nibbles, sub // 2 * 32 + n, k.lanes)
            q = (q >> (4 * (sub % 2))) & 15
            if fmt == "q5_k":
                q = q | (((_bytes(src.at(16), n, k.lanes) >> sub) & 1) << 4)
            value = q.to(f32) * scale.splat(k.lanes) - minimum.splat(k.lanes)
            out.store(sub * 32 + n, value)


def _block_q6(k: Kernel, src: Ptr, out: Ptr) -> None:
    d = f16_to_f32(k, src.at(208).cast(i16).load())
    step = min(k.lanes, 16)  # a sub-block has 16
    for half in range(2):
        for quarter in range(4):
            for n in range(0, 32, step):
                low = _bytes(src, half * 64 + (quarter % 2) * 32 + n, step)
                high = _bytes(src, 128 + half * 32 + n, step)
                q = ((low >> (4 * (quarter // 2))) & 15) | (((high >> (2 * quarter)) & 3) << 4)
                sub = half * 8 + quarter * 2 + n // 16
                scale = d * src.at(192).load(sub).to(i32).to(f32)
                value = (q - 32).to(f32) * scale.splat(step)
                out.store(half * 128 + quarter * 32 + n, value)


def _block_q2(k: Kernel, src: Ptr, out: Ptr) -> None:
    d, dmin = (f16_to_f32(k, src.at(80).cast(i16).load(n)) for n in range(2))
    for sub in range(8):
        both = [src.load(2 * sub + n).to(i32, signed=False) for n in range(2)]
        for n, q in _two_bits(k, src.at(16), sub):
            one = both[n // 16]
            scale, minimum = d * (one & 15).to(f32), dmin * (one >> 4).to(f32)
            value = q.to(f32) * scale.splat(q.lanes) - minimum.splat(q.lanes)
            out.store(sub * 32 + n, value)


def _block_q3(k: Kernel, src: Ptr, out: Ptr) -> None:
    d = f16_to_f32(k, src.at(108).cast(i16).load())
    scales = q3_scales([src.at(96).load(n).to(i32, signed=False) for n in range(12)])
    for sub in range(8):
        for n, low in _two_bits(k, src.at(32), sub):
            top = (_bytes(src, n, low.lanes) >> sub) & 1
            scale = d * scales[2 * sub + n // 16].to(f32)
            value = ((low | (top << 2)) - 4).to(f32) * scale.splat(low.lanes)
            out.store(sub * 32 + n, value)


def _two_bits(k: Kernel, quants: Ptr, sub: int) -> Iterator[tuple[int, Value]]:
    """Return the lower bits of 32 values as (index of the first, values), 16 at most at a time."""
    step = min(k.lanes, 16)
    for n in range(0, 32, step):
        yield n, (_bytes(quants, sub // 4 * 32 + n, step) >> (2 * (sub % 4))) & 3


def _block_xs(k: Kernel, src: Ptr, out: Ptr) -> None:
    d, step = f16_to_f32(k, src.cast(i16).load()), min(k.lanes, 16)
    high = src.at(2).cast(i16).load().to(i32, signed=False)
    scales = xs_scales(high, [src.at(4).load(n).to(i32, signed=False) for n in range(4)])
    for sub in range(8):
        scale = (d * scales[sub].to(f32)).splat(step)
        for n in range(0, 16, step):
            both = _bytes(src.at(8), sub * 16 + n, step)
            for half, index in enumerate((both & 15, both >> 4)):
                value = table_values(k, index, IQ4_NL).to(f32) * scale
                out.store(sub * 32 + half * 16 + n, value)


def _block_grid(k: Kernel, fmt: str, src: Ptr, out: Ptr) -> None:
    d = f16_to_f32(k, grids8.half_float(fmt, src)) * UNIT.get(fmt, 1.0)
    if fmt in EIGHTS:
        indices = grids8.indices(fmt, grids.words(k, fmt), src)
        scales = [grids8.halves(fmt, scale) for scale in grids8.scales(fmt, src)]
    else:
        indices = grids.nibbles(fmt, grids.words(k, fmt), src)
        scales = [[scale] for scale in grids.scales(fmt, src)]
    for sub, (both, groups) in enumerate(zip(scales, indices, strict=True)):
        for g, word in enumerate(groups):
            wide = (d * both[g * len(both) // 8].to(f32)).splat(4)
            q = (word.splat(4) >> (k.iota(4) << 3)) & (len(TABLES[fmt]) - 1)
            out.store(sub * 32 + g * 4, table_values(k, q, TABLES[fmt]).to(f32) * wide)


def _bytes(src: Ptr, at: int, count: int) -> Value:
    """Load unsigned bytes as int32."""
    return src.cast(i8).load(at, count).to(i32, signed=False)
