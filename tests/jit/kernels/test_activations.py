"""RMSNorm and int8 quantization of activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.runners import Native, Runner
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.activations import (
    BLOCK_BYTES,
    FACTOR,
    GROUPS,
    TINY,
    ActivationFormat,
    Kind,
    add_bias,
    add_norm,
    dequantize_reference,
    fold_each,
    gate_by_queries,
    gate_heads,
    gelu_times,
    prepare,
    quantize_reference,
    rmsnorm_reference,
    soft_cap,
    square,
)
from triplepoint.jit.kernels.panels import SUM_BASE_BITS
from triplepoint.jit.simd import I32s, Kernel, kernel

ASKS = ()  # see helpers/feature_sets.py
EPS = 1e-6


def _prepare(
    runner: Runner,
    x: np.ndarray,
    weight: np.ndarray | None = None,
    *,
    quantize: bool,
    zero_point: int = 0,
    base: int = 0,
    width: int | None = None,
    wanted: Sequence[int] = (),
    group: int = 1,
    kind: Kind = "zero",
) -> np.ndarray:
    """float32 x [rows, padded] -> blocks [tokens, padded / 32, 40] or float32 [tokens, padded]."""
    tokens, padded = len(wanted) or len(x), x.shape[1]
    if quantize:
        out = np.full((tokens, padded // 32, BLOCK_BYTES), 0xEE, np.uint8)
    else:
        out = np.full((tokens, padded), np.nan, np.float32)
    form = kind if quantize else "float"
    kernel = spec(prepare, norm=weight is not None, kind=form, group=group, gather=bool(wanted))
    scale = x[0] if weight is None else weight
    args = [x, scale, out, padded, width or padded, padded, EPS, zero_point, base,
            np.array(wanted, np.int32)]  # fmt: skip
    runner.call(kernel, args, 0, tokens)
    return out


@pytest.mark.parametrize("group", [1, 8])
def test_quantize(runner: Runner, rng: np.random.Generator, group: int) -> None:
    """Blocks are equal to the reference's, byte for byte."""
    for tokens, groups in ((3, 2),) if runner.emulated else ((1, 1), (3, 2), (70, 3)):
        x = (rng.standard_normal((tokens, groups * group * 32)) * 3).astype(np.float32)
        for zero_point, base in ((8, 3),) if runner.emulated else ((0, 0), (8, SUM_BASE_BITS)):
            got = _prepare(runner, x, quantize=True, zero_point=zero_point, base=base, group=group)

            assert np.array_equal(got, quantize_reference(x, zero_point, group, base=base))


@kernel
def sums(k: Kernel, x: I32s, out: I32s, *, count: int) -> None:
    """Of `count` vectors each."""
    with k.units():
        vectors = [x.load(n * k.lanes, k.lanes) for n in range(count)]
        out.store(0, fold_each(vectors, lambda a, b: a + b))


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_fold_each(runner: Runner, rng: np.random.Generator, count: int) -> None:
    """The sum of each vector is in its own lane, also of more vectors than there are lanes."""
    x = rng.integers(-1000, 1000, (count, runner.target.lanes), dtype=np.int32)
    out = np.zeros(count, np.int32)
    runner.call(spec(sums, count=count), [x, out], 0, 1)

    assert np.array_equal(out, x.sum(axis=1))


@pytest.mark.parametrize("group", GROUPS)
def test_factors(runner: Runner, rng: np.random.Generator, group: int) -> None:
    """Blocks that share a scale and have factors: the reference's bytes, and as near as with d."""
    form = ActivationFormat("factors", group, 8)
    for tokens, groups in ((3, 2),) if runner.emulated else ((1, 1), (3, 2), (70, 9)):
        shape = (tokens, groups * group)
        x = rng.standard_normal((*shape, 32)) * np.exp(rng.uniform(-3, 3, (*shape, 1)))
        x = x.reshape(tokens, -1).astype(np.float32)
        got = _prepare(runner, x, quantize=True, zero_point=8, group=group, kind="factors")
        assert np.array_equal(got, quantize_reference(x, 8, group, "factors"))

        back = dequantize_reference(got, form)
        plain = dequantize_reference(quantize_reference(x, 8))
        assert np.mean((back - x) ** 2) <= 1.05 * np.mean((plain - x) ** 2)


