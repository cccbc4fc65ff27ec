"""Rows from one type to another."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from helpers.quantize_k_reference import reference, reference_blocks

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.quantize import rows as module
from triplepoint.runtime.quantize.rows import RowMaker, bfloat16

WIDTH = 512


def stored(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "BF16":
        return bfloat16(values.ravel()).view(np.uint8)
    made = gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])
    return np.ascontiguousarray(made).view(np.uint8).ravel()


def read(data: np.ndarray, kind: str) -> np.ndarray:
    values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind])
    return np.asarray(values, np.float32).reshape(-1, WIDTH)


def converted(maker: RowMaker, data: np.ndarray, source: str, target: str, weights=None):
    pieces = maker.convert("w", data, GGMLType[source], GGMLType[target], WIDTH, weights)
    return np.concatenate([piece.copy() for piece in pieces])


@pytest.fixture
def values(rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal((37, WIDTH)) * 0.02).astype(np.float32)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("source", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("target", ["F32", "F16", "BF16", "Q4_0", "Q8_0", "Q5_1", "MXFP4"])
def test_bytes(maker: RowMaker, values: np.ndarray, source: str, target: str) -> None:
    """What the `gguf` package reads and makes; 37 rows do not fill the last unit of work."""
    data = stored(values, source)

    want = data if source == target else stored(read(data, source), target)
    assert np.array_equal(converted(maker, data, source, target), want)


@pytest.mark.parametrize("target", ["Q4_K", "Q6_K"])
def test_pieces(
    maker: RowMaker, values: np.ndarray, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor that is converted piece by piece has the bytes of one converted whole."""
    data = stored(values, "F16")
    whole = converted(maker, data, "F16", target)
    monkeypatch.setattr(module, "PIECE", 4 * WIDTH)

    assert np.array_equal(converted(maker, data, "F16", target), whole)
    want = reference(read(data, "F16"), np.ones_like(values), target.lower())
    assert np.array_equal(whole, want.ravel())


# llama.cpp's relative errors (ggml 0.25.3, 2026-12-01) on the rows of the test below, without an
# imatrix and with one: `python -m labs.bench.quantizers` has those of trained networks.
THEIRS = {
    "Q4_0": (0.11851, 0.10789),
    "Q4_1": (0.09457, 0.07126),
    "Q5_0": (0.05937, 0.05477),
    "Q5_1": (0.04571, 0.03479),
    "Q8_0": (0.00749, 0.00756),
    "MXFP4": (0.13369, 0.13788),
    "Q2_K": (0.34099, 0.23854),
    "Q3_K": (0.18580, 0.15672),
    "Q4_K": (0.08797, 0.07449),
    "Q5_K": (0.04449, 0.03932),
    "Q6_K": (0.02333, 0.02087),
}


@pytest.mark.parametrize("target", THEIRS)
def test_error_beside_llama_cpp(maker: RowMaker, target: str) -> None:
    """On weights with heavy tails no type is farther from them than llama.cpp's blocks are."""
    chance = np.random.default_rng(46)
    rows = (chance.standard_t(4, (64, WIDTH)) * 0.02).astype(np.float32)
    columns = np.exp(chance.normal(0, 1.5, WIDTH)).astype(np.float32)
    for theirs, weights in zip(THEIRS[target], (None, columns), strict=True):
        given = None if weights is None else weights[None]
        stored = converted(maker, rows.view(np.uint8).ravel(), "F32", target, given)
        w = np.ones(WIDTH) if weights is None else weights
        off = read(stored.reshape(len(rows), -1), target) - rows.astype(np.float64)
        error = np.sqrt((w * off**2).sum() / (w * rows.astype(np.float64) ** 2).sum())
        assert error < 1.001 * theirs


@pytest.mark.parametrize("width", [32, 96, 800])
def test_weights_of_narrow_rows(maker: RowMaker, rng: np.random.Generator, width: int) -> None:
    """Blocks of 32 meet the weights of their own columns in rows of any length."""
    rows = (rng.standard_normal((50, width)) * 0.02).astype(np.float32)
    weights = np.exp(rng.normal(0, 1.5, width)).astype(np.float32)
    pieces = maker.convert(
        "w", rows.view(np.uint8).ravel(), GGMLType.F32, GGMLType.Q4_1, width, weights[None]
    )
    got = np.concatenate([piece.copy() for piece in pieces])
    whole = np.zeros(-(-rows.size // 512) * 512, np.float32)
    whole[: rows.size] = rows.ravel()
    want = reference_blocks(whole, np.resize(weights, whole.size), "q4_1")

    assert np.array_equal(got, want.ravel()[: len(got)])


def test_weights_of_experts(maker: RowMaker, rng: np.random.Generator) -> None:
    """Each expert's rows are quantized under that expert's weights."""
    values = (rng.standard_normal((2 * 8, WIDTH)) * 0.02).astype(np.float32)
    weights = rng.uniform(0.1, 3, (2, WIDTH)).astype(np.float32)
    got = converted(maker, stored(values, "F32"), "F32", "Q4_K", weights)
    want = reference(values, np.repeat(weights, 8, axis=0), "q4_k")

    assert np.array_equal(got, want.ravel())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 65000.0])
def test_weight_that_cannot_be_stored(maker: RowMaker, values: np.ndarray, bad: float) -> None:
    """It is named by tensor, row and column."""
    values[20, 17] = bad
    with pytest.raises(ModelError, match=r"tensor w has the weight .* in row 20, column 17"):
        converted(maker, values.view(np.uint8).ravel(), "F32", "Q4_K")


def test_type_that_cannot_be_read(maker: RowMaker) -> None:
    """A source type without a kernel is refused by name."""
    with pytest.raises(UnsupportedModelError, match="tensor w is TQ1_0"):
        converted(maker, np.zeros(108, np.uint8), "TQ1_0", "Q8_0")


def test_bfloat16() -> None:
    """To nearest, ties to even."""
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, 1e-37, 3.3e38], np.float32)
    back = (bfloat16(values).astype(np.uint32) << 16).view(np.float32)

    assert back.tolist()[:4] == [1.0, 1.0, 1.015625, -2.5]
    assert np.allclose(back, values, rtol=2**-8)
