"""Blocks of IQ2 and IQ1, whose indices select eight digits of a grid (`grids.py`)."""

from __future__ import annotations

import numpy as np

from ..simd import Ptr, Value, i16, i32
from . import grids

PAIRED = ("iq2_xs", "iq2_s", "iq1_m")  # scales for the halves of an activation block
EIGHTS = ("iq2_xxs", "iq1_s", *PAIRED)


def half_float(fmt: str, block: Ptr) -> Value:
    """Return the bits of a block's fp16 scale: int16."""
    if fmt != "iq1_m":
        return block.cast(i16).load()
    tops = [_word(block, 48 + 2 * n) & 0xF000 for n in range(4)]
    return ((tops[0] >> 12) | (tops[1] >> 8) | (tops[2] >> 4) | tops[3]).to(i16)


def indices(fmt: str, grid: Ptr, block: Ptr) -> list[list[Value]]:
    """Unpack a file block to indices into `codebook.TABLES`: [activation block][K-group] int32.

    A byte of a word is the digit of a weight, with 4 for its sign.
    """
    out = []
    for sub in range(8):
        groups = []
        for index, signs in zip(*_eights(fmt, block, sub), strict=True):
            for half in range(2):
                four = (signs >> (4 * half)) & 15
                spread = grids.spread(four, 2)
                groups.append(grid.load(index * 2 + half) | spread)
        out.append(groups)
    return out


def _eights(fmt: str, block: Ptr, sub: int) -> tuple[list[Value], list[Value]]:
    """Return, for each eight weights of an activation block, the grid index and 8 sign bits."""
    if fmt == "iq2_xxs":
        word = block.at(6 + 8 * sub).cast(i32).load()
        sevens = [(word >> (7 * n)) & 0x7F for n in range(4)]
        return [grids.byte(block, 2 + 8 * sub + n) for n in range(4)], [_even(s) for s in sevens]
    if fmt == "iq2_xs":
        both = [_word(block, 2 + 8 * sub + 2 * n) for n in range(4)]
        return [b & 511 for b in both], [_even(b >> 9) for b in both]
    low = [grids.byte(block, (0 if fmt == "iq1_m" else 2) + 4 * sub + n) for n in range(4)]
    if fmt == "iq2_s":
        tops = [(grids.byte(block, 66 + sub) >> (2 * n)) & 3 for n in range(4)]
        signs = [grids.byte(block, 34 + 4 * sub + n) for n in range(4)]
    elif fmt == "iq1_s":
        high = _word(block, 34 + 2 * sub)
        tops, signs = [(high >> (3 * n)) & 7 for n in range(4)], [(high >> 15) * 255] * 4
    else:
        fours = [grids.byte(block, 32 + 2 * sub + n // 2) >> (4 * (n % 2)) for n in range(4)]
        tops, signs = [four & 7 for four in fours], [((four >> 3) & 1) * 255 for four in fours]
    return [a | (b << 8) for a, b in zip(low, tops, strict=True)], signs


def scales(fmt: str, block: Ptr) -> list[Value]:
    """Return s of each activation block, or s | s' << 4 of its halves; the factor is 2 s + 1."""
    if fmt == "iq2_xxs":
        return [(block.at(6 + 8 * n).cast(i32).load() >> 28) & 15 for n in range(8)]
    if fmt == "iq1_s":
        return [(_word(block, 34 + 2 * n) >> 12) & 7 for n in range(8)]
    if fmt == "iq1_m":
        both = [_word(block, 48 + n // 2 * 2) >> (6 * (n % 2)) for n in range(8)]
        return [(b & 7) | ((b & 56) << 1) for b in both]
    return [grids.byte(block, (66 if fmt == "iq2_xs" else 74) + n) for n in range(8)]


def halves(fmt: str, packed: Value) -> list[Value]:
    """Unpack an int32 of `scales` to factors 2 s + 1: one per activation block, or per half."""
    low = ((packed & 15) << 1) | 1
    return [low, ((packed >> 4) << 1) | 1] if fmt in PAIRED else [low]


def _word(block: Ptr, at: int) -> Value:
    return block.at(at).cast(i16).load().to(i32, signed=False)


def _even(seven: Value) -> Value:
    """Complete seven signs to eight: the last makes their number even."""
    return seven | (grids.parity(seven) << 7)


def half_float_reference(fmt: str, data: np.ndarray) -> np.ndarray:
    """Return the fp16 scale bits: data uint8 [blocks, file bytes] -> uint16 [blocks]."""
    if fmt != "iq1_m":
        return _words(data[:, :2])[:, 0]
    tops = _words(data[:, 48:]) >> 12 << np.array([0, 4, 8, 12], np.uint16)
    return np.bitwise_or.reduce(tops, axis=1)


def reference(fmt: str, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unpack uint8 [blocks, file bytes] -> `scales` uint8 [blocks, 8], indices [blocks, 256]."""
    start = 0 if fmt == "iq1_m" else 2
    low = data[:, start : start + 32].astype(np.uint16)
    if fmt == "iq2_xxs":
        pairs = np.ascontiguousarray(data[:, 2:]).view("<u4").reshape(-1, 8, 2)
        index = np.ascontiguousarray(pairs[..., 0]).view(np.uint8)
        sevens = pairs[..., 1:] >> np.array([0, 7, 14, 21], np.uint32) & 127
        packed, signs = pairs[..., 1] >> 28, _all_signs(sevens)
    elif fmt == "iq2_xs":
        both = _words(data[:, 2:66])
        index, packed, signs = both & 511, data[:, 66:], _all_signs(both >> 9)
    elif fmt == "iq2_s":
        tops = data[:, 66:74, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
        index, packed, signs = low | tops.reshape(-1, 32).astype(np.uint16) << 8, data[:, 74:], None
        signs = np.unpackbits(data[:, 34:66], axis=1, bitorder="little")
    elif fmt == "iq1_s":
        high = _words(data[:, 34:])
        tops = high[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7
        index, packed = low | tops.reshape(-1, 32) << 8, high >> 12 & 7
        signs = np.repeat(high >> 15, 32, axis=1)
    else:
        fours = np.stack([data[:, 32:48] & 15, data[:, 32:48] >> 4], axis=2).reshape(-1, 32)
        index, signs = low | (fours & 7).astype(np.uint16) << 8, np.repeat(fours >> 3, 8, axis=1)
        threes = _words(data[:, 48:])[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7
        packed = threes.reshape(-1, 8, 2) @ np.array([1, 16], np.uint16)
    digits = grids.entries(fmt)[index.reshape(len(data), 32)].reshape(-1, 256)
    return packed.astype(np.uint8), digits | (signs.reshape(-1, 256) << 2).astype(np.uint8)


def _words(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).view("<u2")


def _all_signs(sevens: np.ndarray) -> np.ndarray:
    """Complete numbers of seven bits, any shape -> the eight sign bits of each: [..., 8]."""
    bits = sevens[..., None] >> np.arange(7, dtype=sevens.dtype) & 1
    return np.concatenate([bits, bits.sum(-1, keepdims=True) & 1], axis=-1)
