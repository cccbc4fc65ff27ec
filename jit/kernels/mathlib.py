"""Elementary functions over vectors, with stated error bounds, for every target alike."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import f16, f32, i16, i32
from ..simd import Kernel, Value

# exp(r) on |r| <= ln(2)/2: Taylor coefficients 1/n! up to n = 7, error below 1e-8 relative.
_EXP = [1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0]
ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds a float32 below 2^22 to the nearest even integer
ROUND_BITS = 0x4B400000
_GELU = 0.7978845608028654  # sqrt(2 / pi)


def round_to_int(value: Value) -> Value:
    """Round float32 with |value| < 2^22 to nearest int32, ties to even; no libm on any target."""
    return (value + ROUND).bitcast(i32) - ROUND_BITS


def exp(k: Kernel, x: Value) -> Value:
    """Compute e^x for x <= 88; below -87.3 it is the smallest normal float32; exp(0) is exactly 1.

    x = n ln 2 + r with |r| <= ln(2)/2 and e^x = 2^n e^r; relative error <= 2e-7.
    """
    return exp_each(k, [x])[0]


def exp_each(k: Kernel, xs: Sequence[Value], min_exponent: float = -87.3) -> list[Value]:
    """Compute `exp` of each vector, interleaved step by step to hide latency.

    min_exponent: lower bound to which smaller exponents are raised.
    """
    # A comparison and a choice are one instruction on x86, which `Value.max` is not.
    xs = [(x > min_exponent).select(x, min_exponent) for x in xs]
    rounded = [x * 1.4426950408889634 for x in xs]
    rounded = [y + ROUND for y in rounded]
    ns = [y - ROUND for y in rounded]
    rs = xs
    for part in (-0.693145751953125, -1.428606765330187e-06):  # ln 2 in two: an exact product
        rs = [k.fma(n, k.const(part, r.type), r) for n, r in zip(ns, rs, strict=True)]
    ps = [k.const(_EXP[0], x.type) for x in xs]
    for c in _EXP[1:]:
        ps = [k.fma(p, r, k.const(c, r.type)) for p, r in zip(ps, rs, strict=True)]
    # p is normal before and after: n is added to its exponent. Shifted so far, of the bits of
    # `rounded` only those of n are left.
    powers = [y.bitcast(i32) << 23 for y in rounded]
    return [(p.bitcast(i32) + n).bitcast(f32) for p, n in zip(ps, powers, strict=True)]


def exp_below_each(k: Kernel, xs: Sequence[Value]) -> list[Value]:
    """Compute e^x of values <= 0, for attention's softmax: where x is below -70, e^-70.

    That is nothing beside 1, and its product with anything above 3e-8 is a normal number. Denormals
    take a Xeon many times as long: with scores that far apart a prefill's attention took 7 times as
    long over bf16, and 4 times over int8 (an Emerald Rapids).
    """
    return exp_each(k, xs, -70.0)


def silu(k: Kernel, x: Value) -> Value:
    """Compute x / (1 + e^-x)."""
    return silu_each(k, [x])[0]


def silu_each(k: Kernel, xs: Sequence[Value]) -> list[Value]:
    """Compute `silu` of each vector; see `exp_each`."""
    return [x / (e + 1.0) for x, e in zip(xs, _inverse_exp_each(k, xs), strict=True)]


def _inverse_exp_each(k: Kernel, xs: Sequence[Value]) -> list[Value]:
    """Compute e^-x, at most e^88."""
    negated = [0 - x for x in xs]
    return exp_each(k, [(x < 88.0).select(x, 88.0) for x in negated])


def sigmoid(k: Kernel, x: Value) -> Value:
    """Compute 1 / (1 + e^-x); NaN where x is not finite."""
    return 1.0 / (_inverse_exp_each(k, [x])[0] + 1.0) + (x - x)


def softplus(k: Kernel, x: Value) -> Value:
    """Compute ln(1 + e^x) = max(x, 0) + ln(1 + y), y = e^-|x|; relative error <= 4e-7.

    With z = y / (2 + y) <= 1/3 the logarithm is 2 artanh(z) = 2 z (1 + z^2 / 3 + z^4 / 5 + …). NaN
    where x is not finite.
    """
    y = exp(k, 0 - x.abs())
    z = y / (y + 2.0)
    square = z * z
    p = k.const(1 / 15, x.type)
    for n in range(13, 0, -2):
        p = k.fma(p, square, k.const(1 / n, x.type))
    return k.fma(z + z, p, x.max(0.0)) + (x - x)


def gelu(k: Kernel, x: Value) -> Value:
    """Compute x / 2 (1 + tanh(u)) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    return gelu_each(k, [x])[0]


def gelu_each(k: Kernel, xs: Sequence[Value]) -> list[Value]:
    """Compute `gelu` of each vector; see `exp_each`."""
    cubic, linear = 2 * _GELU * 0.044715, 2 * _GELU
    twice = [x * k.fma(x * x, k.const(cubic, x.type), k.const(linear, x.type)) for x in xs]
    return [x / (e + 1.0) for x, e in zip(xs, _inverse_exp_each(k, twice), strict=True)]


def tanh(k: Kernel, x: Value) -> Value:
    """Compute 1 - 2 / (1 + e^2x); absolute error <= 3e-7; NaN where x is not finite."""
    return 1.0 - 2.0 / (exp(k, (x + x).min(88.0)) + 1.0) + (x - x)


def f16_to_f32(k: Kernel, bits: Value) -> Value:
    """Convert float16 bits (int16) to float32; without the instruction only finite values."""
    if k.target.has_f16:
        return bits.bitcast(f16).to(f32)
    wide = bits.to(i32, signed=False)
    # The exponent field moved 13 bits up is 112 too small: one exact multiplication mends it, and
    # denormals with it.
    magnitude = ((wide & 0x7FFF) << 13).bitcast(f32) * 2.0**112
    return (magnitude.bitcast(i32) | ((wide & 0x8000) << 16)).bitcast(f32)


def f32_to_f16(k: Kernel, value: Value) -> Value:
    """Convert float32 to float16 bits in int16, to nearest, ties to even; overflow gives infinity.

    NaN becomes an infinity on targets without the instruction.
    """
    if k.target.has_f16:
        return value.to(f16).bitcast(i16)
    bits = value.bitcast(i32)
    size = bits & 0x7FFFFFFF
    # The last bit of a float32 in [0.5, 1) is worth 2^-24, as a float16 denormal's is.
    subnormal = (size.bitcast(f32) + 0.5).bitcast(i32) - 0x3F000000
    normal = (size - (112 << 23) + 0xFFF + ((size >> 13) & 1)) >> 13
    small = (size < (113 << 23)).select(subnormal, normal)
    whole = (size < 0x477FF000).select(small, 0x7C00)  # 65520 and above
    return (whole | ((bits >> 16) & 0x8000)).to(i16)


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two; `b` if `a` is NaN. One instruction on x86, unlike `V.max`."""
    return (a > b).select(a, b)
