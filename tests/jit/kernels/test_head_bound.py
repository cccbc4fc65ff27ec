"""Bounds of logits: what is left out is never the largest one, whatever the head and the row."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import DOT, in_turn
from helpers.matrices import FileMatrix, matrix_of, panels_of, random_matrix
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import argmax, head_bound, lm_head
from triplepoint.jit.kernels.activations import dequantize_reference, quantize_reference
from triplepoint.jit.kernels.head_bound import COPY, HEAD
from triplepoint.runtime.forward.logits import greedy

ASKS = (DOT,)  # see helpers/feature_sets.py
ROWS, DEPTH = 500, 96  # of the vocabulary: the last panel is not full
CASES = (
    "random", "peaked", "equal rows", "one row twice", "zero rows", "zero row of x", "below zero",
    "one heavy channel", "NaN", "infinity", "sums overflow", "huge", "tiny", "tiny weights",
)  # fmt: skip


class Head:
    """An output head, its copy and one row that both meet."""

    def __init__(self, runner: Runner, matrix: FileMatrix, x: np.ndarray) -> None:
        self.runner, self.matrix, self.lanes = runner, matrix, runner.target.lanes
        self.panels = panels_of(matrix, runner.target)
        self.units, size = len(self.panels), COPY.panel_bytes(matrix.blocks, self.lanes)
        self.copy, bad = np.zeros(self.units * size, np.uint8), np.ones(self.units, np.int32)
        raw, rows = matrix.raw, matrix.rows
        args = [raw, raw[self.lanes :], self.copy, raw.shape[1], 2 * self.lanes, rows,
                rows - self.lanes, matrix.blocks, bad]  # fmt: skip
        runner.call(spec(head_bound.pack_copy), args, 0, self.units)
        assert not bad.any()
        self.rows_of_x = []
        for form in (HEAD, COPY):
            kind, group, zero, base = one = form.activation(runner.target, matrix.depth)
            self.rows_of_x.append(quantize_reference(x[None], zero, group, kind, base))
        self.x = dequantize_reference(self.rows_of_x[1], one)[0]

    @property
    def unpacked(self) -> tuple[np.ndarray, np.ndarray]:
        """The copy and its radii: float64 [padded rows, depth] and [padded rows]."""
        panels, lanes = self.copy.reshape(self.units, -1), self.lanes
        blocks = panels[:, : -8 * lanes].reshape(self.units, -1, 36 * lanes)
        scales = np.ascontiguousarray(blocks[..., : 4 * lanes]).view("<f2").astype(np.float64)
        words = blocks[..., 4 * lanes :].reshape(*blocks.shape[:2], 4, 2 * lanes, 4)
        both = np.concatenate([words & 15, words >> 4], 2).astype(np.float64) - 8
        values = both * scales[:, :, None, :, None]
        rows = values.transpose(0, 3, 1, 2, 4).reshape(self.units * 2 * lanes, -1)
        return rows, np.ascontiguousarray(panels[:, -8 * lanes :]).view("<f4").reshape(-1)

    def logits(self, listed: np.ndarray, out: np.ndarray) -> np.ndarray:
        """`out`, float32 [padded rows], with the products of these panels."""
        kernel = spec(lm_head.gemm_selected, fmt=HEAD.name, blocks=self.matrix.blocks)
        args = [self.panels, self.rows_of_x[0], out, 0, len(out), np.array([1]),
                np.append(listed, 0).astype(np.int32), np.zeros(1 << 16, np.uint8)]  # fmt: skip
        self.runner.call(kernel, args, 0, len(listed))
        return out

    @property
    def all_logits(self) -> np.ndarray:
        return self.logits(np.arange(self.units), np.zeros(self.units * 2 * self.lanes, np.float32))

    def select(self, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bounds of the panels, the panels that are taken, and the mask that is left."""
        bounds = np.zeros(self.units, np.float32)
        left = np.zeros(512, np.uint32)
        left[: 0 if mask is None else len(mask)] = 0 if mask is None else mask
        use = np.array([mask is not None], np.int64)
        kernel = spec(head_bound.gemm_bounds, blocks=self.matrix.blocks)
        args = [self.copy, self.rows_of_x[1], left, use, bounds]
        self.runner.call(kernel, args, 0, self.units)
        panels, found = np.zeros(self.units + 1, np.int32), np.zeros(1, np.int64)
        kernel = spec(head_bound.select_panels, blocks=self.matrix.blocks)
        args = [self.panels, self.rows_of_x[0], bounds, left, use, panels, found, self.units,
                self.matrix.rows]  # fmt: skip
        self.runner.call(kernel, args, 0, 1)
        assert use[0] == 1
        assert panels[found[0]] == panels[found[0] - 1], "what is read ahead is in the head"
        return bounds, panels[: found[0]], left

    def check(self, mask: np.ndarray | None) -> int:
        """Check that the greedy choice is the one of all logits; return the panels it took."""
        whole = self.all_logits
        bounds, taken, left = self.select(mask)
        rows = self.matrix.rows
        # What is not computed is left over from other passes, and may be anything.
        part = self.logits(taken, np.full(len(whole), 1e30, np.float32))
        assert greedy(part[:rows], left) == greedy(whole[:rows], mask)
        given = np.full(len(whole), mask is None)
        if mask is not None:
            given[:rows] = np.unpackbits(mask.view(np.uint8), bitorder="little")[:rows]
        largest = np.where(given & (whole == whole), whole, argmax.NEVER)
        largest = largest.reshape(self.units, -1).max(1)
        assert (bounds >= largest).all()
        assert not np.isnan(bounds).any()
        return len(taken)


