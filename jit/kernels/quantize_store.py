"""Quantization parameters of the K-quants, and the byte layout of a super-block in a file."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..simd import Kernel, Ptr, Value, i16, i32
from .mathlib import f32_to_f16
from .quantize import scatter

STEPS = 16  # grids that are tried for a sub-block


@dataclass(frozen=True, slots=True)
class KType:
    """The quantization parameters of a K-quant type."""

    size: int
    """Number of weights in a sub-block."""
    max_q: int
    """Largest q (from 0, or from -(max_q + 1) / 2)."""
    scales: int
    """Largest integer scale."""
    mins: int
    """Largest integer min; 0: there are no mins, and scales are signed."""
    nbytes: int
    """Bytes of a super-block."""
    weights: int = 256
    """Number of weights in a super-block."""
    any_min: bool = False
    """Whether the min may have either sign; else it is 0 or below."""

    @property
    def lanes(self) -> int:
        return self.weights // self.size

    @property
    def middle(self) -> int:
        """The q that represents 0 where there is no min."""
        return (self.max_q + 1) // 2

    @property
    def grids(self) -> list[float]:
        """Numbers of steps to try, by which a sub-block's range or largest magnitude is divided."""
        reach = self.max_q if self.mins or self.any_min else self.middle
        finest = reach - min(3.0, reach / 2)
        width = reach + 1 - finest
        return [finest + width * n / (STEPS - 1) for n in range(STEPS)]


KTYPES = {
    "q2_k": KType(16, 3, 15, 15, 84),
    "q3_k": KType(16, 7, 32, 0, 110),
    "q4_k": KType(32, 15, 63, 63, 144),
    "q5_k": KType(32, 31, 63, 63, 176),
    "q6_k": KType(16, 63, 128, 0, 210),
}


class Found(NamedTuple):
    """The quantization of a super-block, whose sub-blocks are the lanes; all as float32."""

    form: KType
    quant: Callable[[Value], Value]
    """Loads q of one weight of each sub-block, given the index of the first stored value."""
    whole: Sequence[Value]
    """The integer scales, and mins if there are any."""
    halves: Sequence[Value]
    """The fp16 factors of the integer scales and mins."""


def _store_half(k: Kernel, out: Ptr, at: int, value: Value) -> None:
    out.at(at).cast(i16).store(0, f32_to_f16(k, value))


def _store_q45(k: Kernel, found: Found, out: Ptr) -> None:
    """Store Q4_K or Q5_K: d, e, 12 bytes of six-bit scales and mins, (fifth bits,) nibbles."""
    for n, value in enumerate(found.halves):
        _store_half(k, out, 2 * n, value)
    a, b = (v.to(i32) for v in found.whole)
    (a_low, a_high), (b_low, b_high) = a.halves(), b.halves()
    scatter(out.at(4), 1, a_low | (a_high >> 4) << 6)
    scatter(out.at(8), 1, b_low | (b_high >> 4) << 6)
    scatter(out.at(12), 1, (a_high & 15) | (b_high & 15) << 4)
    nibbles = 48 if found.form.max_q == 31 else 16
    with k.range(0, 32, name="store") as i:
        q = found.quant(i * 8).to(i32)
        low, high = q.shuffle(range(0, 8, 2)), q.shuffle(range(1, 8, 2))
        scatter(out.at(i + nibbles), 32, (low & 15) | (high & 15) << 4)
        if found.form.max_q == 31:
            bits = (q >> 4) << k.iota(8)
            scatter(out.at(i + 16), 1, bits.fold(lambda one, other: one | other))


def _quarters(q: Value, shift: int) -> Value:
    """Merge lane (half, quarter, part) of 16 -> lane (half, part) of 4, four quarters a byte.

    Weight 128 half + 32 quarter + 16 part + i is in lane (half, quarter, part), byte 32 half +
    16 part + i of a file's pairs of bits.
    """
    lanes = [8 * half + part for half in range(2) for part in range(2)]
    quarters = (q.shuffle([lane + 2 * n for lane in lanes]) << (shift * n) for n in range(4))
    return functools.reduce(operator.or_, quarters)


def _store_q6(k: Kernel, found: Found, out: Ptr) -> None:
    """Store Q6_K: low nibbles, high pairs of bits, int8 scales, d."""
    with k.range(0, 16, name="store") as i:
        q = found.quant(i * 16).to(i32)
        first = [8 * half + 2 * quarter + part
                 for half in range(2) for quarter in range(2) for part in range(2)]  # fmt: skip
        low, high = q.shuffle(first), q.shuffle([lane + 4 for lane in first])
        scatter(out.at(i), 16, (low & 15) | (high & 15) << 4)
        scatter(out.at(i + 128), 16, _quarters(q >> 4, 2))
    scatter(out.at(192), 1, found.whole[0].to(i32))
    _store_half(k, out, 208, found.halves[0])


def _store_q3(k: Kernel, found: Found, out: Ptr) -> None:
    """Store Q3_K: third bits, pairs of low bits, 12 bytes of six-bit scales, d."""
    with k.range(0, 16, name="store") as i:
        q = found.quant(i * 16).to(i32)
        third = q >> 2
        for part in range(2):
            lanes = [2 * n + part for n in range(8)]
            bits = third.shuffle(lanes) << k.iota(8)
            scatter(out.at(i + 16 * part), 1, bits.fold(lambda one, other: one | other))
        scatter(out.at(i + 32), 16, _quarters(q & 3, 2))
    a = found.whole[0].to(i32) + 32
    low, high = a.halves()
    scatter(out.at(96), 1, (low & 15) | (high & 15) << 4)
    tops = a >> 4
    parts = [tops.shuffle(range(4 * n, 4 * n + 4)) << (2 * n) for n in range(4)]
    scatter(out.at(104), 1, parts[0] | parts[1] | parts[2] | parts[3])
    _store_half(k, out, 108, found.halves[0])


def _store_q2(k: Kernel, found: Found, out: Ptr) -> None:
    """Store Q2_K: 16 bytes of scales and mins, pairs of bits, d, e."""
    scatter(out, 1, found.whole[0].to(i32) | found.whole[1].to(i32) << 4)
    with k.range(0, 16, name="store") as i:
        scatter(out.at(i + 16), 16, _quarters(found.quant(i * 16).to(i32), 2))
    for n, value in enumerate(found.halves):
        _store_half(k, out, 80 + 2 * n, value)


STORE = {84: _store_q2, 110: _store_q3, 144: _store_q45, 176: _store_q45, 210: _store_q6}
