"""Float weights to K-quants."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.quantize_k_reference import reference
from helpers.quantized import (
    ALLOWED,
    ALLOWED_OTHERS,
    awkward_rows,
    cosine,
    dequantized,
    relative_error,
    total_error,
)
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import quantize_k
from triplepoint.jit.kernels.quantize_store import KTYPES

ASKS = ()  # see helpers/feature_sets.py
WIDTH = 512

# Root mean square error of a normal distribution, in its deviations. llama.cpp's own quantizers
# (ggml 0.25.3) have 0.297, 0.151, 0.0716, 0.0363 and 0.0178 on the same data without an imatrix,
# and 0.269, 0.145, 0.0710, 0.0355 and 0.0174 with one of equal weights.
NORMAL = {"q2_k": 0.27, "q3_k": 0.1445, "q4_k": 0.0705, "q5_k": 0.0345, "q6_k": 0.0169}


def made(runner: Runner, rows: np.ndarray, weights: np.ndarray, fmt: str, by_size: bool = False):
    form = KTYPES[fmt]
    out = np.full((rows.size // 256, form.nbytes), 0xAA, np.uint8)
    kernel = spec(quantize_k.quantize_k, fmt=fmt, by_size=by_size)
    grids = np.array(form.grids, np.float32)
    runner.call(kernel, [rows, weights, grids, out, len(weights) // 256], 0, len(out))
    return out


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("fmt", KTYPES)
def test_bytes(runner: Runner, rng: np.random.Generator, fmt: str, weighted: bool) -> None:
    """The bytes of the numpy reference, on every feature set."""
    if runner.emulated and weighted:
        pytest.skip("the same code as without weights, and emulation is slow")
    rows = awkward_rows(rng, WIDTH)
    weights = rng.uniform(0.01, 3, WIDTH).astype(np.float32) if weighted else _ones(WIDTH)
    by_size = fmt == "q2_k" and not weighted
    want = reference(rows, np.broadcast_to(weights, rows.shape), fmt, by_size)

    assert np.array_equal(made(runner, rows, weights, fmt, by_size), want)


@pytest.mark.parametrize("fmt", KTYPES)
def test_error(fmt: str) -> None:
    """Within the bounds of llama.cpp's test-quantize-fns, on its cosine."""
    for offset in (0.0, 1.0):
        rows = cosine(offset)
        stored = reference(rows, np.ones_like(rows), fmt)
        assert total_error(stored, rows, fmt) < ALLOWED.get(fmt, ALLOWED_OTHERS)


@pytest.mark.parametrize("fmt", KTYPES)
def test_error_of_normal_weights(rng: np.random.Generator, fmt: str) -> None:
    """No farther from a normal distribution than llama.cpp's quantizers are."""
    rows = (rng.standard_normal((64, 512)) * 0.02).astype(np.float32)
    stored = reference(rows, np.ones_like(rows), fmt, by_size=fmt == "q2_k")

    assert relative_error(stored, rows, fmt) < NORMAL[fmt]


@pytest.mark.parametrize("fmt", KTYPES)
def test_even_rows(fmt: str) -> None:
    """Rows of one value, of either sign or zero, come back within fp16's precision."""
    rows = np.repeat(np.array([0, 0.7, -0.3, 0.05, -60], np.float32), 256).reshape(5, 256)
    back = dequantized(reference(rows, np.ones_like(rows), fmt), fmt)

    assert np.allclose(back, rows, rtol=2e-3, atol=0)


@pytest.mark.parametrize("fmt", KTYPES)
def test_weights_matter(rng: np.random.Generator, fmt: str) -> None:
    """Columns that cost a hundred times more come back closer, the others less so."""
    rows = (rng.standard_normal((32, 256)) * 0.02).astype(np.float32)
    weights = _ones(256)
    weights[::4] = 100
    even = dequantized(reference(rows, np.ones_like(rows), fmt), fmt) - rows
    skewed = reference(rows, np.broadcast_to(weights, rows.shape), fmt)
    uneven = dequantized(skewed, fmt) - rows
    dear = weights == 100

    assert (uneven[:, dear] ** 2).mean() < 0.9 * (even[:, dear] ** 2).mean()
    assert (uneven[:, ~dear] ** 2).mean() > (even[:, ~dear] ** 2).mean()


def _ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)