def test_factors_of_extremes(runner: Runner) -> None:
    """Zeros, tiny, huge and unequal blocks come back within half a step; NaN and Inf stay known."""
    sizes = np.array(
        [[0, 0, 0, 0], [1e-38, 1e-40, 0, 1e-38], [1, 1e-3, 1e-6, 0], [3e38, 1, 0, 1e30]]
    )
    x = np.outer(sizes, np.linspace(-1, 1, 32)).reshape(4, -1).astype(np.float32)
    form = ActivationFormat("factors", 4, 8)
    got = _prepare(runner, x, quantize=True, zero_point=8, group=4, kind="factors")
    assert np.array_equal(got, quantize_reference(x, 8, 4, "factors"))
    most = np.abs(x).reshape(4, 4, 32).max(-1)
    step = np.maximum(most, most.max(-1, keepdims=True) / FACTOR) / 127 * (1 + 2**-6) + 2.0**-113
    assert (np.abs(dequantize_reference(got, form) - x) <= step.repeat(32, axis=1)).all()

    for broken in (np.nan, -np.nan, np.inf, -np.inf):
        x[0, 40] = broken
        got = _prepare(runner, x, quantize=True, zero_point=8, group=4, kind="factors")
        assert not np.isfinite(got[0, 0, :4].copy().view(np.float32)).any()


@pytest.mark.parametrize("kind", ["pairs32", "pairs16"])
def test_sums_for_k_quants(runner: Runner, rng: np.random.Generator, kind: Kind) -> None:
    """Eight blocks share a scale and carry their sums as int16 pairs, as in the reference."""
    for tokens, groups in ((3, 2),) if runner.emulated else ((1, 1), (3, 2), (70, 6)):
        x = (rng.standard_normal((tokens, groups * 256)) * 3).astype(np.float32)
        x[0, :256] = np.where(np.arange(256) % 64 < 32, 1, -1)  # sums of ±127 * 32
        got = _prepare(runner, x, quantize=True, group=8, kind=kind)
        if kind == "pairs32":
            got[:, 1::2, 4:8] = 0  # only even blocks have a use for the field

        assert np.array_equal(got, quantize_reference(x, 0, 8, kind))


@pytest.mark.parametrize("kind", ["zero", "pairs16"])
def test_blocks_of_scales_of_their_own(
    runner: Runner, rng: np.random.Generator, kind: Kind
) -> None:
    """A group of one, as NVFP4 has it: rows shorter than a step of the loop, and with a rest."""
    for tokens, blocks in ((3, 9),) if runner.emulated else ((1, 1), (3, 9), (40, 16), (2, 19)):
        x = (rng.standard_normal((tokens, blocks * 32)) * 3).astype(np.float32)
        got = _prepare(runner, x, quantize=True, kind=kind)

        assert np.array_equal(got, quantize_reference(x, 0, 1, kind))


def test_quantization_error(native: Native, rng: np.random.Generator) -> None:
    """A value comes back within half a step, d / 2 = max|block| / 254, and the extreme exactly."""
    x = (rng.standard_normal((5, 256)) * np.exp(rng.uniform(-30, 30, (5, 256)))).astype(np.float32)
    back = dequantize_reference(_prepare(native, x, quantize=True))
    most = np.abs(x.reshape(5, -1, 32)).max(-1).repeat(32, axis=-1)

    assert (np.abs(back - x) <= most / 254 * 1.00001).all()
    assert np.allclose(back[np.abs(x) == most], x[np.abs(x) == most], rtol=1e-6)


def test_ties_round_to_even(runner: Runner) -> None:
    """With a step of exactly 1, halves go to the even neighbor, as numpy's rint does."""
    x = np.zeros((1, 32), np.float32)
    x[0, :7] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
    got = _prepare(runner, x, quantize=True)[0, 0, 8:].view(np.int8)

    assert got[:7].tolist() == [127, 0, 2, 2, 0, -2, -2]


def test_awkward_blocks(runner: Runner, rng: np.random.Generator) -> None:
    """Zeros, denormals, the largest floats and mixtures of both quantize as in the reference."""
    x = rng.standard_normal((8, 32)).astype(np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2] *= 1e-42  # denormals
    x[3] *= TINY / 8
    x[4] = np.finfo(np.float32).max
    x[5, 7] = np.finfo(np.float32).max
    x[6] *= np.float32(1e-30)
    x[7, 1:] = 1e-45
    got = _prepare(runner, x, quantize=True, zero_point=8)

    assert np.array_equal(got, quantize_reference(x, 8))
    assert np.isfinite(dequantize_reference(got)).all()
    assert not dequantize_reference(got[:4]).any()  # smaller than TINY counts as zero