def _head(runner: Runner, rng: np.random.Generator, case: str) -> Head:
    values = rng.standard_normal((ROWS, DEPTH)).astype(np.float32)
    x = rng.standard_normal(DEPTH).astype(np.float32)
    if case == "peaked":
        values[77] = 3 * x
    elif case == "equal rows":
        values[:] = values[0]
    elif case == "one row twice":
        values[400] = values[33] = 2 * x
    elif case == "zero rows":
        values[rng.random(ROWS) < 0.9] = 0
    elif case == "zero row of x":
        x[:] = 0
    elif case == "below zero":  # rows that pad the last panel have larger products
        values = -np.abs(values)
        x = np.abs(x)
    elif case == "one heavy channel":
        x[5] = 300
    elif case in ("NaN", "infinity"):
        x[40] = {"NaN": np.nan, "infinity": np.inf}[case]
    elif case == "sums overflow":
        values *= 1e4
        x *= 1e34
    elif case == "huge":
        values *= 4e6  # near the largest scale that fp16 holds
        x *= 1e20
    elif case == "tiny":
        x *= 1e-30
    elif case == "tiny weights":  # whose scales fp16 holds as denormals, or as zeros
        values *= 1e-5
    with np.errstate(all="ignore"):
        return Head(runner, matrix_of(values, HEAD.name), x)


def _masks(rng: np.random.Generator, rows: int) -> list[np.ndarray | None]:
    found: list[np.ndarray | None] = [None]
    for share in (0.5, 0.01, 0.0):
        bits = np.zeros(-(-rows // 32) * 32, bool)
        bits[:] = rng.random(len(bits)) < share  # those behind the vocabulary among them
        found.append(np.packbits(bits, bitorder="little").view(np.uint32))
    return found


@in_turn("native", "case", CASES, ASKS, quick=CASES)
def test_the_choice_is_that_of_all_logits(
    native: Native, rng: np.random.Generator, case: str
) -> None:
    """Ties, padding, masks, and numbers that are none or too large: the same token, by bounds."""
    head = _head(native, rng, case)
    for mask in _masks(rng, ROWS):
        head.check(mask)


def test_on_other_machines(runner: Runner, rng: np.random.Generator) -> None:
    """The same, emulated too."""
    _head(runner, rng, "one row twice").check(None)


def test_random_heads(native: Native, rng: np.random.Generator) -> None:
    """Heads of many sizes, activations with outliers: no product is above its bound."""
    for _ in range(10):
        rows, depth = int(rng.integers(40, 900)), 32 * int(rng.integers(1, 20))
        matrix = random_matrix(rng, rows, depth, HEAD.name)
        x = (rng.standard_normal(depth) * rng.exponential(1, depth) ** 3).astype(np.float32)
        head = Head(native, matrix, x)
        for mask in _masks(rng, rows):
            head.check(mask)


def test_most_panels_are_left_out(native: Native, rng: np.random.Generator) -> None:
    """A row far above the others needs its own panel alone; one value for all needs all panels."""
    assert _head(native, rng, "peaked").check(None) == 1
    equal = _head(native, rng, "equal rows")
    assert equal.check(None) == equal.units


def test_copy_and_radii(runner: Runner, rng: np.random.Generator) -> None:
    """A row of the copy is within its radius of the row, which is hardly more than the distance."""
    head = _head(runner, rng, "random")
    copy, radii = head.unpacked
    apart = np.linalg.norm(head.matrix.values - copy[:ROWS], axis=1)

    assert (radii[:ROWS] >= apart).all()
    assert (radii[:ROWS] <= apart * 1.001 + 1e-3).all()
    assert (apart < 0.12 * np.linalg.norm(head.matrix.values, axis=1)).all()
    assert not radii[ROWS:].any()
    assert not copy[ROWS:].any()


def test_bounds_are_the_formula(native: Native, rng: np.random.Generator) -> None:
    """A panel's bound is the largest one of its allowed rows by the formula, rounding apart."""
    head = _head(native, rng, "random")
    copy, _ = head.unpacked
    mask = _masks(rng, ROWS)[1]
    assert mask is not None
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(copy)].astype(bool)
    bounds, _, _ = head.select(mask)
    weights = np.zeros((len(copy), DEPTH), np.float32)
    weights[:ROWS] = head.matrix.values
    want = np.where(allowed, head_bound.reference(weights, copy, head.x), -np.inf)
    want = want.reshape(head.units, -1).max(1)

    assert (want > -np.inf).all()
    assert np.allclose(bounds, want, rtol=1e-3, atol=1e-2)
    assert (bounds >= want - 1e-6).all()


@pytest.mark.parametrize("depth", [32, 224, 256, 896])
def test_activations_are_those_of_the_head(native: Native, depth: int) -> None:
    """Head and copy see the same numbers: else the bound would be one of other products."""
    forms = [form.activation(native.target, depth) for form in (HEAD, COPY)]
    assert forms[0].kind == forms[1].kind
    assert forms[0].group == forms[1].group
    assert forms[0].kind in ("zero", "factors")
