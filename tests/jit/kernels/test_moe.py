"""Mixture of experts: routing, grouping, products by expert, the weighted sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.feature_sets import BF16, DOT, in_turn, on
from helpers.kquants import KQUANTS, random_k, stored_matrix
from helpers.matrices import (
    FLOATS,
    QUANTIZED,
    FileMatrix,
    fused_panels_of,
    panels_of,
    random_matrix,
)
from helpers.runners import Native, Runner
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import gemm, moe
from triplepoint.jit.kernels.activations import (
    BLOCK_BYTES,
    dequantize_reference,
    quantize_reference,
)
from triplepoint.jit.kernels.epilogue import silu_mul_reference

ASKS = ()  # see helpers/feature_sets.py
PRODUCTS = (DOT, BF16)

# Experts and how many a token takes: fewer than a vector's lanes, not a multiple of them, all.
CHOICES = ((1, 1), (3, 2), (10, 3), (16, 16), (60, 4), (128, 8))


def _route(
    runner: Runner,
    scores: np.ndarray,
    used: int,
    *,
    biases: np.ndarray | None = None,
    corrections: np.ndarray | None = None,
    expert_scales: np.ndarray | None = None,
    scale: float = 1.0,
    **how: object,
) -> tuple[np.ndarray, np.ndarray]:
    tokens, experts = scores.shape
    # What lies in the padding must not be chosen.
    padded = np.full((tokens, -(-experts // 64) * 64), 1e30, np.float32)
    padded[:, :experts] = scores
    ids, weights = np.full((tokens, used), -7, np.int32), np.zeros((tokens, used), np.float32)
    given = {"biased": biases, "corrected": corrections, "scaled": expert_scales}
    how |= {name: True for name, values in given.items() if values is not None}
    kernel = spec(moe.route, experts=experts, used=used, **how)
    extra = [np.zeros(padded.shape[1], np.float32) for _ in given]
    for row, values in zip(extra, given.values(), strict=True):
        row[:experts] = 0 if values is None else values
    runner.call(kernel, [padded, padded.shape[1], ids, weights, *extra, scale], 0, tokens)
    return ids, weights


def test_route(runner: Runner, rng: np.random.Generator) -> None:
    """The most likely experts in falling order, with softmax weights whose sum is 1."""
    for experts, used in CHOICES[2::3] if runner.emulated else CHOICES:
        scores = (3 * rng.standard_normal((9, experts))).astype(np.float32)
        ids, weights = _route(runner, scores, used)
        want_ids, want = moe.route_reference(scores, used)

        assert np.array_equal(ids, want_ids)
        assert_close(weights, want, "silu", (experts, used))


HOW = [
    {"normalized": False},
    {"gating": "sigmoid"},
    {"gating": "sigmoid", "normalized": False, "scale": 2.5},
    {"gating": "sigmoid", "corrections": True, "scale": 1.8},
    {"corrections": True},
    {"gating": "sigmoid", "corrections": True, "groups": 4, "groups_used": 2},
    {"normalized": False, "groups": 20, "groups_used": 7},
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_route_otherwise(runner: Runner, rng: np.random.Generator, how: dict) -> None:
    """Sigmoids, weights as they are, a correction of the choice alone, and groups."""
    how, experts, used = dict(how), 60, 5
    scores = rng.standard_normal((9, experts)).astype(np.float32)
    if how.pop("corrections", False):
        how["corrections"] = (0.3 * rng.standard_normal(experts)).astype(np.float32)
    ids, weights = _route(runner, scores, used, **how)
    want_ids, want = moe.route_reference(scores, used, **how)

    assert np.array_equal(ids, want_ids)
    assert_close(weights, want, "silu", how)


def test_route_biases_and_scales(runner: Runner, rng: np.random.Generator) -> None:
    """Biases are part of the scores; an expert's scale counts in its weight alone."""
    scores = rng.standard_normal((4, 10)).astype(np.float32)
    biases, scales = (rng.standard_normal(10).astype(np.float32) for _ in range(2))
    ids, weights = _route(runner, scores, 3, biases=biases, expert_scales=scales)
    want_ids, want = moe.route_reference(scores + biases, 3)

    assert np.array_equal(ids, want_ids)
    assert_close(weights, want * scales[ids], "silu")


