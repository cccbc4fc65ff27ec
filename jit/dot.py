"""int8 dot products: how each feature set sums four byte products into an int32 lane.

All of them compute, for every int32 lane i,

    acc[i] += sum(w[4*i + j] * x[4*i + j] for j in range(4))

with `w` unsigned or signed and `x` signed in -127..127. A block of 32 values is eight such steps
between `begin` and `end`, so that a target may keep a narrower running sum in between.
"""

from __future__ import annotations

import numpy as np

from .ir import bf16
from .simd import Kernel, Value, f32, i8, i16, i32, vec
from .targets import CpuTarget


def reference(acc: np.ndarray, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Add products of four bytes: acc int32 [lanes], w and x bytes [4 * lanes] -> int32 [lanes]."""
    products = w.astype(np.int32) * x.astype(np.int32)
    return acc + products.reshape(-1, 4).sum(axis=1, dtype=np.int32)


def running_steps(max_q: int | None) -> int:
    """Return how many of a block's 8 steps to take between `begin` and `end` of `Dot`."""
    return 4 if max_q is not None and 8 * 2 * max_q * 127 >= 32768 else 8


def few_registers(target: CpuTarget) -> bool:
    """Return whether a target has too few registers for int16 sums of small weights: AVX2, SSE."""
    return target.dot == "maddubs" and target.registers < 32


class Dot:
    """A running int8 sum over blocks of 32 values.

    `max_q` is the largest weight where weights are unsigned and small, or None for 8-bit
    weights, which are stored signed or with 128 added as `target.signed_bytes` says. Small
    weights let `maddubs` and `portable` stay in 16 bits: a pair is at most 2 * max_q * 127, and
    as many steps are added up there as fit below 32,768 (8 of them for weights up to 15:
    30,480).
    """

    def __init__(self, k: Kernel, max_q: int | None = None, steps: int = 8) -> None:
        """Set up a sum; steps: how many `step`s come between `begin` and `end`."""
        self.k = k
        self.small = max_q is not None and max_q <= 127
        self.kind = k.target.dot
        fits = max_q is not None and steps * 2 * max_q * 127 < 32768
        self.narrow = fits and self.kind in ("maddubs", "portable")

    def begin(self, init: Value) -> Value:
        """Return the running sum that represents int32 `init`."""
        return self.k.zeros(i16, 2 * init.lanes) if self.narrow else init

    def step(self, acc: Value, w: Value, x: Value, factor: Value | None = None) -> Value:
        """Add one K-group of four: `w` and `x` are int32 vectors of bytes.

        `factor` (``maddubs`` only), int16 [2 * lanes], multiplies the sum: here or in `end`.
        """
        if self.kind == "maddubs":
            return self._maddubs(acc, w, x, factor)
        if self.kind == "portable":
            return self._portable(acc, w, x)
        if self.kind == "mlal":
            return self._mlal(acc, w, x)
        if self.kind == "vpdpbusd":
            name = f"llvm.x86.avx512.vpdpbusd.{self.k.target.bits}"
            return self.k.call(name, acc.type, [acc, w, x])
        args = [acc, w.bitcast(i8), x.bitcast(i8)]
        return self.k.call(f"llvm.aarch64.neon.{self.kind}.v4i32.v16i8", acc.type, args)

    def end(self, acc: Value, init: Value, factor: Value | None = None) -> Value:
        """Return the running sum as int32."""
        if not self.narrow:
            return acc
        if self.kind == "maddubs":
            return init + _pmaddwd(self.k, acc, factor or self.k.const(1, acc.type))
        return init + _pair_sums(acc)

    def _maddubs(self, acc: Value, w: Value, x: Value, factor: Value | None) -> Value:
        k = self.k
        ws, xs = w.bitcast(i8), x.bitcast(i8)
        if self.small:  # the unsigned side is at most 127: nothing saturates
            pairs = _pmaddubs(k, ws, xs)
            if self.narrow:
                return acc + pairs
            return acc + _pmaddwd(k, pairs, factor or k.const(1, pairs.type))
        # maddubs saturates at 16 bits when the unsigned side passes 127: give it |w| <= 128 and
        # the sign to x, so that a pair is at most 2 * 128 * 127 = 32,512.
        if k.target.bits in _PSIGN:
            signed = k.call(f"llvm.x86.{_PSIGN[k.target.bits]}", xs.type, [xs, ws])
        else:
            signed = (ws < 0).select(0 - xs, xs)
        pairs = _pmaddubs(k, ws.abs(), signed)
        return acc + _pmaddwd(k, pairs, factor or k.const(1, pairs.type))

    def _portable(self, acc: Value, w: Value, x: Value) -> Value:
        # Even and odd bytes as int16: a pair of products is at most 2 * 128 * 127 = 32,512.
        ws, xs = w.bitcast(i16), x.bitcast(i16)
        even = (ws << 8).sar(8) * (xs << 8).sar(8)
        pairs = even + ws.sar(8) * xs.sar(8)
        return acc + pairs if self.narrow else acc + _pair_sums(pairs)

    def _mlal(self, acc: Value, w: Value, x: Value) -> Value:
        k = self.k
        (w0, w1), (x0, x1) = w.bitcast(i8).halves(), x.bitcast(i8).halves()
        eight, four = vec(i16, 8), vec(i32, 4)
        low = k.call("llvm.aarch64.neon.smull.v8i16", eight, [w0, x0])
        high = k.call("llvm.aarch64.neon.smull.v8i16", eight, [w1, x1])
        pairs = k.call("llvm.aarch64.neon.addp.v8i16", eight, [low, high])
        return acc + k.call("llvm.aarch64.neon.saddlp.v4i32.v8i16", four, [pairs])


def dot_words(k: Kernel, acc: Value, a: Value, b: Value) -> Value:
    """Add int16 products: acc[i] + a[2i] b[2i] + a[2i+1] b[2i+1]; a, b int32 vectors of pairs."""
    if k.target.dot == "vpdpbusd":
        name = f"llvm.x86.avx512.vpdpwssd.{k.target.bits}"
        return k.call(name, acc.type, [acc, a, b])
    if k.target.dot == "maddubs":
        return acc + _pmaddwd(k, a.bitcast(i16), b.bitcast(i16))
    low = (a << 16).sar(16) * (b << 16).sar(16)
    return acc + (low + a.sar(16) * b.sar(16))


# The instruction that must be in the assembly of a GEMM for each kind (tests read it there).
KEY_INSTRUCTION = {
    "portable": "",
    "maddubs": "pmaddubsw",
    "vpdpbusd": "vpdpbusd",
    "mlal": "smull",
    "sdot": "sdot",
    "usdot": "usdot",
}

_PMADDUBS = {128: "ssse3.pmadd.ub.sw.128", 256: "avx2.pmadd.ub.sw", 512: "avx512.pmaddubs.w.512"}
# x, -x or 0 as the sign of w is; there is none for 512 bits, where a mask does it.
_PSIGN = {128: "ssse3.psign.b.128", 256: "avx2.psign.b"}
_PMADDWD = {128: "sse2.pmadd.wd", 256: "avx2.pmadd.wd", 512: "avx512.pmaddw.d.512"}


def _pmaddubs(k: Kernel, unsigned: Value, signed: Value) -> Value:
    """Sum pairs of unsigned * signed byte products to int16, saturating."""
    result = vec(i16, unsigned.lanes // 2)
    return k.call(f"llvm.x86.{_PMADDUBS[k.target.bits]}", result, [unsigned, signed])


def _pmaddwd(k: Kernel, a: Value, b: Value) -> Value:
    """Sum pairs of int16 products to int32."""
    return k.call(f"llvm.x86.{_PMADDWD[k.target.bits]}", vec(i32, a.lanes // 2), [a, b])


def _pair_sums(pairs: Value) -> Value:
    """Add neighbors: int16 [2n] -> int32 [n]."""
    wide = pairs.bitcast(i32)
    return (wide << 16).sar(16) + wide.sar(16)


def bf16_dot(k: Kernel, acc: Value, a: Value, b: Value) -> Value:
    """Add bf16 products: acc[i] + a[2i] b[2i] + a[2i+1] b[2i+1]; a, b int32 vectors of pairs."""
    name = f"llvm.x86.avx512bf16.dpbf16ps.{k.target.bits}"
    pairs = vec(bf16, 2 * acc.lanes)
    args = [acc.value, *(k.b.bitcast(v.value, pairs) for v in (a, b))]
    fn = k.declare(name, acc.type, [acc.type, pairs, pairs])
    return Value(k, k.b.call(fn, args))


def pair_low(pair: Value) -> Value:
    """Return the even bf16 of each int32, as float32."""
    return (pair << 16).bitcast(f32)


def pair_high(pair: Value) -> Value:
    """Return the odd bf16 of each int32, as float32."""
    return (pair & -65536).bitcast(f32)


def to_bf16_bits(value: Value) -> Value:
    """Round float32 to nearest-even bf16; return int32 with the bits in its low half."""
    bits = value.bitcast(i32)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16_pairs_of(k: Kernel, value: Value) -> Value:
    """Round normal float32 to nearest-even bf16 pairs: int32, half as many lanes.

    One instruction for all of `to_bf16_bits`, but it makes zeros of denormals. Where there is
    `bf16_dot`.
    """
    name = f"llvm.x86.avx512bf16.cvtneps2bf16.{k.target.bits}"
    fn = k.declare(name, vec(bf16, value.lanes), [value.type])
    pairs = k.b.call(fn, [value.value])
    return Value(k, k.b.bitcast(pairs, vec(i32, value.lanes // 2)))
