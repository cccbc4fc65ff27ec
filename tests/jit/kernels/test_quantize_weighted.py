"""Float weights to blocks of 32 under an imatrix."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.quantize_k_reference import reference_blocks
from helpers.quantized import awkward_rows, dequantized
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import quantize
from triplepoint.jit.kernels.quantize_weighted import TYPES, quantize_weighted

ASKS = ()  # see helpers/feature_sets.py
PERIOD = 3  # units of 512 weights, after which the columns' weights begin again


def made(runner: Runner, rows: np.ndarray, weights: np.ndarray, fmt: str) -> np.ndarray:
    form = TYPES[fmt]
    out = np.full((rows.size // 32, form.nbytes // form.lanes), 0xAA, np.uint8)
    grids = np.array(form.grids, np.float32)
    kernel = spec(quantize_weighted, fmt=fmt)
    runner.call(kernel, [rows, weights, grids, out, weights.size // 512], 0, rows.size // 512)
    return out


@pytest.mark.parametrize("fmt", TYPES)
def test_bytes(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """The bytes of the numpy reference, on every feature set."""
    rows = awkward_rows(rng, 512 * PERIOD)
    weights = rng.uniform(0.01, 3, 512 * PERIOD).astype(np.float32)
    want = reference_blocks(rows, np.broadcast_to(weights, rows.shape), fmt)

    assert np.array_equal(made(runner, rows, weights, fmt), want)


@pytest.mark.parametrize("fmt", TYPES)
def test_weights_matter(rng: np.random.Generator, fmt: str) -> None:
    """The weighted error is well below that of the blocks made without weights."""
    rows = (rng.standard_normal((64, 512)) * 0.02).astype(np.float32)
    weights = np.exp(rng.normal(0, 1.5, 512)).astype(np.float32)

    def error(stored: np.ndarray) -> float:
        return float((weights * (dequantized(stored, fmt).reshape(rows.shape) - rows) ** 2).sum())

    weighted = reference_blocks(rows, np.broadcast_to(weights, rows.shape), fmt)
    assert error(weighted) < 0.8 * error(quantize.reference(rows, fmt))


@pytest.mark.parametrize("fmt", TYPES)
def test_even_rows(fmt: str) -> None:
    """Rows of one value, of either sign or zero, come back within fp16's precision."""
    rows = np.repeat(np.array([0, 0.7, -0.3, 0.05, -60], np.float32), 512).reshape(5, 512)
    back = dequantized(reference_blocks(rows, np.ones_like(rows), fmt), fmt).reshape(rows.shape)

    assert np.allclose(back, rows, rtol=2e-3, atol=0)
