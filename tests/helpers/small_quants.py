"""Blocks of Q2_K, Q3_K and IQ1 to IQ4: random ones, and such as have given quants and scales."""

from __future__ import annotations

import numpy as np
from helpers.kquants import put_half, stored_matrix
from helpers.matrices import FileMatrix

from triplepoint.jit.kernels.panels import FORMATS

GRIDS = ("iq3_s", "iq3_xxs")
EIGHTS = ("iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m")
SMALL = ("q2_k", "q3_k", "iq4_xs", *GRIDS, *EIGHTS)
# Where fp16 scales lie.
FLOATS_AT = {"q2_k": (80, 82), "q3_k": (108,), **dict.fromkeys(("iq4_xs", *GRIDS, *EIGHTS), (0,))}
LARGEST = {"q2_k": 3, "q3_k": 7, "iq4_xs": 15}  # stored quants run from 0 to this


def random_small(
    rng: np.random.Generator, rows: int, depth: int, fmt: str, scale: float = 0.02
) -> FileMatrix:
    """Any bytes for scales, mins and quants, under fp16 scales of either sign near `scale`."""
    raw = rng.integers(0, 256, (rows, depth // 256, FORMATS[fmt].file_bytes), dtype=np.uint8)
    for at in FLOATS_AT[fmt]:
        d = rng.uniform(0.5, 1.5, raw.shape[:2]) * rng.choice([-scale, scale], raw.shape[:2])
        put_scale(raw, fmt, at, d)
    return stored_matrix(fmt, raw.reshape(rows, -1))


def put_scale(raw: np.ndarray, fmt: str, at: int, values: np.ndarray | float) -> None:
    """Write fp16 `values` [rows, blocks] into blocks uint8 [rows, blocks, bytes]: at byte `at`.

    IQ1_M has them in the upper four bits of its last four 16-bit words.
    """
    if fmt != "iq1_m":
        put_half(raw, at, values)
        return
    bits = np.broadcast_to(np.asarray(values, np.float16), raw.shape[:2]).view(np.uint16)
    for n in range(4):
        tops = raw[..., 49 + 2 * n]
        tops[...] = (tops & 15) | (bits >> (4 * n) & 15) << 4


def even_small(fmt: str, q: np.ndarray, scale: int, least: int, d: float) -> FileMatrix:
    """Stored quants q [rows, depth] under one integer scale, min (Q2_K) and d for all sub-blocks.

    Scales of Q3_K and IQ4_XS run from -32 to 31, those of Q2_K from 0 to 15.
    """
    blocks = q.reshape(len(q), -1, 256).astype(np.uint8)
    raw = np.zeros((*blocks.shape[:2], FORMATS[fmt].file_bytes), np.uint8)
    for at in FLOATS_AT[fmt]:
        put_half(raw, at, d)
    if fmt == "iq4_xs":
        stored = scale + 32
        raw[..., 2:4] = (stored >> 4) * 0x55
        raw[..., 4:8] = (stored & 15) * 0x11
        halves = blocks.reshape(*raw.shape[:2], 8, 2, 16)
        raw[..., 8:] = (halves[..., 0, :] | halves[..., 1, :] << 4).reshape(*raw.shape[:2], 128)
        return stored_matrix(fmt, raw.reshape(len(q), -1))
    # Half n of a block, quarter j: bits 2 j of 32 bytes.
    quarters = blocks.reshape(*raw.shape[:2], 2, 4, 32)
    low = sum((quarters[..., j, :] & 3) << (2 * j) for j in range(4))
    packed = np.asarray(low, np.uint8).reshape(*raw.shape[:2], 64)
    if fmt == "q2_k":
        raw[..., :16] = scale | least << 4
        raw[..., 16:80] = packed
        return stored_matrix(fmt, raw.reshape(len(q), -1))
    stored = scale + 32
    subs = blocks.reshape(*raw.shape[:2], 8, 32)
    raw[..., :32] = np.asarray(sum((subs[..., n, :] >> 2) << n for n in range(8)), np.uint8)
    raw[..., 32:96] = packed
    raw[..., 96:104] = (stored & 15) * 0x11
    raw[..., 104:108] = (stored >> 4) * 0x55
    return stored_matrix(fmt, raw.reshape(len(q), -1))
