"""int8 dot products: every lowering against one meaning, at its extremes, and in the assembly."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.runners import CheckedCache, Native, Runner

from triplepoint.jit.compile import Spec, build_assembly, spec
from triplepoint.jit.dot import (
    KEY_INSTRUCTION,
    Dot,
    bf16_dot,
    bf16_pairs_of,
    dot_words,
    pair_high,
    pair_low,
    reference,
    to_bf16_bits,
)
from triplepoint.jit.kernels.attention import attention
from triplepoint.jit.kernels.gemm import gemm_float, gemm_quant
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.simd import F32s, I16s, I32s, Kernel, i32, kernel
from triplepoint.jit.targets import TARGETS, CpuTarget, runnable

LARGEST = (None, 15, 31, 63, 127)


@kernel
def block(
    k: Kernel, w: I32s, x: I32s, start: I32s, out: I32s, *, most: int | None, steps: int
) -> None:
    """`steps` K-groups between begin and end."""
    lanes = k.lanes
    with k.units():
        dot = Dot(k, most, steps)
        init = start.load(0, lanes)
        acc = dot.begin(init)
        for n in range(steps):
            acc = dot.step(acc, w.load(n * lanes, lanes), x.load(n * lanes, lanes))
        out.store(0, dot.end(acc, init))


def _run(own: Runner, w: np.ndarray, x: np.ndarray, most: int | None) -> None:
    """Compare a block of 8 steps with the reference; w, x: [8, 4 * lanes] bytes."""
    lanes = own.target.lanes
    start = np.arange(lanes, dtype=np.int32) - 3
    out = np.zeros(lanes, np.int32)
    own.call(spec(block, most=most, steps=8), [w, x, start, out], 0, 1)
    want = start
    for one_w, one_x in zip(w, x, strict=True):
        want = reference(want, one_w, one_x)

    assert np.array_equal(out, want)


def _kind(target: CpuTarget, most: int | None) -> tuple[type, int, int]:
    """Type and range of stored weights."""
    if most is not None:
        return np.uint8, 0, most
    return (np.int8, -128, 127) if target.signed_bytes else (np.uint8, 0, 255)


@pytest.mark.parametrize("most", LARGEST)
def test_random_blocks(own: Runner, rng: np.random.Generator, most: int | None) -> None:
    """Sums of products are exact."""
    dtype, low, high = _kind(own.target, most)
    size = (8, 4 * own.target.lanes)
    w = rng.integers(low, high, size, endpoint=True).astype(dtype)
    x = rng.integers(-127, 127, size, endpoint=True).astype(np.int8)

    _run(own, w, x, most)


@pytest.mark.parametrize("most", LARGEST)
def test_extremes(own: Runner, most: int | None) -> None:
    """The largest weights and activations of either sign, all lanes alike, in pairs, alternating.

    Every 16-bit step in between is at its limit.
    """
    dtype, low, high = _kind(own.target, most)
    size = 4 * own.target.lanes
    odd = np.arange(size) % 2 == 1
    weights = [np.full(size, low), np.full(size, high), np.where(odd, low, high)]
    inputs = [np.full(size, -127), np.full(size, 127), np.where(odd, -127, 127)]
    for w in weights:
        for x in inputs:
            _run(own, np.tile(w.astype(dtype), (8, 1)), np.tile(x.astype(np.int8), (8, 1)), most)


@kernel
def words(k: Kernel, a: I16s, b: I16s, start: I32s, out: I32s) -> None:
    lanes = k.lanes
    with k.units():
        pairs = [p.cast(i32).load(0, lanes) for p in (a, b)]
        out.store(0, dot_words(k, start.load(0, lanes), *pairs))


def test_words(own: Runner, rng: np.random.Generator) -> None:
    """Pairs of int16 products are added exactly; the largest negative pair wraps like int32."""
    lanes = own.target.lanes
    a, b = (rng.integers(-(2**15), 2**15, 2 * lanes).astype(np.int16) for _ in range(2))
    a[:2], b[:2] = 32767, 32767
    start, out = np.arange(lanes, dtype=np.int32), np.zeros(lanes, np.int32)
    own.call(spec(words), [a, b, start, out], 0, 1)
    products = (a.astype(np.int64) * b).reshape(-1, 2).sum(1)

    assert np.array_equal(out, (start + products).astype(np.int32))


@kernel
def bf16_words(k: Kernel, x: F32s, halves: F32s, bits: I32s) -> None:
    lanes = k.lanes
    with k.units():
        pair = x.load(0, lanes).bitcast(i32)
        halves.store(0, pair_low(pair))
        halves.store(lanes, pair_high(pair))
        bits.store(0, to_bf16_bits(x.load(0, lanes)))


def test_bf16_pairs(own: Runner, rng: np.random.Generator) -> None:
    """The two bf16 of an int32 widen exactly; float32 rounds to bf16 as in numpy."""
    lanes = own.target.lanes
    x = (rng.standard_normal(lanes) * 1e3).astype(np.float32)
    x[:2] = [np.float32(1 + 2**-8), np.inf]
    halves, bits = np.zeros(2 * lanes, np.float32), np.zeros(lanes, np.int32)
    own.call(spec(bf16_words), [x, halves, bits], 0, 1)

    raw = x.view(np.uint16).reshape(-1, 2).astype(np.uint32) << 16
    assert np.array_equal(halves.reshape(2, lanes), raw.view(np.float32).T, equal_nan=True)
    assert np.array_equal((bits.view(np.uint32) << 16).view(np.float32), to_bf16(x))


@kernel
def bf16_product(k: Kernel, a: F32s, b: F32s, out: F32s) -> None:
    lanes = k.lanes
    with k.units():
        pairs = [p.load(0, lanes).bitcast(i32) for p in (a, b)]
        out.store(0, bf16_dot(k, out.load(0, lanes), *pairs))


BF16_TARGETS = [target for target in runnable() if target.bf16 != "none"]


@pytest.mark.parametrize("target", BF16_TARGETS, ids=str)
def test_bf16_dot(target: CpuTarget, rng: np.random.Generator) -> None:
    """Two bf16 products are added to a float32, where there is an instruction for it."""
    own = Native(target, CheckedCache(None))
    lanes = own.target.lanes
    a, b = (to_bf16(rng.standard_normal(2 * lanes).astype(np.float32)) for _ in range(2))
    packed = [np.ascontiguousarray(v.view(np.uint16)[1::2]).view(np.float32) for v in (a, b)]
    start = rng.standard_normal(lanes).astype(np.float32)
    out = start.copy()
    own.call(spec(bf16_product), [*packed, out], 0, 1)
    want = start + (a.astype(np.float64) * b).reshape(-1, 2).sum(1)

    assert np.allclose(out, want, rtol=1e-6, atol=1e-6)


@kernel
def bf16_rounded(k: Kernel, x: F32s, out: I32s) -> None:
    with k.units():
        out.store(0, bf16_pairs_of(k, x.load(0, k.lanes)))


@pytest.mark.parametrize("target", BF16_TARGETS, ids=str)
def test_bf16_pairs_of(target: CpuTarget, rng: np.random.Generator) -> None:
    """Neighbors of the nearest bf16 are chosen as `to_bf16` does; denormals are zeros."""
    own = Native(target, CheckedCache(None))
    for shift in (0, 2**15, 2**15 - 1, 2**15 + 1):  # ties among them
        bits = rng.integers(1 << 23, 0x7F000000, target.lanes, dtype=np.uint32)
        x = (bits & ~np.uint32(0xFFFF) | np.uint32(shift)).view(np.float32)
        x[:2] = 0, -x[1]
        out = np.zeros(target.lanes // 2, np.int32)
        own.call(spec(bf16_rounded), [x, out], 0, 1)

        assert np.array_equal(out.view(np.uint16), to_bf16(x).view(np.uint16)[1::2])
    x[:] = 1e-39
    own.call(spec(bf16_rounded), [x, out], 0, 1)
    assert not out.any()


# --- what is in the assembly, for every target on any host

PRODUCTS = [spec(gemm_quant, fmt=fmt, epilogue="store", blocks=4) for fmt in ("q4_0", "q8_0")] + [
    spec(gemm_float, fmt="f16", epilogue="store")
]
ATTENTION = spec(attention, head_dim=32, kv_heads=1, group=1, kv="bf16")
ALL_TARGETS = pytest.mark.parametrize("target", TARGETS.values(), ids=str)


_read: dict[str, str] = {}


def _instructions(kernel_: Spec, target: CpuTarget) -> str:
    """The assembly without comments and directives, in lower case."""
    symbol = kernel_.symbol(target)
    if symbol not in _read:
        text = build_assembly(kernel_, target).lower()
        lines = (re.split(r"(?<!\{)[#;]|//", line)[0].strip() for line in text.splitlines())
        kept = [line for line in lines if line and not line.startswith((".", "@"))]
        _read[symbol] = "\n".join(kept)
    return _read[symbol]


@ALL_TARGETS
def test_key_instruction(target: CpuTarget) -> None:
    """A quantized GEMM multiplies with the instruction that its target was chosen for."""
    for product in PRODUCTS[:2]:
        assert re.search(rf"\bv?{KEY_INSTRUCTION[target.dot]}", _instructions(product, target))


@ALL_TARGETS
def test_float_instructions(target: CpuTarget) -> None:
    """FMA, fp16 conversion and bf16 products are used where there are instructions for them."""
    product = _instructions(PRODUCTS[2], target)
    if target.arch == "x86_64":
        assert ("vfmadd" in product) == target.has_fma
        assert ("vcvtph2ps" in product) == target.has_f16
        assert ("vdpbf16ps" in _instructions(ATTENTION, target)) == (target.bf16 == "dot")
        assert ("tdpbf16ps" in _instructions(ATTENTION, target)) == (target.bf16 == "tiles")
    elif target.arch == "aarch64":
        assert "fmla" in product
        assert "fcvtl" in product


# What must not be in the assembly of a target that lacks the feature.
NEWER = {
    "avx2": r"\bymm|\bv[a-z]\w+\s",
    "avx512f": r"\bzmm|\bk[0-7]\b|[xy]mm(1[6-9]|2\d|3[01])\b",
    "avx512vnni": r"vpdp(bu|wss)d",
    "avx512bf16": "bf16",
    "fma": r"vfmadd|vfnmadd",
    "f16c": "vcvtph2ps",
    "dotprod": r"\b[su]dot\b",
    "i8mm": r"usdot|mmla",
}


@ALL_TARGETS
def test_nothing_newer(target: CpuTarget) -> None:
    """No instruction or register of a feature that the target does not name."""
    others = {"x86_64": list(NEWER)[:6], "aarch64": list(NEWER)[6:], "any": list(NEWER)}
    text = "\n".join(_instructions(s, target) for s in (*PRODUCTS, ATTENTION))
    for feature in others[target.arch]:
        if feature == "avx512vnni" and "avxvnni" in target.needs:  # the same in an older coding
            assert text.count("vpdpbusd") == text.count("{vex}")
        elif feature not in target.needs:
            found = re.search(rf"^.*({NEWER[feature]}).*$", text, re.MULTILINE)
            assert not found, f"{feature}: {found.group()}"


@ALL_TARGETS
def test_full_width(target: CpuTarget) -> None:
    """The registers are as wide as the target says: no split of 512 bits into 256."""
    if target.arch != "x86_64":
        return
    text = _instructions(PRODUCTS[0], target)
    register = {4: "xmm", 8: "ymm", 16: "zmm"}[target.lanes]
    name = KEY_INSTRUCTION[target.dot]
    used = [line for line in text.splitlines() if name in line]
    assert used
    assert all(register in line for line in used)
