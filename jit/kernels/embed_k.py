"""One block of a K-quant row as float32: embedding rows are read from the file's own layout."""

from __future__ import annotations

from ..simd import Kernel, Ptr, V, f32, i8, i16, i32
from .mathlib import f16_to_f32
from .panels_k import six_bits


def block_k(k: Kernel, fmt: str, src: Ptr, out: Ptr) -> None:
    """256 weights of one row, from the file's block at `src` to float32 at `out`."""
    if fmt == "q6_k":
        _block_q6(k, src, out)
        return
    d, dmin = (f16_to_f32(k, src.cast(i16).load(n)) for n in range(2))
    packed = [src.at(4).load(n).to(i32, signed=False) for n in range(12)]
    scales, mins = six_bits(packed)
    nibbles = src.at(16 if fmt == "q4_k" else 48)
    for sub in range(8):
        scale, least = d * scales[sub].to(f32), dmin * mins[sub].to(f32)
        for n in range(0, 32, k.lanes):
            q = _bytes(nibbles, sub // 2 * 32 + n, k.lanes)
            q = (q >> (4 * (sub % 2))) & 15
            if fmt == "q5_k":
                q = q | (((_bytes(src.at(16), n, k.lanes) >> sub) & 1) << 4)
            value = q.to(f32) * scale.splat(k.lanes) - least.splat(k.lanes)
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


def _bytes(src: Ptr, at: int, count: int) -> V:
    """Unsigned bytes as int32."""
    return src.cast(i8).load(at, count).to(i32, signed=False)
