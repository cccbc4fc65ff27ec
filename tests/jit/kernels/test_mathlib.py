"""Elementary functions: within the error that they state, on every feature set."""

from __future__ import annotations

import numpy as np
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import mathlib
from triplepoint.jit.simd import F32s, I16s, I32s, Kernel, kernel

ASKS = ()  # see helpers/feature_sets.py
MANY = 4096  # values of one call, a multiple of every vector width
HALVES = 65536  # values to be made float16 in one call


@kernel
def exponential(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.exp(k, x.load(i, k.lanes)))


@kernel
def softmax_weights(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.exp_below_each(k, [x.load(i, k.lanes)])[0])


@kernel
def silu(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.silu(k, x.load(i, k.lanes)))


@kernel
def gelu(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.gelu(k, x.load(i, k.lanes)))


@kernel
def tanh(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.tanh(k, x.load(i, k.lanes)))


@kernel
def sigmoid(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.sigmoid(k, x.load(i, k.lanes)))


@kernel
def softplus(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.softplus(k, x.load(i, k.lanes)))


@kernel
def softplus_of_one(k: Kernel, x: F32s, out: F32s) -> None:
    with k.units(), k.range(0, MANY) as i:
        out.store(i, mathlib.softplus(k, x.load(i)))


@kernel
def rounded(k: Kernel, x: F32s, out: I32s) -> None:
    with k.units(), k.range(0, MANY, step=k.lanes) as i:
        out.store(i, mathlib.round_to_int(x.load(i, k.lanes)))


@kernel
def widened(k: Kernel, x: I16s, out: F32s) -> None:
    with k.units(), k.range(0, 65536, step=k.lanes) as i:
        out.store(i, mathlib.f16_to_f32(k, x.load(i, k.lanes)))


@kernel
def narrowed(k: Kernel, x: F32s, out: I16s) -> None:
    with k.units(), k.range(0, HALVES, step=k.lanes) as i:
        out.store(i, mathlib.f32_to_f16(k, x.load(i, k.lanes)))


def _apply(own: Runner, kernel_: object, x: np.ndarray) -> np.ndarray:
    out = np.zeros(len(x), np.float32)
    own.call(spec(kernel_), [x, out], 0, 1)  # pyright: ignore[reportArgumentType]
    return out


def test_exp(own: Runner, rng: np.random.Generator) -> None:
    """Relative error at most 2e-7 from the least normal number up; exp(0) is exactly 1."""
    x = np.linspace(-87.3, 88.0, MANY).astype(np.float32)
    x[0] = 0.0
    x[1:1000] = rng.uniform(-1, 1, 999)
    got = _apply(own, exponential, x)
    want = np.exp(x.astype(np.float64))

    assert got[0] == 1.0
    assert (np.abs(got - want) <= 2e-7 * want).all()


def test_weights_of_a_softmax_stay_normal(own: Runner, rng: np.random.Generator) -> None:
    """As exp down to -70; below it never less than e^-70, whose products with small values are
    normal numbers: denormals would take a Xeon many times as long."""
    x = -rng.uniform(0, 200, MANY).astype(np.float32)
    x[:4] = 0, -70, -3.0e38, -np.inf
    got = _apply(own, softmax_weights, x)

    assert np.array_equal(got[x >= -70], _apply(own, exponential, x)[x >= -70])
    assert np.allclose(got[x < -70], np.exp(-70.0), rtol=2e-7, atol=0)
    assert got.min() * np.float32(1e-7) > np.finfo(np.float32).tiny


def test_exp_of_very_little(own: Runner) -> None:
    """Below -87.3 it stays at the least normal number: no zero, no denormal, no NaN for -Inf."""
    x = np.full(MANY, -87.4, np.float32)
    x[1:4] = [-100, -3e38, -np.inf]
    got = _apply(own, exponential, x)

    assert (got == got[0]).all()
    assert 1.1e-38 < got[0] < 1.3e-38


def test_gelu(own: Runner, rng: np.random.Generator) -> None:
    """x / 2 (1 + tanh(...)) to 1e-6 of the largest |x| near 0, and its limits far out."""
    x = np.concatenate([rng.uniform(-6, 6, MANY - 4), [-1e4, 1e4, 0.0, np.nan]])
    x = x.astype(np.float32)
    got = _apply(own, gelu, x)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        want = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))

    assert np.abs(got - want)[:-4].max() <= 1e-6
    assert abs(got[-4]) <= 1e-30
    assert got[-3:-1].tolist() == [1e4, 0.0]
    assert np.isnan(got[-1])


