"""Weights to be quantized, and how far what comes back may be from them."""

from __future__ import annotations

import gguf
import numpy as np

# What llama.cpp's tests/test-quantize-fns.cpp allows: MAX_QUANTIZATION_TOTAL_ERROR, …_2BITS and
# …_3BITS. Its measure is sqrt(sum of squares) / n, not the root of the mean.
ALLOWED = {"q2_k": 0.0075, "q3_k": 0.004}
ALLOWED_OTHERS = 0.002


def cosine(offset: float = 0.0) -> np.ndarray:
    """The data of test-quantize-fns, 4,096 values of 0.1 + 2 cos(i + offset): float32 [16, 256]."""
    values = 0.1 + 2 * np.cos(np.arange(4096, dtype=np.float32) + np.float32(offset))
    return values.astype(np.float32).reshape(16, 256)


def total_error(stored: np.ndarray, rows: np.ndarray, fmt: str) -> float:
    """Its measure of what blocks uint8 [blocks, bytes] are away from `rows`."""
    off = (dequantized(stored, fmt).ravel() - rows.ravel()).astype(np.float64)
    return float(np.sqrt((off**2).sum()) / off.size)


def relative_error(stored: np.ndarray, rows: np.ndarray, fmt: str) -> float:
    """Root of the mean square error, in root mean squares of the weights."""
    off = (dequantized(stored, fmt).ravel() - rows.ravel()).astype(np.float64)
    return float(np.sqrt((off**2).mean() / (rows.astype(np.float64) ** 2).mean()))


def dequantized(stored: np.ndarray, fmt: str) -> np.ndarray:
    """What the `gguf` package reads from blocks uint8 [blocks, bytes]."""
    return gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[fmt.upper()])


def awkward_rows(rng: np.random.Generator, width: int) -> np.ndarray:
    """float32 [16, width]: usual weights, and rows that a quantizer may stumble over."""
    rows = (rng.standard_normal((16, width)) * 0.02).astype(np.float32)
    rows[1] = 0
    rows[2, :32] = 0.5  # all the same, in a row of small ones
    rows[3] = -1
    rows[4] *= 1e-6  # fp16 has few numbers here
    rows[5] *= 1e5
    rows[6] = 1e-30  # and none here
    rows[7, :16] = 1e-41
    rows[8, :64] = np.tile([-0.25, 0.25], 32)  # which of two equals is the farthest
    rows[9] = rng.standard_t(3, width) * 0.02
    rows[10] = np.abs(rows[10])
    rows[11] = -np.abs(rows[11])
    rows[12, ::7] = 3.0
    return rows
