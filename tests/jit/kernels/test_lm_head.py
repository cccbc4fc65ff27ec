"""The output head: the panels of a list, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import DOT, in_turn
from helpers.kquants import KQUANTS, random_k
from helpers.matrices import FLOATS, QUANTIZED, panels_of, random_matrix
from helpers.runners import Native, Runner
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import gemm, lm_head
from triplepoint.jit.kernels.activations import dequantize_reference, quantize_reference

ASKS = (DOT,)  # see helpers/feature_sets.py
ROWS = 500  # of the vocabulary: the last panel is not full


class Head:
    """An output head of random weights in one format, and rows that it meets."""

    def __init__(self, runner: Runner, rng: np.random.Generator, fmt: str) -> None:
        make, depth = (random_k, 512) if fmt in KQUANTS else (random_matrix, 96)
        self.runner, self.matrix = runner, make(rng, ROWS, depth, fmt)
        target, form = runner.target, self.matrix.form
        self.panels = panels_of(self.matrix, target)
        self.rows = 2 * target.lanes
        activation = form.activation(target, depth)
        kind, group, zero, base = activation
        self.x = rng.standard_normal((3, depth)).astype(np.float32)
        self.prepared = self.x
        if kind != "float":
            self.prepared = quantize_reference(self.x, zero, group, kind, base)
            self.x = dequantize_reference(self.prepared, activation)
        self.tolerance = {"float": "float product", "blocks": "int8 product", "k": "k product"}[
            form.family
        ]

    def logits(self, listed: np.ndarray, tokens: int = 1) -> np.ndarray:
        """float32 [tokens, padded vocabulary]; NaN where nothing was written."""
        m = self.matrix
        out = np.full((tokens, len(self.panels) * self.rows), np.nan, np.float32)
        size = gemm.scratch_bytes(m.fmt, m.depth, self.runner.target)
        kernel = spec(lm_head.gemm_selected, fmt=m.fmt, blocks=m.blocks)
        units = np.append(listed, 0).astype(np.int32)
        args = [self.panels, self.prepared[:tokens], out, self.prepared[0].nbytes, out.shape[1],
                np.array([tokens]), units, np.zeros(size, np.uint8)]  # fmt: skip
        self.runner.call(kernel, args, 0, len(listed))
        return out


@in_turn("native", "fmt", QUANTIZED + FLOATS + KQUANTS, ASKS)
def test_the_allowed_ones_only(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """What a mask allows has the bits that it has among all; the rest is not written."""
    _check_allowed(native, rng, fmt)


def test_on_other_machines(runner: Runner, rng: np.random.Generator) -> None:
    """The same, emulated too."""
    _check_allowed(runner, rng, "q8_0")


def _check_allowed(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    one = Head(runner, rng, fmt)
    whole = one.logits(np.arange(len(one.panels)))
    bits = np.zeros(512, np.uint8)
    bits[[0, 77, 78, 300, ROWS - 1]] = 1
    mask = np.packbits(bits, bitorder="little").view(np.uint32)
    listed = lm_head.panels_of(mask, one.rows)
    part = one.logits(listed)
    written = np.isin(np.arange(part.shape[1]) // one.rows, listed)
    allowed = bits[:ROWS].astype(bool)

    assert listed.tolist() == sorted({at // one.rows for at in np.flatnonzero(bits)})
    assert lm_head.count_panels(mask, one.rows) == len(listed)
    assert np.array_equal(part[0, written], whole[0, written])
    assert np.isnan(part[0, ~written]).all()
    want = lm_head.reference(one.matrix.values, one.x[0], mask)
    assert_close(part[0, :ROWS][allowed], want[allowed], one.tolerance, fmt)
    assert np.isnan(want[~allowed]).all()


@pytest.mark.parametrize("fmt", ["q8_0", "bf16", "q6_k"])
def test_several_rows(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """A row's logits have the same bits alone and with others, listed panels or all."""
    one = Head(native, rng, fmt)
    listed = np.array([5, 2])
    alone, three = one.logits(np.arange(len(one.panels))), one.logits(listed, 3)
    written = np.isin(np.arange(three.shape[1]) // one.rows, listed)

    assert np.array_equal(three[0, written], alone[0, written])
    assert np.isfinite(three[:, written]).all()