def test_a_broken_value_is_not_lost(runner: Runner, rng: np.random.Generator) -> None:
    """A NaN or Inf anywhere in a group makes its scale not finite; other groups stay the same."""
    x = rng.standard_normal((66, 64)).astype(np.float32)
    sound = quantize_reference(x, 8)
    for n in range(32):
        x[n, n] = np.nan if n % 2 else -np.nan
        x[32 + n, 32 + n] = np.inf if n % 2 else -np.inf
    got = _prepare(runner, x, quantize=True, zero_point=8)
    scales = got[..., :4].copy().view(np.float32)[..., 0]

    broken = ~np.isfinite(x.reshape(66, 2, 32)).all(-1)
    assert broken.sum() == 64
    assert np.array_equal(np.isfinite(scales), ~broken)
    assert np.array_equal(got[~broken], sound[~broken])


@pytest.mark.parametrize(("width", "padded"), [(64, 64), (96, 128), (130, 192), (1024, 1024)])
def test_norm(runner: Runner, rng: np.random.Generator, width: int, padded: int) -> None:
    """y = x / rms(x) * weight; the padding comes out as zeros."""
    x, weight = np.zeros((4, padded), np.float32), np.zeros(padded, np.float32)
    x[:, :width] = rng.standard_normal((4, width)) * np.array([[1e-4], [1], [30], [1e4]])
    weight[:width] = rng.standard_normal(width) + 1
    got = _prepare(runner, x, weight, quantize=False, width=width)

    for row, want in zip(got, rmsnorm_reference(x[:, :width], weight[:width], EPS), strict=True):
        assert_close(row[:width], want, "norm")
        assert not row[width:].any()


def test_norm_and_quantize(runner: Runner, rng: np.random.Generator) -> None:
    """Both in one go: as the quantized reference of the norm, up to one step of rounding."""
    width, padded = 96, 128
    x, weight = np.zeros((7, padded), np.float32), np.zeros(padded, np.float32)
    x[:, :width] = rng.standard_normal((7, width))
    weight[:width] = rng.standard_normal(width) + 1
    got = _prepare(runner, x, weight, quantize=True, zero_point=8, width=width, group=4)
    y = np.zeros_like(x)
    y[:, :width] = rmsnorm_reference(x[:, :width], weight[:width], EPS)
    want = quantize_reference(y, 8, group=4)

    q, q_want = (b[..., 8:].view(np.int8).astype(int) for b in (got, want))
    assert np.abs(q - q_want).max() <= 1
    assert (q == q_want).mean() > 0.99
    d, d_want = (b[..., :4].copy().view(np.float32) for b in (got, want))
    assert_close(d, d_want, "norm")
    sums = got[..., 4:8].copy().view(np.int32)[..., 0]
    assert np.array_equal(sums, -8 * q.sum(-1))


def test_norm_of_zeros(native: Native) -> None:
    """A row of zeros gives zeros: eps keeps the division finite."""
    x, weight = np.zeros((2, 64), np.float32), np.ones(64, np.float32)

    assert not _prepare(native, x, weight, quantize=False).any()
    blocks = _prepare(native, x, weight, quantize=True, zero_point=8)
    assert not dequantize_reference(blocks).any()


def test_wanted_rows(native: Native, rng: np.random.Generator) -> None:
    """Rows of x that are named, in their order: how the output head takes what wants logits."""
    x = rng.standard_normal((9, 64)).astype(np.float32)
    whole = _prepare(native, x, quantize=True)
    for wanted in ([8], [7, 8], [0, 3, 4, 8]):
        assert np.array_equal(_prepare(native, x, quantize=True, wanted=wanted), whole[wanted])


def test_same_bits_alone_and_together(native: Native, rng: np.random.Generator) -> None:
    """A token's blocks do not depend on the tokens around it."""
    x, weight = rng.standard_normal((33, 192)).astype(np.float32), np.ones(192, np.float32)
    whole = _prepare(native, x, weight, quantize=True)
    for n in (0, 5, 32):
        assert np.array_equal(_prepare(native, x[n : n + 1], weight, quantize=True)[0], whole[n])


