"""Elementary functions over vectors, with stated error, for every target alike."""

from __future__ import annotations

from ..ir import f16, f32, i16, i32
from ..simd import Kernel, Value

# exp(r) on |r| <= ln(2)/2: Taylor coefficients 1/n! up to n = 7, error below 1e-8 relative.
_EXP = [1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0]
_ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds a float32 below 2^22 to the nearest even integer
_ROUND_BITS = 0x4B400000
_GELU = 0.7978845608028654  # sqrt(2 / pi)


def round_to_int(value: Value) -> Value:
    """float32 with |value| < 2^22 -> int32, to nearest, ties to even; no libm on any target."""
    return (value + _ROUND).bitcast(i32) - _ROUND_BITS


def exp(k: Kernel, x: Value) -> Value:
    """e^x for x <= 88; below -87.3 the result is the least normal float32; exp(0) is exactly 1.

    x = n ln 2 + r with |r| <= ln(2)/2 and e^x = 2^n e^r; relative error <= 2e-7.
    """
    x = x.max(-87.3)
    n = round_to_int(x * 1.4426950408889634)
    nf = n.to(f32)
    r = k.fma(nf, k.const(-0.693145751953125, x.type), x)  # ln 2 in two parts: exact product
    r = k.fma(nf, k.const(-1.428606765330187e-06, x.type), r)
    p = k.const(_EXP[0], x.type)
    for c in _EXP[1:]:
        p = k.fma(p, r, k.const(c, x.type))
    return ((n + 127) << 23).bitcast(f32) * p


def silu(k: Kernel, x: Value) -> Value:
    """x / (1 + e^-x)."""
    return x / (exp(k, (0 - x).min(88.0)) + 1.0)


def sigmoid(k: Kernel, x: Value) -> Value:
    """1 / (1 + e^-x); NaN where x is not finite."""
    return 1.0 / (exp(k, (0 - x).min(88.0)) + 1.0) + (x - x)


def softplus(k: Kernel, x: Value) -> Value:
    """ln(1 + e^x) = max(x, 0) + ln(1 + y), y = e^-|x|; relative error <= 4e-7.

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
    """x / 2 (1 + tanh(u)) = x / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    twice = x * k.fma(x * x, k.const(2 * _GELU * 0.044715, x.type), k.const(2 * _GELU, x.type))
    return x / (exp(k, (0 - twice).min(88.0)) + 1.0)


def tanh(k: Kernel, x: Value) -> Value:
    """1 - 2 / (1 + e^2x); absolute error <= 3e-7; NaN where x is not finite."""
    return 1.0 - 2.0 / (exp(k, (x + x).min(88.0)) + 1.0) + (x - x)


def f16_to_f32(k: Kernel, bits: Value) -> Value:
    """float16 bits in int16 -> float32; finite values only on targets without the instruction."""
    if k.target.has_f16:
        return bits.bitcast(f16).to(f32)
    wide = bits.to(i32, signed=False)
    # The exponent field moved 13 bits up is 112 too small: one exact multiplication mends it, and
    # denormals with it.
    magnitude = ((wide & 0x7FFF) << 13).bitcast(f32) * 2.0**112
    return (magnitude.bitcast(i32) | ((wide & 0x8000) << 16)).bitcast(f32)


def f32_to_f16(k: Kernel, value: Value) -> Value:
    """float32 -> float16 bits in int16, to nearest, ties to even; too large is infinite.

    NaN becomes an infinity on targets without the instruction.
    """
    if k.target.has_f16:
        return value.to(f16).bitcast(i16)
    bits = value.bitcast(i32)
    size = bits & 0x7FFFFFFF
    # The last bit of a float32 in [0.5, 1) is worth 2^-24, as a float16 denormal's is.
    least = (size.bitcast(f32) + 0.5).bitcast(i32) - 0x3F000000
    normal = (size - (112 << 23) + 0xFFF + ((size >> 13) & 1)) >> 13
    small = (size < (113 << 23)).select(least, normal)
    whole = (size < 0x477FF000).select(small, 0x7C00)  # 65520 and above
    return (whole | ((bits >> 16) & 0x8000)).to(i16)