@pytest.mark.parametrize("how", [{"gating": "sigmoid"}, {"normalized": False}], ids=str)
def test_route_not_finite(native: Native, how: dict) -> None:
    """A score that is not finite makes no weight that looks like one."""
    scores = np.zeros((2, 10), np.float32)
    scores[0] = np.nan
    _, weights = _route(native, scores, 2, **how)

    assert np.isnan(weights[0]).all()
    assert np.isfinite(weights[1]).all()


def test_clamped_glu(runner: Runner, rng: np.random.Generator) -> None:
    """Gate and up with their expert's biases, bounded; in parts as in one go; NaN stays."""
    pairs, experts, width = 5, 3, 128
    gate, up = ((6 * rng.standard_normal((pairs, width))).astype(np.float32) for _ in range(2))
    biases = [rng.standard_normal((experts, width)).astype(np.float32) for _ in range(2)]
    ids = rng.integers(0, experts, pairs).astype(np.int32)
    gate[4, 7] = np.nan
    g, u = (x.astype(np.float64) + b[ids] for x, b in zip((gate, up), biases, strict=True))
    g, u = np.minimum(g, 7), np.clip(u, -7, 7)
    want = (g / (1 + np.exp(-1.702 * g)) * (u + 1)).astype(np.float32)
    for parts in (1, 4):
        got = gate.copy()
        args = [got, up, *biases, ids, width, parts, 1.702, 7.0]
        runner.call(spec(moe.clamped_glu), args, 0, pairs * parts)
        finite = np.isfinite(want)
        assert_close(got[finite], want[finite], "silu", parts)
        assert np.array_equal(np.isfinite(got), finite)


def test_route_ties(runner: Runner) -> None:
    """Of equal scores the lower id is taken first, whichever lanes they are in."""
    scores = np.zeros((2, 40), np.float32)
    scores[1, [5, 21, 39]] = 1.0
    ids, weights = _route(runner, scores, 4)

    assert ids.tolist() == [[0, 1, 2, 3], [5, 21, 39, 0]]
    assert np.array_equal(weights[0], np.full(4, 0.25, np.float32))


def test_route_extremes(native: Native) -> None:
    """Scores far apart give weights 1 and 0; a score that is not finite shows in its token only."""
    scores = np.zeros((4, 10), np.float32)
    scores[0, 3], scores[0, 4] = 3e38, -3e38
    scores[1, 2] = np.inf
    scores[2] = np.nan
    ids, weights = _route(native, scores, 2)

    assert ids[0, 0] == 3
    assert weights[0].tolist() == [1.0, weights[0, 1]]
    assert weights[0, 1] < 1e-37
    assert np.isnan(weights[1:3]).all()
    assert weights[3].tolist() == [0.5, 0.5]
    assert ((ids >= 0) & (ids < 10)).all()


@dataclass
class Groups:
    """What `group` wrote."""

    active: np.ndarray
    starts: np.ndarray
    pairs: np.ndarray
    units: np.ndarray

    @property
    def count(self) -> int:
        """Experts that have any pairs."""
        return int(self.units[0]) // 7


def _group(runner: Runner, ids: np.ndarray, experts: int) -> Groups:
    tokens, used = ids.shape
    out = Groups(
        np.full(experts + 1, -7, np.int32),
        np.full(experts + 1, -7, np.int32),
        np.full(ids.size, -7, np.int32),
        np.zeros(3, np.int64),
    )
    out.units[2] = 1000
    kernel = spec(moe.group, experts=experts, used=used)
    count = np.array([tokens], np.int64)
    args = [ids, count, out.active, out.starts, out.pairs, out.units, 7, 11]
    runner.call(kernel, args, 0, 1)
    return out


def _random_ids(rng: np.random.Generator, tokens: int, experts: int, used: int) -> np.ndarray:
    return np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)