def test_tanh(own: Runner, rng: np.random.Generator) -> None:
    """tanh to 3e-7; what is not finite is not hidden."""
    x = np.concatenate([rng.uniform(-10, 10, MANY - 4), [-1e30, 1e30, np.nan, np.inf]])
    x = x.astype(np.float32)
    got = _apply(own, tanh, x)

    assert np.abs(got - np.tanh(x.astype(np.float64)))[:-2].max() <= 3e-7
    assert np.isnan(got[-2:]).all()


def test_silu(own: Runner, rng: np.random.Generator) -> None:
    """x / (1 + e^-x) within 1e-6 relative, and right at both ends."""
    x = rng.uniform(-20, 20, MANY).astype(np.float32)
    x[:6] = [0, -0.0, 1e30, -1e30, np.inf, -87.0]
    got = _apply(own, silu, x)
    wide = x[5:].astype(np.float64)
    want = wide / (1 + np.exp(-wide))

    assert (np.abs(got[5:] - want) <= 1e-6 * np.abs(want)).all()
    assert got[:2].tolist() == [0.0, 0.0]
    assert got[2] == np.float32(1e30)
    assert got[4] == np.inf
    # It divides by e^88 at most: -1e30 gives -6e-9, not the exact zero.
    assert -1e-8 < got[3] <= 0


def test_silu_of_nan(own: Runner) -> None:
    """NaN in, NaN out."""
    x = np.full(MANY, np.nan, np.float32)
    assert np.isnan(_apply(own, silu, x)).all()


def test_round_to_int(own: Runner, rng: np.random.Generator) -> None:
    """To nearest, ties to even, up to 2^22 on either side."""
    x = rng.uniform(-(2**22) + 1, 2**22 - 1, MANY).astype(np.float32)
    x[:8] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2**22 - 1, -(2**22) + 1]
    out = np.zeros(MANY, np.int32)
    own.call(spec(rounded), [x, out], 0, 1)

    assert np.array_equal(out, np.rint(x))


def test_every_float16(own: Runner) -> None:
    """All 65,536 patterns widen exactly; Inf and NaN only where there is an instruction for it."""
    bits = np.arange(65536, dtype=np.uint16)
    got = _apply(own, widened, bits)
    want = bits.view(np.float16).astype(np.float32)
    if own.target.has_f16:
        assert np.array_equal(got, want, equal_nan=True)
        return
    finite = np.isfinite(want)
    assert np.array_equal(got[finite].view(np.int32), want[finite].view(np.int32))


def test_to_float16(own: Runner, rng: np.random.Generator) -> None:
    """Rounds as IEEE says, ties to even, denormals too; 65,520 and above are infinite."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[1:] + halves[:-1]) / 2  # ties
    x = np.concatenate([halves, between, [65519.996, 65520.0, 1e30, np.inf, 1e-30]])
    x = np.concatenate([x, rng.uniform(-70000, 70000, HALVES - len(x))]).astype(np.float32)
    x[::2] *= -1
    out = np.zeros(HALVES, np.int16)
    own.call(spec(narrowed), [x, out], 0, 1)

    with np.errstate(over="ignore"):
        assert np.array_equal(out, x.astype(np.float16).view(np.int16))


def test_sigmoid(own: Runner) -> None:
    """Relative error at most 4e-7 where it is not next to nothing; not finite stays NaN."""
    x = np.linspace(-80, 80, MANY).astype(np.float32)
    got = _apply(own, sigmoid, x)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert (np.abs(got - want) <= 4e-7 * want).all()
    x[:3] = [np.nan, np.inf, -np.inf]
    assert np.isnan(_apply(own, sigmoid, x)[:3]).all()


def test_softplus(own: Runner) -> None:
    """Relative error at most 4e-7, of vectors and of single numbers; not finite becomes NaN."""
    x = np.linspace(-80, 80, MANY).astype(np.float32)
    x[:1001] = np.linspace(-2, 2, 1001)
    want = np.logaddexp(0.0, x.astype(np.float64))
    for each in (softplus, softplus_of_one):
        got = _apply(own, each, x)
        assert (np.abs(got - want) <= 4e-7 * want).all()
    x[:3] = [np.nan, np.inf, -np.inf]
    assert np.isnan(_apply(own, softplus, x)[:3]).all()
