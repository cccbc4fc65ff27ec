"""Float weights to blocks of 32, to the byte."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from helpers.quantized import awkward_rows, cosine, total_error
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import quantize
from triplepoint.jit.kernels.panels import FORMATS

ASKS = ()  # see helpers/feature_sets.py
TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4")


def made(runner: Runner, rows: np.ndarray, fmt: str) -> np.ndarray:
    out = np.full((rows.size // 32, FORMATS[fmt].file_bytes), 0xAA, np.uint8)
    kernel = spec(quantize.quantize_blocks, fmt=fmt)
    runner.call(kernel, [rows, out], 0, rows.size // (32 * quantize.LANES))
    return out


@pytest.mark.parametrize("fmt", TYPES)
def test_bytes(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """The bytes that the `gguf` package makes, for blocks of any size, sign and sameness."""
    rows = awkward_rows(rng, 512)
    kind = gguf.GGMLQuantizationType[fmt.upper()]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        want = gguf.quants.quantize(rows, kind).reshape(-1, FORMATS[fmt].file_bytes)

    assert np.array_equal(made(runner, rows, fmt), want)
    assert np.array_equal(quantize.reference(rows, fmt), want)


@pytest.mark.parametrize("fmt", TYPES)
def test_error(fmt: str) -> None:
    """Within the bound that llama.cpp's test-quantize-fns sets: 0.002 on its cosine."""
    rows = cosine()
    assert total_error(quantize.reference(rows, fmt), rows, fmt) < 0.002
