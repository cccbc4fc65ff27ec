"""Argmax over the vocabulary, for greedy sampling: the first of a row's largest allowed logits."""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I32s, I64s, Kernel, Value, i32, i64, kernel

PARTS = 16  # slices of the vocabulary; each leaves one candidate
NEVER = -3.4e38


@kernel
def argmax_part(
    k: Kernel,
    logits: F32s,
    row: I64s,
    stride: I64,
    mask: I32s,
    mask_stride: I64,
    use_mask: I64s,
    best: F32s,
    where: I64s,
    count: I64,
) -> None:
    """Find a slice's largest allowed logit and its index; unit = (row, slice), slice fastest.

    logits: float32 [rows, stride]; the first row is row[0]. mask: int32
    [rows, mask_stride], one bit for each token, used for rows whose use_mask is not 0. best, where:
    [rows, PARTS]. A row is padded to a multiple of 32 * PARTS; indices at or past `count` are never
    chosen. A slice with nothing allowed gives -3.4e38.
    """
    lanes = k.lanes
    words = (count + 31) // 32
    with k.units() as unit:
        number, part = row.load(0) + unit // PARTS, unit % PARTS
        begin, end = words * part // PARTS, words * (part + 1) // PARTS
        masked = use_mask.load(number).ne(0)
        bits, line = mask.at(number * mask_stride), logits.at(number * stride)
        largest = k.var(k.f32(NEVER, lanes))
        index = k.var(k.zeros(i32, lanes))
        with k.range(begin, end, name="word") as word:
            allowed = masked.select(bits.load(masked.select(word, 0)), -1).splat(lanes)
            for n in range(0, 32, lanes):
                at = k.iota(lanes) + (word * 32 + n).to(i32).splat(lanes)
                bit = (allowed >> (k.iota(lanes) + n)) & 1
                x = line.load(word * 32 + n, lanes)
                usable = bit.ne(0) & (at < count.to(i32).splat(lanes)) & (x > largest.value)
                largest.set(usable.select(x, largest.value))
                index.set(usable.select(at, index.value))
        maximum = largest.value.hmax()
        # Among lanes that hold the maximum, the smallest index.
        ties = largest.value.eq(maximum.splat(lanes)).select(index.value, 0x7FFFFFFF)
        best.store(number * PARTS + part, maximum)
        where.store(number * PARTS + part, ties.fold(lambda a, b: a.min(b)).to(i64))


@kernel
def argmax_final(k: Kernel, best: F32s, where: I64s, out: I64s, row: I64s) -> None:
    """Set out[row] to the argmax of its slices; -1: none allowed. Unit = row, from row[0] on."""
    with k.units() as unit:
        number = row.load(0) + unit
        value, index = k.var(k.f32(NEVER)), k.var(k.const(-1, i64))
        for n in range(PARTS):
            x: Value = best.load(number * PARTS + n)
            better = x > value.value
            index.set(better.select(where.load(number * PARTS + n), index.value))
            value.set(better.select(x, value.value))
        out.store(number, index.value)


def reference(logits: np.ndarray, allowed: np.ndarray | None = None) -> int:
    """Return the index of the first maximum: logits float32 [n], allowed bool [n]; -1 for none."""
    if allowed is None:
        return int(np.argmax(logits))
    if not allowed.any():
        return -1
    return int(np.argmax(np.where(allowed, logits, -np.inf)))
