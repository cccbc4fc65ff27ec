"""Float weights to blocks of 32: Q4_0 to Q5_1, Q8_0 and MXFP4, with the bytes of ggml.

Lane = block: 16 blocks are turned so that vector i holds weight i of each of them, and then all
is done lane by lane, in one order on every target. Nothing is contracted, so that the numpy
reference gives the same bytes.

| type | scale d | stored |
|------|---------|--------|
| q4_0, q5_0 | the weight farthest from 0, divided by -8 or -16 | trunc(x / d + 8.5) or 16.5 |
| q4_1, q5_1 | (max - min) / 15 or 31, and the min | trunc((x - min) / d + 0.5) |
| q8_0 | max abs / 127 | x / d, halves rounded away from 0 |
| mxfp4 | 2^n, so that the max abs / d is from 8 to 16 | the nearest of 0 to 12 of a table |

where x / d is x times the rounded 1 / d, and d is stored as fp16 after that (MXFP4: its exponent;
1 / d is exact then).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from ..simd import F32s, I8s, Kernel, Ptr, Value, Var, f32, i8, i16, i32, kernel
from .codebook import E2M1
from .mathlib import f32_to_f16
from .panels import FORMATS, Format

LANES = 16  # blocks that a unit makes


@kernel
def quantize_blocks(k: Kernel, rows: F32s, out: I8s, *, fmt: str) -> None:
    """Quantize `rows` to blocks of `fmt`; unit = 16 blocks, one after the other in both."""
    form = FORMATS[fmt]
    x = k.scratch(f32, 32 * LANES)
    with k.units() as unit:
        transpose(k, rows.at(unit * (32 * LANES)), x, 32, LANES)
        _block(k, form, x, out.at(unit * (LANES * form.file_bytes)))


def transpose(k: Kernel, src: Ptr, x: Ptr, size: int, lanes: int) -> None:
    """Transpose: x[i * lanes + lane] = src[lane * size + i]."""
    with k.range(0, size, name="turn") as i:
        for lane in range(lanes):
            x.store(i * lanes + lane, src.load(i + lane * size))


def _block(k: Kernel, form: Format, x: Ptr, out: Ptr) -> None:
    if form.name == "mxfp4":
        exponent, quant = _power(k, x)
        scatter(out, form.file_bytes, exponent)
        scale: list[Value] = []
    else:
        scale, quant = _scale(k, form, x)
    store_blocks(k, form, x, scale, quant, out)


def store_blocks(
    k: Kernel,
    form: Format,
    x: Ptr,
    scale: list[Value],
    quant: Callable[[Value], Value],
    out: Ptr,
) -> None:
    """Store 16 blocks: `scale` and min as fp16, and quant(x) (int32) of their weights."""
    for n, value in enumerate(scale):
        bits = f32_to_f16(k, value)
        for lane in range(LANES):
            out.at(lane * form.file_bytes + 2 * n).cast(i16).store(0, bits.at(lane))
    if form.name == "q8_0":
        with k.range(0, 32) as i:
            scatter(out.at(i + 2), form.file_bytes, quant(x.load(i * LANES, LANES)))
        return
    fifth = k.var(k.zeros(i32, LANES))
    with k.range(0, 16) as i:
        low = quant(x.load(i * LANES, LANES))
        high = quant(x.load((i + 16) * LANES, LANES))
        scatter(out.at(i + form.head_bytes), form.file_bytes, (low & 15) | (high & 15) << 4)
        if form.has_fifth:
            at = i.to(i32).splat(LANES)
            fifth.set(fifth.value | (low >> 4) << at | (high >> 4) << (at + 16))
    if form.has_fifth:
        for n in range(4):
            scatter(out.at(form.head_bytes - 4 + n), form.file_bytes, fifth.value >> (8 * n))


# Halfway from each of the table's values to the next: what lies above has the next one.
E2M1_BOUNDS = tuple((a + b) / 2 for a, b in itertools.pairwise(E2M1[:8]))


def _power(k: Kernel, x: Ptr) -> tuple[Value, Callable[[Value], Value]]:
    """Return the exponents of MXFP4 blocks (int32 [lanes]), and the rounding of their weights."""
    largest = farthest(k, x, 32, LANES).bitcast(i32)
    exponent = (((largest >> 23) & 255) - 2).max(0)
    # 1 / 2^(exponent - 128), of what is not all zeros; the smallest ones are no normal numbers.
    inverse = ((255 - exponent.max(2)) << 23).bitcast(f32)

    def quant(v: Value) -> Value:
        size, found = v.abs() * inverse, k.zeros(i32, LANES)
        for bound in E2M1_BOUNDS:
            found = found + (size > bound).select(k.const(1, found.type), 0)
        # A value that rounds to 0 has no sign.
        return found | ((v < 0.0).select(found.min(1), 0) << 3)

    return exponent, quant


def _scale(k: Kernel, form: Format, x: Ptr) -> tuple[list[Value], Callable[[Value], Value]]:
    """Return what a block's head holds, and how its weights become integers."""
    if form.has_min:
        low, high = extremes(k, x, 32, LANES)
        d = (high - low) / float(form.max_q or 1)
        inverse = reciprocal(d)
        return [d, low], lambda v: clamped(((v - low) * inverse + 0.5).to(i32), form.max_q or 1)
    if form.name == "q8_0":
        d = farthest(k, x, 32, LANES).abs() / 127.0
        inverse = reciprocal(d)
        return [d], lambda v: _away(v * inverse)
    middle = ((form.max_q or 1) + 1) // 2
    d = farthest(k, x, 32, LANES) / float(-middle)
    inverse = reciprocal(d)
    return [d], lambda v: clamped((v * inverse + (middle + 0.5)).to(i32), form.max_q or 1)


