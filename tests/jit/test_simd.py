"""The SIMD vocabulary: each word means the same on every feature set."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Runner, Table

from triplepoint.jit import simd
from triplepoint.jit.compile import spec
from triplepoint.jit.simd import (
    F32,
    I64,
    F32s,
    I8s,
    I16s,
    I32s,
    I64s,
    Kernel,
    Value,
    f32,
    i8,
    i16,
    i32,
    i64,
    kernel,
)
from triplepoint.jit.targets import detect

ASKS = ()  # see helpers/feature_sets.py


def _rows(out: np.ndarray, lanes: int) -> list[np.ndarray]:
    return list(out.reshape(-1, lanes))


# --- memory


@kernel
def some_lanes(k: Kernel, x: I32s, out: I32s) -> None:
    with k.units():
        value = x.load(0, k.lanes)
        out.store_where(1, value, value > 0)


def test_some_lanes(own: Runner, rng: np.random.Generator) -> None:
    """Lanes where the mask does not hold are not touched."""
    x = rng.integers(-5, 5, own.target.lanes, dtype=np.int32)
    out = np.full(own.target.lanes + 1, 77, np.int32)
    own.call(spec(some_lanes), [x, out], 0, 1)

    assert out.tolist() == [77, *np.where(x > 0, x, 77)]


# --- arithmetic


@kernel
def integers(k: Kernel, x: I32s, y: I32s, out: I32s) -> None:
    """Each operation on int32 vectors, one result after the other."""
    lanes = k.lanes
    with k.units():
        a, b = x.load(0, lanes), y.load(0, lanes)
        results = [a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, a << 3, a >> 5]
        results += [a.sar(5), a.min(b), a.max(b), a.abs(), 7 - a, 3 + a, 2 * a]
        results += [(a < b).select(a, 0), (a >= b).select(a, b), a.eq(b).select(a, -1)]
        for n, value in enumerate(results):
            out.store(n * lanes, value)


def test_integers(own: Runner, rng: np.random.Generator) -> None:
    """int32 arithmetic as in C: wrapping, division toward zero, two kinds of right shift."""
    lanes = own.target.lanes
    a = rng.integers(-(2**31), 2**31, lanes, dtype=np.int32)
    b = rng.integers(-1000, 1000, lanes, dtype=np.int32) * 2 + 1
    a[:3], b[:3] = [-7, 7, 2**31 - 1], [3, -3, 2**31 - 1]
    out = np.zeros(20 * lanes, np.int32)
    own.call(spec(integers), [a, b, out], 0, 1)

    wide, other = a.astype(np.int64), b.astype(np.int64)
    quotient = np.trunc(wide / other).astype(np.int64)
    want = [wide + other, wide - other, wide * other, quotient, wide - quotient * other]
    want += [wide & other, wide | other, wide ^ other, wide << 3, a.view(np.uint32) >> 5]
    want += [a >> 5, np.minimum(a, b), np.maximum(a, b), np.abs(wide), 7 - wide, 3 + wide]
    want += [2 * wide, np.where(a < b, a, 0), np.where(a >= b, a, b), np.where(a == b, a, -1)]
    for n, (got, expected) in enumerate(zip(_rows(out, lanes), want, strict=True)):
        assert np.array_equal(got, expected.astype(np.int32)), n


@kernel
def floats(k: Kernel, x: F32s, y: F32s, out: F32s) -> None:
    lanes = k.lanes
    with k.units():
        a, b = x.load(0, lanes), y.load(0, lanes)
        results = [a + b, a - b, a * b, a / b, 1.0 / b, 2.5 - a, a.min(b), a.max(b), a.abs()]
        results += [a.abs().sqrt(), (a < b).select(a, 0.5), a.ne(b).select(b, a)]
        for n, value in enumerate(results):
            out.store(n * lanes, value)


def test_floats(own: Runner, rng: np.random.Generator) -> None:
    """float32 arithmetic, correctly rounded as IEEE says."""
    lanes = own.target.lanes
    a = (rng.standard_normal(lanes) * 100).astype(np.float32)
    b = rng.standard_normal(lanes).astype(np.float32)
    a[0], b[1] = -0.0, a[1]
    out = np.zeros(12 * lanes, np.float32)
    own.call(spec(floats), [a, b, out], 0, 1)

    one = np.float32(1)
    want = [a + b, a - b, a * b, a / b, one / b, np.float32(2.5) - a, np.minimum(a, b)]
    want += [np.maximum(a, b), np.abs(a), np.sqrt(np.abs(a))]
    want += [np.where(a < b, a, np.float32(0.5)), np.where(a != b, b, a)]
    for n, (got, expected) in enumerate(zip(_rows(out, lanes), want, strict=True)):
        assert np.array_equal(got, expected), n


def test_a_number_beats_nan(own: Runner) -> None:
    """min and max give the number when the other side is NaN, and comparisons with NaN fail."""
    lanes = own.target.lanes
    a, b = np.full(lanes, np.nan, np.float32), np.full(lanes, 3.0, np.float32)
    out = np.zeros(12 * lanes, np.float32)
    for x, y in ((a, b), (b, a)):
        own.call(spec(floats), [x, y, out], 0, 1)
        rows = _rows(out, lanes)
        assert (rows[6] == 3.0).all()
        assert (rows[7] == 3.0).all()
        assert (rows[10] == 0.5).all()
        assert np.array_equal(rows[11], x, equal_nan=True)  # ordered: NaN != x does not hold


@kernel
def multiply_add(k: Kernel, x: F32s, y: F32s, z: F32s, out: F32s) -> None:
    with k.units():
        out.store(0, k.fma(x.load(0, k.lanes), y.load(0, k.lanes), z.load(0, k.lanes)))


def test_fma(own: Runner, rng: np.random.Generator) -> None:
    """a * b + c with one rounding where the target has FMA, else with two."""
    lanes = own.target.lanes
    a, b = (rng.standard_normal(lanes).astype(np.float32) for _ in range(2))
    c = -(a * b)  # so that what the product lost is all that is left
    out = np.zeros(lanes, np.float32)
    own.call(spec(multiply_add), [a, b, c, out], 0, 1)

    exact = (a.astype(np.float64) * b + c).astype(np.float32)
    assert np.array_equal(out, exact if own.target.has_fma else a * b + c)
    assert exact.any()


# --- lanes


@kernel
def lanes_moved(k: Kernel, x: F32s, out: F32s, whole: I32s) -> None:
    lanes = k.lanes
    with k.units():
        xs, ys = x.load(0, lanes), x.load(lanes, lanes)
        low, high = xs.halves()
        results = [xs.shuffle(range(lanes - 1, -1, -1)), xs.shuffle(range(1, 2 * lanes, 2), ys)]
        results += [high.shuffle(range(lanes), low), xs.at(2).splat(lanes), x.splat(3, lanes)]
        for n, value in enumerate(results):
            out.store(n * lanes, value)
        out.store(5 * lanes, xs.hsum())
        out.store(5 * lanes + 1, xs.hmax())
        out.store(5 * lanes + 2, xs.fold(lambda a, b: a - b))
        whole.store(0, k.iota(lanes))


def test_lanes(own: Runner, rng: np.random.Generator) -> None:
    """Shuffles, halves, broadcasts; folds in the one order that is promised."""
    lanes = own.target.lanes
    x = rng.standard_normal(2 * lanes).astype(np.float32)
    out, whole = np.zeros(5 * lanes + 3, np.float32), np.zeros(lanes, np.int32)
    own.call(spec(lanes_moved), [x, out, whole], 0, 1)

    a, half = x[:lanes], lanes // 2
    want = [a[::-1], x[1::2], np.roll(a, half), np.full(lanes, a[2]), np.full(lanes, a[3])]
    assert np.array_equal(out[: 5 * lanes].reshape(5, lanes), want)
    assert out[5 * lanes :].tolist() == [_fold(a, np.add), a.max(), _fold(a, np.subtract)]
    assert np.array_equal(whole, np.arange(lanes))


def _fold(values: np.ndarray, combine: np.ufunc) -> float:
    """Halves combined until one value is left, in float32."""
    while len(values) > 1:
        values = combine(*np.split(values, 2))
    return float(values[0])


# --- conversions


@kernel
def converted(k: Kernel, bytes_: I8s, x: F32s, ints: I32s, back: I8s, out: F32s) -> None:
    lanes = k.lanes
    with k.units():
        narrow = bytes_.load(0, lanes)
        ints.store(0, narrow.to(i32))
        ints.store(lanes, narrow.to(i32, signed=False))
        ints.store(2 * lanes, x.load(0, lanes).to(i32))
        ints.store(3 * lanes, x.load(0, lanes).bitcast(i32))
        back.store(0, (narrow.to(i32) + 1).to(i8))
        out.store(0, narrow.to(i32).to(f32))
        out.store(lanes, narrow.to(i32, signed=False).to(f32, signed=False))
        words = bytes_.cast(i16).load(0, 2)
        out.store(2 * lanes, words.to(i32).to(f32))


def test_conversions(own: Runner, rng: np.random.Generator) -> None:
    """Widening by sign or by zeros, narrowing by cutting, float to int toward zero."""
    lanes = own.target.lanes
    raw = rng.integers(0, 256, max(lanes, 4), dtype=np.uint8)
    raw[:4] = [0, 127, 128, 255]
    x = np.linspace(-3.9, 1000.9, lanes).astype(np.float32)
    ints, back = np.zeros(4 * lanes, np.int32), np.zeros(lanes, np.uint8)
    out = np.zeros(2 * lanes + 2, np.float32)
    own.call(spec(converted), [raw, x, ints, back, out], 0, 1)

    b = raw[:lanes]
    want = [b.view(np.int8), b, np.trunc(x), x.view(np.int32)]
    assert np.array_equal(ints.reshape(4, lanes), [w.astype(np.int32) for w in want])
    assert np.array_equal(back, b + np.uint8(1))
    assert np.array_equal(out[: 2 * lanes].reshape(2, lanes), [b.view(np.int8), b])
    assert out[2 * lanes :].tolist() == raw[:4].view(np.int16).tolist()


# --- control and arguments


@kernel
def counted(
    k: Kernel,
    base: I64,
    scale: F32,
    bytes_: I8s,
    words: I16s,
    longs: I64s,
    out: F32s,
    *,
    unroll: int,
) -> None:
    """out[unit] = sum over i in range(0, base, 3) of scale * i * unroll, if the unit is odd."""
    with k.units() as unit:
        total = k.var(k.f32(0.0))
        with k.range(0, base, step=3) as i:
            for _ in range(unroll):
                total.set(total.value + i.to(f32) * scale)
        with k.if_((unit % 2).eq(1)):
            out.store(unit, total.value)
        bytes_.store(unit, unit.to(i8))
        words.store(unit, (unit * 300).to(i16))
        longs.store(unit, unit * (1 << 40))
        longs.prefetch(unit + 1000)


def test_control_and_arguments(own: Runner) -> None:
    """Loops, branches, carried values; arguments of every type; only units in range are done."""
    out, longs = np.full(6, -1.0, np.float32), np.zeros(6, np.int64)
    bytes_, words = np.zeros(6, np.int8), np.zeros(6, np.int16)
    kernel_ = spec(counted, unroll=2)
    own.call(kernel_, [11, 0.5, bytes_, words, longs, out], 2, 6)

    assert out.tolist() == [-1, -1, -1, 18.0, -1, 18.0]  # 0.5 * 2 * (0 + 3 + 6 + 9)
    assert bytes_.tolist() == [0, 0, 2, 3, 4, 5]
    assert words.tolist() == [0, 0, 600, 900, 1200, 1500]
    assert longs.tolist() == [0, 0, *(n << 40 for n in range(2, 6))]

    out[:] = -1
    own.call(kernel_, [-4, 0.5, bytes_, words, longs, out], 1, 2)
    assert out.tolist() == [-1, 0.0, -1, -1, -1, -1]  # a range that ends before it starts
    own.call(kernel_, [11, 0.5, bytes_, words, longs, out], 3, 3)
    assert out.tolist() == [-1, 0.0, -1, -1, -1, -1]  # no units, no work


@kernel
def followed(k: Kernel, table: I64s, out: I32s) -> None:
    """Follow an address that stands in memory."""
    with k.units():
        out.store(0, k.pointer(table.load(1), i32).load(1, 2))


def test_addresses_from_memory(own: Runner) -> None:
    """An address read from memory is followed: how kernels find the pages of the cache."""
    first, second = np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32)
    out = np.zeros(2, np.int32)
    own.call(spec(followed), [Table([first, second]), out], 0, 1)

    assert out.tolist() == [11, 12]


@kernel
def through_the_stack(k: Kernel, x: I32s, out: I32s) -> None:
    """Four values to a small array on the stack, and back as a vector in another order."""
    with k.units():
        slots = k.scratch(i32, 4)
        for n in range(4):
            slots.store(n, x.load(3 - n))
        out.store(0, slots.load(0, 4))


def test_the_stack(own: Runner) -> None:
    """What is stored on the stack value by value is loaded as a vector."""
    out = np.zeros(4, np.int32)
    own.call(spec(through_the_stack), [np.arange(4, dtype=np.int32), out], 0, 1)

    assert out.tolist() == [3, 2, 1, 0]


# --- sources


def test_constants_are_checked() -> None:
    """A kernel is not built with a constant missing or one that it does not know."""
    with pytest.raises(AssertionError, match="unroll"):
        counted.build(detect())
    with pytest.raises(AssertionError, match="other"):
        counted.build(detect(), unroll=1, other=2)


def test_the_signature_is_the_abi() -> None:
    """Parameters and constants are read from the function's annotations."""
    assert list(counted.params) == ["base", "scale", "bytes_", "words", "longs", "out"]
    assert counted.params["base"] is i64
    assert counted.params["scale"] is f32
    assert counted.constants == ("unroll",)
    assert counted.name == "counted"


def test_undefined_operations_are_refused() -> None:
    """An integer operation on floats is our bug, and says so when the kernel is built."""

    @kernel
    def wrong(k: Kernel, x: F32s) -> None:
        value: Value = x.load(0)
        x.store(0, value & 1)

    with pytest.raises(AssertionError, match="and is not defined"):
        wrong.build(detect())
    assert simd.vec(f32, 1) is f32
