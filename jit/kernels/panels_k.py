"""Panels of the K-quants: blocks of 256 weights whose sub-blocks have small integer scales.

    w = d * scale_j * q                          Q6_K: 16 sub-blocks of 16, q = 0..63 less 32
    w = d * scale_j * q - dmin * min_j           Q4_K, Q5_K: 8 sub-blocks of 32, q from 0

The file's bytes keep their meaning and are only put side by side for the rows of a panel; scales
that the file packs in 6 bits become bytes. (Q2_K, Q3_K and IQ4_XS: see `panels_small.py`.) For L
lanes and halves h, in this order, with [h][L] innermost:

    q4_k   fp16 d, fp16 dmin, u8 scale [8], u8 min pairs [4][h][L][2], int32 nibbles [4][8]
    q5_k   the same, then int32 fifth bits [8]
    q6_k   fp16 d, int8 scale pairs [8][h][L][2], int32 nibbles [2][16], int32 upper bits [2][8]

Nibble word g of chunk c holds K-group g of sub-block 2c in its low halves and of 2c + 1 in its high
ones (Q6_K: see `gemm_k.py`).
"""

from __future__ import annotations

import numpy as np

from ..simd import Kernel, Ptr, Value, i8, i16, i32
from . import panels_small

SUPER = 256

# Bytes that one row has of each part of a panel's block, in their order.
PARTS: dict[str, dict[str, int]] = {
    "q4_k": {"d": 2, "dmin": 2, "scale": 8, "min": 8, "nibble": 128},
    "q5_k": {"d": 2, "dmin": 2, "scale": 8, "min": 8, "nibble": 128, "high": 32},
    "q6_k": {"d": 2, "scale": 16, "nibble": 128, "high": 64},
    **panels_small.PARTS,
}


def offsets(fmt: str, lanes: int) -> dict[str, int]:
    """Return the byte offset of each part of a panel's block."""
    out, at = {}, 0
    for name, size in PARTS[fmt].items():
        out[name] = at * 2 * lanes
        at += size
    out["end"] = at * 2 * lanes
    return out


def pack_block(
    k: Kernel, fmt: str, src: Ptr, out: Ptr, half: int, lane: Value, keep: Value
) -> None:
    """Pack one block of a row into its lane of half `half`; `keep` is -1, or 0 for padding."""
    lanes, at = k.lanes, offsets(fmt, k.lanes)
    where = lane + half * lanes
    keep16 = keep.to(i16)
    if fmt in panels_small.PARTS:
        panels_small.pack_block(k, fmt, src, out, at, where, keep16)
        return

    def words(part: str, start: int, count: int) -> None:
        """Store `count` int32 words of the row from byte `start`, interleaved with the others."""
        source, target = src.at(start).cast(i32), out.at(at[part]).cast(i32)
        for n in range(count):
            target.store(where + n * 2 * lanes, source.load(n))

    if fmt == "q6_k":
        out.at(at["d"]).cast(i16).store(where, src.at(208).cast(i16).load() & keep16)
        scales, target = src.at(192).cast(i16), out.at(at["scale"]).cast(i16)
        for pair in range(8):
            target.store(where + pair * 2 * lanes, scales.load(pair) & keep16)
        words("nibble", 0, 32)
        words("high", 128, 16)
        return
    for n, part in enumerate(("d", "dmin")):
        out.at(at[part]).cast(i16).store(where, src.cast(i16).load(n) & keep16)
    packed = [src.at(4).load(n).to(i32, signed=False) for n in range(12)]
    scales, mins = six_bits(packed)
    for n, scale in enumerate(scales):
        out.at(at["scale"]).store(where + n * 2 * lanes, scale.to(i8))
    for n in range(4):
        pair = (mins[2 * n] | (mins[2 * n + 1] << 8)).to(i16)
        out.at(at["min"]).cast(i16).store(where + n * 2 * lanes, pair)
    if fmt == "q5_k":
        words("high", 16, 8)
    words("nibble", 16 if fmt == "q4_k" else 48, 32)


def six_bits(packed: list[Value]) -> tuple[list[Value], list[Value]]:
    """Unpack the 8 scales and 8 mins that 12 bytes hold in 6 bits each."""
    scales, mins = [], []
    for j in range(8):
        if j < 4:
            scales.append(packed[j] & 63)
            mins.append(packed[j + 4] & 63)
        else:
            scales.append((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4))
            mins.append((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))
    return scales, mins


def reference(
    out: np.ndarray, data: np.ndarray, fmt: str, lanes: int, where: int, inside: bool
) -> None:
    """Pack one row as `pack_block` does: data uint8 [blocks, file bytes] into `out`.

    out: uint8 [blocks, panel bytes], of which the row has lane `where` = half * lanes + lane.
    A padding row (`inside` false) keeps what its scales multiply, but not the scales.
    """
    blocks, at = len(data), offsets(fmt, lanes)

    def put(part: str, values: np.ndarray) -> None:
        """Store values [blocks, count, bytes], interleaved with those of the other rows."""
        count, size = values.shape[1:]
        there = out[:, at[part] : at[part] + count * 2 * lanes * size]
        there.reshape(blocks, count, 2 * lanes, size)[:, :, where] = values

    if fmt in panels_small.PARTS:
        panels_small.reference(put, data, fmt, inside)
        return

    def words(part: str, start: int, count: int) -> None:
        put(part, data[:, start : start + 4 * count].reshape(blocks, count, 4))

    if fmt == "q6_k":
        put("d", data[:, None, 208:210] * inside)
        put("scale", data[:, 192:208].reshape(blocks, 8, 2) * inside)
        words("nibble", 0, 32)
        words("high", 128, 16)
        return
    put("d", data[:, None, 0:2] * inside)
    put("dmin", data[:, None, 2:4] * inside)
    scales, mins = six_bits_reference(data[:, 4:16])
    put("scale", scales[:, :, None])
    put("min", mins.reshape(blocks, 4, 2))
    if fmt == "q5_k":
        words("high", 16, 8)
    words("nibble", 16 if fmt == "q4_k" else 48, 32)


def six_bits_reference(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unpack uint8 [blocks, 12] -> scales and mins, uint8 [blocks, 8] each."""
    low, high, tops = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([low & 63, (tops & 15) | (low >> 6) << 4], axis=1)
    mins = np.concatenate([high & 63, (tops >> 4) | (high >> 6) << 4], axis=1)
    return scales, mins
