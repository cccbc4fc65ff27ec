"""Random valid blocks of K-quants: the `gguf` package reads them but cannot make them."""

from __future__ import annotations

import gguf
import numpy as np

from triplepoint.jit.kernels.panels import FORMATS

from .matrices import FileMatrix

KQUANTS = ("q4_k", "q5_k", "q6_k")
LARGEST = {"q4_k": 15, "q5_k": 31, "q6_k": 63}  # stored quants run from 0 to this


def stored_matrix(fmt: str, raw: np.ndarray) -> FileMatrix:
    """Bytes [rows, bytes of a row] and what the `gguf` package says they stand for."""
    kind = gguf.GGMLQuantizationType[fmt.upper()]
    return FileMatrix(fmt, raw, gguf.quants.dequantize(raw, kind))


def random_k(
    rng: np.random.Generator, rows: int, depth: int, fmt: str, scale: float = 0.02
) -> FileMatrix:
    """Any bytes for scales, mins and quants, under fp16 scales of either sign near `scale`."""
    form = FORMATS[fmt]
    raw = rng.integers(0, 256, (rows, depth // form.block, form.file_bytes), dtype=np.uint8)
    for at in (208,) if fmt == "q6_k" else (0, 2):
        d = rng.uniform(0.5, 1.5, raw.shape[:2]) * rng.choice([-scale, scale], raw.shape[:2])
        put_half(raw, at, d)
    return stored_matrix(fmt, raw.reshape(rows, -1))


def put_half(raw: np.ndarray, at: int, values: np.ndarray | float) -> None:
    """Write fp16 `values` [rows, blocks] at byte `at` of blocks uint8 [rows, blocks, bytes]."""
    wide = np.broadcast_to(np.asarray(values, np.float16), raw.shape[:2])
    raw[..., at : at + 2] = np.ascontiguousarray(wide)[..., None].view(np.uint8)


def even_k(fmt: str, q: np.ndarray, scale: int, least: int = 0, d: float = 1.0) -> FileMatrix:
    """Stored quants q [rows, depth] under one integer scale, min and d for all sub-blocks.

    For Q6_K `least` has no place and the value is d * scale * (q - 32).
    """
    form, rows = FORMATS[fmt], len(q)
    blocks = q.reshape(rows, -1, 256).astype(np.uint8)
    raw = np.zeros((*blocks.shape[:2], form.file_bytes), np.uint8)
    if fmt == "q6_k":
        # Half n holds quarters q; see the table in `gemm_k.py`, and ggml's comments.
        quarters = blocks.reshape(rows, -1, 2, 4, 32)
        low, top = quarters & 15, quarters >> 4
        nibbles = low[..., :2, :] | low[..., 2:, :] << 4
        raw[..., :128] = nibbles.reshape(*raw.shape[:2], 128)
        high = sum(top[..., n, :] << (2 * n) for n in range(4))
        raw[..., 128:192] = np.asarray(high, np.uint8).reshape(*raw.shape[:2], 64)
        raw[..., 192:208] = np.uint8(scale & 255)
        put_half(raw, 208, d)
        return stored_matrix(fmt, raw.reshape(rows, -1))
    put_half(raw, 0, d)
    put_half(raw, 2, d)
    raw[..., 4:8] = (scale & 63) | (scale >> 4) << 6
    raw[..., 8:12] = (least & 63) | (least >> 4) << 6
    raw[..., 12:16] = (scale & 15) | (least & 15) << 4
    subs = blocks.reshape(rows, -1, 8, 32)
    low = subs & 15
    nibbles = low[..., 0::2, :] | low[..., 1::2, :] << 4
    at = 48 if fmt == "q5_k" else 16
    raw[..., at : at + 128] = nibbles.reshape(*raw.shape[:2], 128)
    if fmt == "q5_k":
        high = sum((subs[..., n, :] >> 4) << n for n in range(8))
        raw[..., 16:48] = np.asarray(high, np.uint8)
    return stored_matrix(fmt, raw.reshape(rows, -1))
