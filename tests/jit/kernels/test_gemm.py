"""Matrix products: every format, epilogue and feature set against float64, and bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.feature_sets import BF16, DOT, place, some
from helpers.matrices import (
    FLOATS,
    QUANTIZED,
    FileMatrix,
    fused_panels_of,
    matrix_of,
    panels_of,
    random_matrix,
)
from helpers.runners import CheckedCache, Native, Runner
from helpers.tiers import quick
from helpers.tolerances import assert_close

from triplepoint.jit.compile import Spec, build_ir, spec
from triplepoint.jit.dot import _pmaddubs, _pmaddwd
from triplepoint.jit.kernels import gemm
from triplepoint.jit.kernels.activations import (
    FACTOR,
    ActivationFormat,
    dequantize_reference,
    quantize_reference,
)
from triplepoint.jit.kernels.epilogue import silu_mul_reference
from triplepoint.jit.kernels.gemm import gemm_float, gemm_quant, scratch_bytes
from triplepoint.jit.simd import I8s, I32s, Kernel, i8, i32, kernel
from triplepoint.jit.targets import TARGETS, CpuTarget, runnable

ASKS = (DOT, BF16)  # see helpers/feature_sets.py
TOKENS = (1, 2, 3, 6, 7, 8, 13, 14, 15, 20, 70)
FEW_TOKENS = (1, 8)  # under qemu each product is a process
# Rows: one, less and more than a panel, no multiple of it. K of 3, 6 and 8 blocks, so that
# activations share a scale by 1, 2 and 4 blocks.
SHAPES = ((33, 96), (70, 192), (40, 256), (1, 256))
DEPTH = 256  # where one K will do: two groups of four blocks


class Product:
    """One product kernel with its weights packed: give it activations, get outputs."""

    def __init__(
        self,
        runner: Runner,
        weights: FileMatrix,
        up: FileMatrix | None = None,
    ) -> None:
        self.runner, self.weights, self.up = runner, weights, up
        target = runner.target
        self.panels = fused_panels_of(weights, up, target) if up else panels_of(weights, target)
        self.units = len(self.panels)
        self.width = self.units * target.lanes * (1 if up else 2)
        self.activation = weights.form.activation(target, weights.depth)
        self.tiles: dict[str, int] = {}

    def kernel(self, epilogue: str) -> Spec:
        sizes = {"fmt": self.weights.fmt, "epilogue": epilogue, **self.tiles}
        if self.weights.form.quantized:
            return spec(gemm_quant, **sizes, blocks=self.weights.blocks)
        return spec(gemm_float, **sizes)

    def run(
        self,
        x: np.ndarray,
        epilogue: str = "store",
        out: np.ndarray | None = None,
        units: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Every stored output, padding rows too: float32 [tokens, width].

        x: float32 [tokens, depth], or quantized blocks uint8 [tokens, blocks, 40].
        """
        out = np.full((len(x), self.width), np.nan, np.float32) if out is None else out
        count = np.array([len(x)], np.int64)
        depth = self.weights.depth
        if not self.weights.form.quantized:
            args = [self.panels, x, out, depth, depth, self.width, count]
        else:
            blocks = x if x.ndim == 3 else self.quantized(x)
            size = scratch_bytes(self.weights.fmt, depth, self.runner.target)
            args = [self.panels, blocks, out, self.width, count, np.zeros(size, np.uint8)]
        self.runner.call(self.kernel(epilogue), args, *(units or (0, self.units)))
        return out

    def seen(self, x: np.ndarray) -> np.ndarray:
        """The activations that the kernel really multiplies."""
        if not self.weights.form.quantized:
            return x
        return dequantize_reference(self.quantized(x), self.activation)

    def quantized(self, x: np.ndarray) -> np.ndarray:
        """float32 activations as blocks."""
        kind, group, zero_point, base = self.activation
        return quantize_reference(x, zero_point, group, kind, base)

    @property
    def kind(self) -> str:
        return "int8 product" if self.weights.form.quantized else "float product"


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_store(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out = W x for odd shapes and all tile sizes; rows that only pad a panel come out as zeros."""
    for rows, depth in SHAPES[::2] if runner.emulated else SHAPES:
        product = Product(runner, random_matrix(rng, rows, depth, fmt))
        for tokens in FEW_TOKENS if runner.emulated else TOKENS:
            x = rng.standard_normal((tokens, depth)).astype(np.float32)
            got = product.run(x)
            want = gemm.reference(product.weights.values, product.seen(x))

            assert_close(got[:, :rows], want, product.kind, (rows, depth, tokens))
            assert not got[:, rows:].any()


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_unequal_blocks(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Each block of activations has a scale of its own, and that is the one that is used."""
    product = Product(native, random_matrix(rng, 40, DEPTH, fmt))
    sizes = np.exp(rng.uniform(-5, 5, (70, DEPTH // 32))).repeat(32, axis=1)
    x = (rng.standard_normal((70, DEPTH)) * sizes).astype(np.float32)
    blocks, whole = product.quantized(x), product.run(x)
    scales = blocks[..., :4].copy().view(np.float32)[..., 0]

    assert_close(
        whole[:, :40], gemm.reference(product.weights.values, product.seen(x)), "int8 product"
    )
    assert len(np.unique(scales)) > 0.9 * scales.size
    assert all(np.array_equal(product.run(x[at : at + 7]), whole[at : at + 7]) for at in (0, 20))


@pytest.mark.parametrize("fmt", ["q4_0", "f16"])
def test_whose_cpu_it_is(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """On Intel's CPUs weights are asked for from the first token on: other code, the same bits."""
    other = replace(native.target, intel=not native.target.intel)
    elsewhere = Native(other, CheckedCache(None))
    product = Product(native, random_matrix(rng, 40, DEPTH, fmt))
    again = Product(elsewhere, product.weights)
    x = rng.standard_normal((9, DEPTH)).astype(np.float32)

    for tokens in (1, 2, 9):
        assert np.array_equal(product.run(x[:tokens]), again.run(x[:tokens]))


@pytest.mark.parametrize("fmt", ["q4_0", "f16"])
@pytest.mark.parametrize("target", [t for t in TARGETS.values() if t.arch == "x86_64"], ids=str)
def test_code_by_vendor(target: CpuTarget, fmt: str) -> None:
    """Intel's CPUs get other code, but for float weights with AMX, which no AMD CPU had."""
    kernel = (
        spec(gemm_float, fmt=fmt, epilogue="store")
        if fmt == "f16"
        else spec(gemm_quant, fmt=fmt, epilogue="store", blocks=DEPTH // 32)
    )
    code = {build_ir(kernel, replace(target, intel=intel)) for intel in (False, True)}
    assert len(code) == (1 if target.has_amx and fmt == "f16" else 2)


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "f16"])
def test_add(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out += W x, and nothing is added where rows only pad a panel."""
    rows, depth = 33, DEPTH
    product = Product(runner, random_matrix(rng, rows, depth, fmt))
    for tokens in FEW_TOKENS[1:] if runner.emulated else (1, 7, 9):
        x = rng.standard_normal((tokens, depth)).astype(np.float32)
        before = rng.standard_normal((tokens, product.width)).astype(np.float32)
        got = product.run(x, "add", before.copy())
        want = before[:, :rows] + gemm.reference(product.weights.values, product.seen(x))

        assert_close(got[:, :rows], want, product.kind, tokens)
        assert np.array_equal(got[:, rows:], before[:, rows:])


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0", "f16"])
def test_silu_mul(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """A fused pair gives silu(gate x) * (up x)."""
    rows, depth = 21, DEPTH
    gate, up = (random_matrix(rng, rows, depth, fmt) for _ in range(2))
    product = Product(runner, gate, up)
    for tokens in FEW_TOKENS[1:] if runner.emulated else (1, 7, 9):
        x = rng.standard_normal((tokens, depth)).astype(np.float32)
        got = product.run(x, "silu_mul")
        seen = product.seen(x)
        want = silu_mul_reference(
            gemm.reference(gate.values, seen), gemm.reference(up.values, seen)
        )

        assert_close(got[:, :rows], want, "silu", tokens)
        assert not got[:, rows:].any()


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_same_bits_in_any_tile(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """A token's outputs have the same bits alone, in any chunk and at any place in it."""
    product = Product(native, random_matrix(rng, 40, DEPTH, fmt))
    x = rng.standard_normal((70, DEPTH)).astype(np.float32)
    whole = product.run(x)

    for chunk in (1, 2, 3, 4, 5, 7, 8, 13, 15, 29):
        for first in (0, 31, 70 - chunk):
            part = product.run(x[first : first + chunk])
            assert np.array_equal(part, whole[first : first + chunk]), (chunk, first)


TILED = ("q4_0", "q8_0", "q4_1", "f16")


@pytest.mark.parametrize("fmt", quick(TILED, "q4_0"))
def test_same_bits_with_any_tile(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """How many tokens a tile takes, and up to how many are one tile, changes no bit."""
    product = Product(native, random_matrix(rng, 40, 192, fmt))
    x = rng.standard_normal((20, 192)).astype(np.float32)
    plans = [{"tile": 1}, {"tile": 4}, {"tile": 9}]
    if product.weights.form.quantized:
        plans += [{"max_single_tile": 9}, {"tile": 2, "max_single_tile": 7}]
    plans = some(plans, native.target, place(native.target) + TILED.index(fmt))
    for tokens in (1, 5, 9, 10, 20):
        product.tiles = {}
        usual = product.run(x[:tokens])
        for product.tiles in plans:
            assert np.array_equal(product.run(x[:tokens]), usual), (product.tiles, tokens)


@pytest.mark.parametrize("fmt", ["q4_0", "bf16"])
def test_units_are_independent(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Panels done one by one and in any order give what one call gives; others are not touched."""
    product = Product(native, random_matrix(rng, 150, DEPTH, fmt))
    x = rng.standard_normal((5, DEPTH)).astype(np.float32)
    whole = product.run(x)

    out = np.full_like(whole, np.nan)
    for unit in reversed(range(product.units)):
        product.run(x, out=out, units=(unit, unit + 1))
        done = 2 * native.target.lanes * unit
        assert np.array_equal(out[:, done:], whole[:, done:])
        assert np.isnan(out[:, :done]).all()
    assert product.units > 2


def test_no_tokens(native: Native, rng: np.random.Generator) -> None:
    """A count of 0 reads no activations and writes nothing."""
    product = Product(native, random_matrix(rng, 33, DEPTH, "q8_0"))
    out = np.zeros((0, product.width), np.float32)
    product.run(np.zeros((0, DEPTH // 32, 40), np.uint8), out=out)


# --- extremes


def _extreme_weights(fmt: str, depth: int) -> FileMatrix:
    """Rows of the least, the largest and alternating weights, all scales 1."""
    low, high = (-128, 127) if fmt == "q8_0" else (-8, 7)
    alternating = np.where(np.arange(depth) % 2, low, high)
    pairs = np.where(np.arange(depth) // 2 % 2, low, high)
    q = np.stack([np.full(depth, low), np.full(depth, high), alternating, pairs])
    blocks = q.reshape(len(q), -1, 32)
    raw = np.zeros((*blocks.shape[:2], 34 if fmt == "q8_0" else 18), np.uint8)
    raw[..., :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if fmt == "q8_0":
        raw[..., 2:] = blocks.astype(np.int8).view(np.uint8)
    else:
        nibbles = (blocks + 8).astype(np.uint8)
        raw[..., 2:] = nibbles[..., :16] | nibbles[..., 16:] << 4
    return FileMatrix(fmt, raw.reshape(len(q), -1), q.astype(np.float32))


def _extreme_activations(depth: int) -> np.ndarray:
    """int8 rows of -127, 127 and mixtures."""
    signs = np.where(np.arange(depth) % 2, -127, 127)
    rows = [np.full(depth, 127), np.full(depth, -127), signs, -signs]
    return np.stack(rows).astype(np.int8)


def _as_blocks(q: np.ndarray, activation: ActivationFormat, factor: int = 1) -> np.ndarray:
    """int8 [tokens, depth] as blocks with scale 1, or 1 + 2^-23 `factor` with factors."""
    grouped = q.reshape(len(q), -1, 32)
    out = np.zeros((*grouped.shape[:2], 40), np.uint8)
    head = np.float32(1).view(np.int32)
    if activation.kind == "factors":
        head = np.float32(1 / factor).view(np.int32) | factor
    out[..., :4] = np.frombuffer(head.tobytes(), np.uint8)
    sums = activation.base - activation.zero_point * grouped.astype(np.int32).sum(-1, keepdims=True)
    out[..., 4:8] = (sums * factor).astype(np.int32).view(np.uint8)
    out[..., 8:] = grouped.view(np.uint8)
    return out


@pytest.mark.parametrize("fmt", QUANTIZED)
def test_extremes_are_exact(runner: Runner, fmt: str) -> None:
    """The largest weights times the largest activations: no 16-bit sum saturates or wraps.

    So few tokens that each tile unpacks for itself, and so many that a panel is unpacked.
    """
    weights = _extreme_weights(fmt, DEPTH)
    product = Product(runner, weights)
    x = np.tile(_extreme_activations(DEPTH), (12, 1))
    want = x.astype(np.int64) @ weights.values.astype(np.int64).T

    if product.activation.kind == "factors":
        for factor in (1, FACTOR):
            blocks = _as_blocks(x, product.activation, factor)
            got = product.run(blocks)[:, : weights.rows]
            assert np.allclose(got, want * (1 + factor * 2**-23), rtol=3e-7)
            assert np.array_equal(product.run(blocks[:4])[:, : weights.rows], got[:4])
    else:
        blocks = _as_blocks(x, product.activation)
        got = product.run(blocks)[:, : weights.rows]
        assert np.array_equal(got, want)
        assert np.array_equal(product.run(blocks[:4])[:, : weights.rows], got[:4])


@kernel
def naive_maddubs(k: Kernel, w: I8s, x: I8s, out: I32s) -> None:
    """The trap: unsigned 8-bit weights straight into maddubs."""
    with k.units():
        ws, xs = w.load(0, 4 * k.lanes), x.load(0, 4 * k.lanes)
        pairs = _pmaddubs(k, ws.bitcast(i8), xs.bitcast(i8))
        out.store(0, _pmaddwd(k, pairs, k.const(1, pairs.type)).bitcast(i32))


MADDUBS = [target for target in runnable() if target.dot == "maddubs"]


@pytest.mark.parametrize("target", MADDUBS, ids=str)
def test_naive_maddubs_would_saturate(target: CpuTarget) -> None:
    """Weights 255 and activations 127: maddubs gives 32,767 for a pair that sums to 64,770.

    That is what the extremes above would meet with weights stored unsigned on such a target.
    """
    runner = Native(target, CheckedCache(None))
    lanes = target.lanes
    w, x = np.full(4 * lanes, 255, np.uint8), np.full(4 * lanes, 127, np.int8)
    out = np.zeros(lanes, np.int32)
    runner.call(spec(naive_maddubs), [w, x, out], 0, 1)

    assert (out == 2 * 32767).all()
    assert (out != 4 * 255 * 127).all()


def test_a_broken_token_stays_alone(native: Native, rng: np.random.Generator) -> None:
    """NaN and Inf in one token's activations leave the other tokens of its tile as they are."""
    for fmt in ("q4_0", "f32"):
        product = Product(native, random_matrix(rng, 33, DEPTH, fmt))
        x = rng.standard_normal((5, DEPTH)).astype(np.float32)
        sound = product.run(x)
        x[2, 3], x[3, 40] = np.nan, np.inf
        got = product.run(x)

        assert np.array_equal(got[[0, 1, 4]], sound[[0, 1, 4]])
        assert not np.isfinite(got[[2, 3], :33]).any()


def test_denormal_scales(runner: Runner) -> None:
    """fp16 scales below the normal range, down to the smallest, count exactly."""
    weights = _extreme_weights("q8_0", DEPTH)
    raw = np.repeat(weights.raw[1:2], 4, axis=0)
    scales = np.array([6e-8, 1e-6, 6.1e-5, 65504.0], np.float16)
    raw.reshape(4, -1, 34)[..., :2] = scales[:, None, None].view(np.uint8)
    matrix = FileMatrix(
        "q8_0", raw, np.full((4, DEPTH), 127.0) * scales[:, None].astype(np.float32)
    )
    product = Product(runner, matrix)
    got = product.run(_as_blocks(np.ones((1, DEPTH), np.int8), product.activation))

    want = 127 * DEPTH * scales.astype(np.float64)
    if product.activation.kind == "factors":
        assert np.allclose(got[0, :4], want * (1 + 2**-23), rtol=3e-7)
    else:
        assert np.array_equal(got[0, :4], want.astype(np.float32))


def test_zero_weights_and_activations(native: Native) -> None:
    """Zeros in, exact zeros out."""
    for fmt in QUANTIZED + FLOATS:
        product = Product(native, matrix_of(np.zeros((3, DEPTH), np.float32), fmt))
        assert not product.run(np.ones((2, DEPTH), np.float32)).any()
        product = Product(native, matrix_of(np.ones((3, DEPTH), np.float32), fmt))
        assert not product.run(np.zeros((2, DEPTH), np.float32)).any()