def test_group(runner: Runner, rng: np.random.Generator) -> None:
    """Each pair is listed once, under its expert, in order; experts without pairs are left out."""
    for experts, used in CHOICES[4:5] if runner.emulated else CHOICES:
        for tokens in (5,) if runner.emulated else (1, 5, 200):
            ids = _random_ids(rng, tokens, experts, used)
            ids[ids == experts // 2] = 0  # one without pairs; and twice the same in a token
            got = _group(runner, ids, experts)
            active, count = np.unique(ids), got.count

            assert got.units.tolist() == [7 * len(active), 11 * len(active), 1000 + len(active)]
            assert np.array_equal(got.active[:count], active)
            assert got.starts[count] == ids.size
            for n, expert in enumerate(active):
                mine = got.pairs[got.starts[n] : got.starts[n + 1]]
                assert np.array_equal(mine, np.flatnonzero(ids == expert))


# --- products by expert

EXPERTS, USED = 5, 2


class Product:
    """The products of one matrix of experts; each takes a row of x for a pair or for a token."""

    def __init__(
        self, runner: Runner, matrices: list[FileMatrix], ups: list[FileMatrix] | None = None
    ) -> None:
        self.runner, self.matrices = runner, matrices
        self.first, target = matrices[0], runner.target
        if ups:
            each = [fused_panels_of(g, u, target) for g, u in zip(matrices, ups, strict=True)]
        else:
            each = [panels_of(m, target) for m in matrices]
        self.panels, self.units = np.stack(each), len(each[0])
        self.width = self.units * target.lanes * (1 if ups else 2)
        self.activation = self.first.form.activation(target, self.first.depth)

    def prepared(self, x: np.ndarray) -> np.ndarray:
        """float32 rows as the kernel takes them."""
        kind, group, zero, base = self.activation
        return x if kind == "float" else quantize_reference(x, zero, group, kind, base)

    def seen(self, x: np.ndarray) -> np.ndarray:
        """The activations that the kernel really multiplies."""
        return (
            x
            if self.activation.kind == "float"
            else dequantize_reference(self.prepared(x), self.activation)
        )

    def run(self, x: np.ndarray, ids: np.ndarray, share: int, epilogue: str) -> np.ndarray:
        """x [tokens * used / share, depth], ids [tokens, used] -> [tokens * used, width]."""
        groups = _group(self.runner, ids, len(self.matrices))
        rows = self.prepared(x)
        out = np.full((ids.size, self.width), np.nan, np.float32)
        m = self.first
        sizes = {"fmt": m.fmt, "epilogue": epilogue, "blocks": m.blocks, "share": share}
        size = gemm.scratch_bytes(m.fmt, m.depth, self.runner.target)
        args = [self.panels, rows, out, rows[0].nbytes, self.width, self.units, groups.active,
                groups.starts, groups.pairs, np.zeros(size, np.uint8)]  # fmt: skip
        kernel = spec(moe.gemm_experts, **sizes)
        self.runner.call(kernel, args, 0, groups.count * self.units)
        return out

    @property
    def tolerance(self) -> str:
        family = self.first.form.family
        return {"float": "float product", "blocks": "int8 product", "k": "k product"}[family]


def _experts(rng: np.random.Generator, rows: int, fmt: str) -> list[FileMatrix]:
    if fmt == "nvfp4":
        return [
            stored_matrix(fmt, rng.integers(0, 256, (rows, 72), np.uint8)) for _ in range(EXPERTS)
        ]
    make, depth = (random_k, 512) if fmt in KQUANTS else (random_matrix, 96)
    return [make(rng, rows, depth, fmt) for _ in range(EXPERTS)]


@in_turn("runner", "fmt", [*QUANTIZED, "mxfp4", "nvfp4", *FLOATS, *KQUANTS], PRODUCTS)
def test_down(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """A row for each pair, times its expert's matrix; padding rows come out as zeros."""
    product = Product(runner, _experts(rng, 33, fmt))
    for tokens in (7,) if runner.emulated else (1, 2, 7, 90):
        ids = _random_ids(rng, tokens, EXPERTS, USED)
        x = rng.standard_normal((ids.size, product.first.depth)).astype(np.float32)
        got, seen = product.run(x, ids, 1, "store"), product.seen(x)
        want = np.stack(
            [product.matrices[e].values @ row for e, row in zip(ids.ravel(), seen, strict=True)]
        )

        assert_close(got[:, :33], want, product.tolerance, tokens)
        assert not got[:, 33:].any()


@in_turn("runner", "fmt", ["q8_0", "q4_0", "mxfp4", "f32", "q4_k"], PRODUCTS)
def test_gate_up(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """A token's row serves all its pairs: silu(gate x) * (up x) of each one's expert."""
    gates, ups = (_experts(rng, 21, fmt) for _ in range(2))
    product = Product(runner, gates, ups)
    for tokens in (7,) if runner.emulated else (1, 9):
        ids = _random_ids(rng, tokens, EXPERTS, USED)
        x = rng.standard_normal((tokens, product.first.depth)).astype(np.float32)
        got, seen = product.run(x, ids, USED, "silu_mul"), product.seen(x).repeat(USED, axis=0)
        both = [
            np.stack([m[e].values @ row for e, row in zip(ids.ravel(), seen, strict=True)])
            for m in (gates, ups)
        ]

        assert_close(got[:, :21], silu_mul_reference(*both), "silu", tokens)


@on("native", PRODUCTS)
@pytest.mark.parametrize("fmt", ["q4_0", "f32", "q6_k"])
def test_same_bits_in_any_company(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """A pair's outputs have the same bits alone, among others, and as a plain product's."""
    product = Product(native, _experts(rng, 40, fmt))
    ids = _random_ids(rng, 70, EXPERTS, USED)
    x = rng.standard_normal((len(ids), product.first.depth)).astype(np.float32)
    whole = product.run(x, ids, USED, "store")

    for first, count in ((0, 1), (33, 1), (5, 7), (40, 30)):
        part = product.run(x[first : first + count], ids[first : first + count], USED, "store")
        assert np.array_equal(part, whole[first * USED : (first + count) * USED])
    if fmt == "q4_0":
        m, out = product.first, np.zeros((1, product.width), np.float32)
        assert product.activation.group == 1
        kernel = spec(gemm.gemm_quant, fmt=fmt, epilogue="store", blocks=m.blocks)
        count = np.array([1], np.int64)
        expert, rows = int(ids[3, 1]), product.prepared(x[3:4])
        assert rows.shape[2] == BLOCK_BYTES
        args = [product.panels[expert], rows, out, product.width, count, np.zeros(64, np.uint8)]
        native.call(kernel, args, 0, product.units)
        assert np.array_equal(out[0], whole[3 * USED + 1])


def test_combine(runner: Runner, rng: np.random.Generator) -> None:
    """x += the weighted sum of a token's rows, the same bits alone and in company."""
    for used in (3,) if runner.emulated else (1, 3, 8):
        tokens, width = 6, 96
        x = rng.standard_normal((tokens, 128)).astype(np.float32)
        y = rng.standard_normal((tokens, used, 128)).astype(np.float32)
        weights = rng.random((tokens, used)).astype(np.float32)
        got, kernel = x.copy(), spec(moe.combine, used=used)
        none = np.zeros(1, np.int32), np.zeros(1, np.float32)
        runner.call(kernel, [got, y, weights, 128, 128, width, *none], 0, tokens)
        want = moe.combine_reference(x[:, :width], y[..., :width], weights)

        assert_close(got[:, :width], want, "float product", used)
        assert np.array_equal(got[:, width:], x[:, width:])
        ids = rng.integers(0, 4, (tokens, used)).astype(np.int32)
        biases = rng.standard_normal((4, width)).astype(np.float32)
        into = np.full_like(x, 7)
        other = spec(moe.combine, used=used, add=False, biased=True)
        runner.call(other, [into, y, weights, 128, 128, width, ids, biases], 0, tokens)
        want = moe.combine_reference(0 * x[:, :width], y[..., :width] + biases[ids], weights)
        assert_close(into[:, :width], want, "float product", used)
        for t in range(tokens):
            alone = x[t].copy()
            runner.call(kernel, [alone, y[t], weights[t], 128, 128, width, *none], 0, 1)
            assert np.array_equal(alone, got[t])
            if runner.emulated:
                break
