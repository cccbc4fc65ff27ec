"""Sums of squares by column."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import imatrix_accumulate as module
from triplepoint.jit.kernels.imatrix_accumulate import COLUMNS, reference

ASKS = ()  # see helpers/feature_sets.py
ROWS, STRIDE, EPS = 11, 128, 1e-5


def scales_of(runner: Runner, x: np.ndarray, width: int) -> np.ndarray:
    scales = np.full(len(x), 7.0, np.float32)
    runner.call(spec(module.row_scales), [x, scales, x.shape[1], width, EPS], 0, len(x))
    return scales


@pytest.mark.parametrize("width", [128, 100, 7])
def test_sums(runner: Runner, rng: np.random.Generator, width: int) -> None:
    """As the formula says, for rows whose width is no multiple of anything; added to what is there.

    What lies past the width does not count for the norm.
    """
    x = rng.standard_normal((ROWS + 2, STRIDE)).astype(np.float32)
    scales = scales_of(runner, x, width)
    sums = np.ones(STRIDE, np.float32)
    args = [x, scales, sums, np.array([ROWS], np.int64), STRIDE]
    runner.call(spec(module.square_sums), args, 0, STRIDE // COLUMNS)

    assert np.allclose(scales, 1 / ((x[:, :width] ** 2).mean(1) + EPS), rtol=1e-5)
    assert np.allclose(sums[:width], 1 + reference(x[:ROWS, :width], EPS), rtol=1e-5)


@pytest.mark.parametrize("share", [1, 2])
def test_sums_of_experts(runner: Runner, rng: np.random.Generator, share: int) -> None:
    """Each expert's rows, by the lists of pairs; experts without rows are left as they are."""
    pairs_of = {1: [4, 0, 3], 4: [1], 5: [2, 5]}
    x = rng.standard_normal((6 // share, STRIDE)).astype(np.float32)
    sums, counts = np.ones((6, STRIDE), np.float32), np.full(6, 10, np.float32)
    active = np.array([*pairs_of, 0], np.int32)
    starts = np.array([0, 3, 4, 6], np.int32)
    pairs = np.array([pair for mine in pairs_of.values() for pair in mine], np.int32)
    units = np.array([len(pairs_of) * 9], np.int64)
    ones = np.ones(len(x), np.float32)
    args = [x, ones, sums, counts, units, 9, active, starts, pairs, STRIDE, STRIDE]
    kernel = spec(module.expert_square_sums, share=share)
    runner.call(kernel, args, 0, STRIDE // COLUMNS)

    for expert in range(6):
        rows = x[[pair // share for pair in pairs_of.get(expert, [])]]
        assert np.allclose(sums[expert], 1 + reference(rows, None), rtol=1e-5)
        assert counts[expert] == 10 + len(rows)