def test_add_norm(own: Runner, rng: np.random.Generator) -> None:
    """x grows by the norm of y; columns past the width stay zero."""
    tokens, width, padded, stride = 3, 70, 128, 192
    x = rng.standard_normal((tokens, stride)).astype(np.float32)
    y, weight = np.zeros((tokens, padded), np.float32), np.zeros(padded, np.float32)
    y[:, :width], weight[:width] = rng.standard_normal((tokens, width)), rng.random(width)
    before = x.copy()
    args = [x, y, weight, stride, padded, width, padded, EPS, 0.5]
    own.call(spec(add_norm), args, 0, tokens)
    want = before[:, :width] + rmsnorm_reference(y[:, :width], weight[:width], EPS)

    assert_close(x[:, :width], want, "norm")
    assert np.array_equal(x[:, width:], before[:, width:])

    x[:] = before
    own.call(spec(add_norm, scaled=True), args, 0, tokens)
    assert_close(x[:, :width], 0.5 * want, "norm")


def test_add_bias(own: Runner, rng: np.random.Generator) -> None:
    """Each row grows by the same values, up to where they are padded."""
    x = rng.standard_normal((3, 192)).astype(np.float32)
    before, bias = x.copy(), rng.standard_normal(128).astype(np.float32)
    own.call(spec(add_bias), [x, bias, 192, 128], 0, 3)

    assert np.array_equal(x[:, :128], before[:, :128] + bias)
    assert np.array_equal(x[:, 128:], before[:, 128:])


@pytest.mark.parametrize("gates", [1, 64])
def test_gate_heads(own: Runner, rng: np.random.Generator, gates: int) -> None:
    """Heads are multiplied by softplus of their gates, one for each or one for each dim."""
    tokens, heads, dim = 3, 4, 64
    x = rng.standard_normal((tokens, heads * dim)).astype(np.float32)
    gate = (8 * rng.standard_normal((tokens, heads * gates + 7))).astype(np.float32)
    gate[0, 0], gate[1, 0] = 80.0, -80.0
    want = np.logaddexp(0, gate[:, : heads * gates].astype(np.float64))
    want = x.reshape(tokens, heads, dim) * want.reshape(tokens, heads, -1)
    kernel = spec(gate_heads, head_dim=dim, gates=gates)
    own.call(kernel, [x, gate, heads * dim, gate.shape[1], heads], 0, tokens * heads)

    assert_close(x.reshape(want.shape), want.astype(np.float32), "silu")


def test_gelu_times(own: Runner, rng: np.random.Generator) -> None:
    """gelu by tanh of one, times the other; NaN stays."""
    x, y = ((3 * rng.standard_normal((2, 128))).astype(np.float32) for _ in range(2))
    x[1, 3] = np.nan
    wide = x.astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    want = (wide / 2 * (1 + np.tanh(inner)) * y).astype(np.float32)
    own.call(spec(gelu_times), [x, y, 128, 128, 128], 0, 2)

    finite = np.isfinite(want)
    assert_close(x[finite], want[finite], "silu")
    assert np.array_equal(np.isfinite(x), finite)


def test_soft_cap(own: Runner, rng: np.random.Generator) -> None:
    """Values are bounded by the cap, row by row; what is not finite stays so."""
    x = (rng.standard_normal((2, 256)) * 60).astype(np.float32)
    x[1, 7] = np.nan
    want = 30.0 * np.tanh(x.astype(np.float64) / 30.0)
    own.call(spec(soft_cap), [x, 256, 4, 30.0], 0, 8)

    assert np.isnan(x[1, 7])
    x[1, 7] = want[1, 7] = 0.0
    assert_close(x, want, "silu")


def test_gate_by_queries(own: Runner, rng: np.random.Generator) -> None:
    """Each head's values times the sigmoid of its gate, which stands behind its queries."""
    x = rng.standard_normal((3, 2, 32)).astype(np.float32)
    gates = rng.standard_normal((3, 2, 2, 32)).astype(np.float32)
    want = x / (1 + np.exp(-gates[:, :, 1].astype(np.float64)))
    kernel = spec(gate_by_queries, heads=2, dim=32)
    own.call(kernel, [x, gates, 64, 128], 0, 6)

    assert_close(x, want, "silu")


def test_square(own: Runner, rng: np.random.Generator) -> None:
    """relu(x)^2 of rows within their stride; NaN and infinities do not become numbers."""
    x = rng.standard_normal((3, 64)).astype(np.float32)
    x[1, 3:5] = np.nan, -np.inf
    before = x.copy()
    own.call(spec(square), [x, 64, 32], 0, 3)

    assert np.isnan(x[1, 3:5]).all()
    before[1, 3:5] = x[1, 3:5] = 0
    assert np.array_equal(x[:, :32], np.maximum(before[:, :32], 0) ** 2)
    assert np.array_equal(x[:, 32:], before[:, 32:])