def clamped(value: Value, largest: int) -> Value:
    """Clamp int32 to 0 … `largest`."""
    return value.min(largest).max(0)


def _away(value: Value) -> Value:
    """Round float32 to int32, halves away from zero."""
    size = value.abs()
    whole = size.to(i32)
    rounded = whole + ((size - whole.to(f32)) >= 0.5).select(whole * 0 + 1, 0)
    return (value < 0.0).select(0 - rounded, rounded)


def reciprocal(value: Value) -> Value:
    """Compute 1 / value, and 0 for 0."""
    return value.eq(0.0).select(value * 0.0, 1.0 / value)


def extremes(k: Kernel, x: Ptr, size: int, lanes: int) -> tuple[Value, Value]:
    """Return the minimum and maximum of each lane."""
    first = x.load(0, lanes)
    low, high = k.var(first), k.var(first)
    with k.range(1, size) as i:
        v = x.load(i * lanes, lanes)
        low.set((v < low.value).select(v, low.value))
        high.set((v > high.value).select(v, high.value))
    return low.value, high.value


def farthest(k: Kernel, x: Ptr, size: int, lanes: int) -> Value:
    """Return the first value of each lane that is farthest from zero."""
    best: Var = k.var(x.load(0, lanes))
    with k.range(1, size) as i:
        v = x.load(i * lanes, lanes)
        best.set((v.abs() > best.value.abs()).select(v, best.value))
    return best.value


def scatter(out: Ptr, stride: int, values: Value) -> None:
    """Store the low byte of lane n to out[n * stride]."""
    small = values.to(i8)
    for lane in range(values.lanes):
        out.store(lane * stride, small.at(lane) if values.lanes > 1 else small)


def reference(rows: np.ndarray, fmt: str) -> np.ndarray:
    """Quantize rows float32 [..., n * 32] -> uint8 [blocks, bytes of a block]."""
    form, x = FORMATS[fmt], rows.reshape(-1, 32)
    if fmt == "mxfp4":
        d = np.abs(x).max(1, keepdims=True)
        exponent = np.maximum((d.view(np.int32) >> 23) - 2, 0)
        size = np.ldexp(np.abs(x), 128 - exponent)
        q = (size[..., None] > np.array(E2M1_BOUNDS, np.float32)).sum(-1).astype(np.uint8)
        q |= ((x < 0) & (q > 0)).astype(np.uint8) << 3
        return np.concatenate([exponent.astype(np.uint8), q[:, :16] | q[:, 16:] << 4], axis=1)
    if fmt == "q8_0":
        d = np.abs(x).max(1, keepdims=True) / np.float32(127)
        y = x * reciprocal_reference(d)
        size = np.abs(y)
        whole = np.floor(size)
        q = np.copysign(whole + (size - whole >= 0.5), y)
        return np.concatenate([half(d), q.astype(np.int8).view(np.uint8)], axis=1)
    max_q = form.max_q or 1
    if form.has_min:
        low = x.min(1, keepdims=True)
        d = (x.max(1, keepdims=True) - low) / np.float32(max_q)
        y = (x - low) * reciprocal_reference(d) + np.float32(0.5)
        head = [half(d), half(low)]
    else:
        middle = (max_q + 1) // 2
        d = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1) / np.float32(-middle)
        y = x * reciprocal_reference(d) + np.float32(middle + 0.5)
        head = [half(d)]
    q = np.clip(y.astype(np.int32), 0, max_q).astype(np.uint8)
    if form.has_fifth:
        head.append(np.packbits(q >> 4, axis=1, bitorder="little"))
    return np.concatenate([*head, q[:, :16] & 15 | (q[:, 16:] & 15) << 4], axis=1)


def reciprocal_reference(value: np.ndarray) -> np.ndarray:
    """Compute 1 / value, and 0 for 0."""
    return np.where(value == 0, np.float32(0), np.float32(1) / np.where(value == 0, 1, value))


def half(values: np.ndarray) -> np.ndarray:
    """Convert float32 [..., n] -> the bytes of fp16, uint8 [..., 2 n]; overflow gives infinity."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values.astype("<f2")).view(np.uint8)
