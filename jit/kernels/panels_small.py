"""Panels of Q2_K, Q3_K and IQ1 to IQ4: blocks of 256 weights with small quants or scales.

    w = d * scale_j * q - dmin * min_j    Q2_K: 16 sub-blocks of 16, q = 0..3, scale and min 0..15
    w = d * scale_j * (q - 4)             Q3_K: 16 sub-blocks of 16, q = 0..7, scale -32..31
    w = d * scale_j * table[q]            IQ4_XS: 8 sub-blocks of 32, scale -32..31, IQ4_NL's table
    w = d * scale_j * table[q]            IQ3_S, IQ3_XXS (half of it): scale 1..31
    w = d * scale_j * table[q] / 8        IQ2, IQ1: 8 or 16 sub-blocks, q = 0..6, scale 1..31, 1..15

The file spreads the bits of a weight over the block; here those of one activation block (32 values)
lie together, so that a product reads words in order and shifts by constants. For L lanes and halves
h, in this order, with [h][L] innermost:

    q2_k    fp16 d, fp16 dmin, u8 pairs of scale | min << 4 [8][h][L][2], int32 words [8][2]
    q3_k    fp16 d, int8 scale pairs [8][h][L][2], int32 words [8][3]
    iq4_xs  fp16 d, int8 scale [8], int32 nibbles [8][4]
    iq2_xs  fp16 d, u8 s [8] (scale = 2 s + 1; of two sub-blocks s | s' << 4), int32 words [8][3]

A word is four bytes, one for each value of a K-group. Q2_K: K-group g of an activation block is
bits 2 (g % 4) on of word g / 4. Q3_K: K-groups 2 n and 2 n + 1 are bits 0-2 and 3-5 of word n;
the lower two bits of 6 and 7 are bits 6-7 of words 0 and 1, their tops bits 6 and 7 of word 2.
IQ4_XS: low nibbles are K-group g, high ones g + 4.

IQ3_S and IQ3_XXS become what IQ4_XS is, with other tables: a magnitude and a sign are four bits,
where the file has 3.4 and 3.1 a weight, places in a grid (`grids.py`). Nothing is rounded.
IQ2_XXS, IQ2_XS, IQ2_S, IQ1_S and IQ1_M all become what iq2_xs is above: three bits a weight, packed
as Q3_K's, where the file has 1.6 to 2.6 (`grids8.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..simd import Kernel, Ptr, Value, i8, i16, i32
from . import grids, grids8
from .grids8 import EIGHTS

GRIDS = ("iq3_s", "iq3_xxs")

# Bytes that one row has of each part of a panel's block, in their order.
PARTS: dict[str, dict[str, int]] = {
    "q2_k": {"d": 2, "dmin": 2, "scale": 16, "quant": 64},
    "q3_k": {"d": 2, "scale": 16, "quant": 96},
    "iq4_xs": {"d": 2, "scale": 8, "nibble": 128},
    "iq3_s": {"d": 2, "scale": 8, "nibble": 128},
    "iq3_xxs": {"d": 2, "scale": 8, "nibble": 128},
    **{name: {"d": 2, "scale": 8, "quant": 96} for name in EIGHTS},
}


def pack_block(  # noqa: C901 - one arm for each format
    k: Kernel, fmt: str, src: Ptr, out: Ptr, at: dict[str, int], where: Value, keep: Value
) -> None:
    """Pack one block of a row into its lane `where`; `keep` is int16 -1, or 0 for padding."""
    lanes = k.lanes

    def put(part: str, n: int, value: Value) -> None:
        """Store `value` as the row's n-th of a part."""
        out.at(at[part]).cast(value.type).store(where + n * 2 * lanes, value)

    def words(start: int) -> Ptr:
        return src.at(start).cast(i32)

    def put_three_bits(sub: int, q: list[Value]) -> None:
        """Store the K-groups of an activation block, three bits a byte."""
        put("quant", 3 * sub, q[0] | (q[1] << 3) | ((q[6] & 0x03030303) << 6))
        put("quant", 3 * sub + 1, q[2] | (q[3] << 3) | ((q[7] & 0x03030303) << 6))
        tops = ((q[6] & 0x04040404) << 4) | ((q[7] & 0x04040404) << 5)
        put("quant", 3 * sub + 2, q[4] | (q[5] << 3) | tops)

    if fmt == "q2_k":
        for n, part in enumerate(("d", "dmin")):
            put(part, 0, src.at(80).cast(i16).load(n) & keep)
        for n in range(8):
            put("scale", n, src.cast(i16).load(n))
        for sub in range(8):
            groups = [_two_bits(words(16), sub, g) for g in range(8)]
            for n in range(2):
                a, b, c, d = groups[4 * n : 4 * n + 4]
                put("quant", 2 * sub + n, a | (b << 2) | (c << 4) | (d << 6))
    elif fmt == "q3_k":
        put("d", 0, src.at(108).cast(i16).load() & keep)
        scales = q3_scales([grids.byte(src, 96 + n) for n in range(12)])
        for n in range(8):
            put("scale", n, ((scales[2 * n] & 255) | (scales[2 * n + 1] << 8)).to(i16))
        for sub in range(8):
            q = []
            for g in range(8):
                top = (words(0).load(g) >> sub) & 0x01010101
                q.append(_two_bits(words(32), sub, g) | (top << 2))
            put_three_bits(sub, q)
    elif fmt in EIGHTS:
        put("d", 0, grids8.half_float(fmt, src) & keep)
        for n, scale in enumerate(grids8.scales(fmt, src)):
            put("scale", n, scale.to(i8))
        for sub, q in enumerate(grids8.indices(fmt, grids.words(k, fmt), src)):
            put_three_bits(sub, q)
    elif fmt in GRIDS:
        put("d", 0, src.cast(i16).load() & keep)
        for n, scale in enumerate(grids.scales(fmt, src)):
            put("scale", n, scale.to(i8))
        for sub, groups in enumerate(grids.nibbles(fmt, grids.words(k, fmt), src)):
            for n in range(4):
                put("nibble", 4 * sub + n, groups[n] | (groups[n + 4] << 4))
    else:
        put("d", 0, src.cast(i16).load() & keep)
        high = src.at(2).cast(i16).load().to(i32, signed=False)
        for n, scale in enumerate(xs_scales(high, [grids.byte(src, 4 + n) for n in range(4)])):
            put("scale", n, scale.to(i8))
        for n in range(32):
            put("nibble", n, words(8).load(n))


def _two_bits(words: Ptr, sub: int, group: int) -> Value:
    """Unpack K-group `group` of activation block `sub` from the file's two-bit words."""
    return (words.load(sub // 4 * 8 + group) >> (2 * (sub % 4))) & 0x03030303


def q3_scales(packed: list[Value]) -> list[Value]:
    """Unpack the 16 scales, -32..31, that 12 bytes hold in 6 bits each (32 added)."""
    scales = []
    for n in range(16):
        low = packed[n] & 15 if n < 8 else packed[n - 8] >> 4
        top = (packed[8 + n % 4] >> (2 * (n // 4))) & 3
        scales.append((low | (top << 4)) - 32)
    return scales


def xs_scales(high: Value, low: list[Value]) -> list[Value]:
    """Unpack the 8 scales of IQ4_XS, -32..31: four bits each in 4 bytes, two each in `high`."""
    scales = []
    for n in range(8):
        four = (low[n // 2] >> (4 * (n % 2))) & 15
        scales.append((four | (((high >> (2 * n)) & 3) << 4)) - 32)
    return scales


def three_bits(words: list[list[Value]]) -> Iterator[list[Value]]:
    """Unpack the eight K-groups of an activation block, 0 to 7 a byte, from its three words.

    words: for each of them both halves of a panel, as the groups have them.
    """
    for group in range(6):
        yield [(w >> (3 * (group % 2))) & 0x07070707 for w in words[group // 2]]
    for n in range(2):
        both = zip(words[n], words[2], strict=True)
        yield [((w >> 6) & 0x03030303) | ((t >> (4 + n)) & 0x04040404) for w, t in both]


PanelWriter = Callable[[str, np.ndarray], None]
"""Writes values [blocks, count, bytes] of one row to the named part of its panel's blocks."""


def reference(put: PanelWriter, data: np.ndarray, fmt: str, inside: bool) -> None:
    """Pack one row as `pack_block` does: data uint8 [blocks, file bytes].

    A padding row (`inside` false) keeps what its scales multiply, but not the scales.
    """
    if fmt == "q2_k":
        put("d", data[:, None, 80:82] * inside)
        put("dmin", data[:, None, 82:84] * inside)
        put("scale", data[:, :16].reshape(-1, 8, 2))
        q = _two_bits_reference(data[:, 16:80]).reshape(-1, 8, 2, 4, 4)
        shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
        put("quant", np.bitwise_or.reduce(q << shifts, axis=3).reshape(-1, 16, 4))
    elif fmt == "q3_k":
        put("d", data[:, None, 108:110] * inside)
        put("scale", q3_scales_reference(data[:, 96:108]).view(np.uint8).reshape(-1, 8, 2))
        top = data[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1
        q = _two_bits_reference(data[:, 32:96]) | top.reshape(-1, 8, 8, 4) << 2
        put("quant", _three_bits_reference(q))
    elif fmt in EIGHTS:
        d = grids8.half_float_reference(fmt, data).view(np.uint8).reshape(-1, 1, 2)
        scales, q = grids8.reference(fmt, data)
        put("d", d * inside)
        put("scale", scales[:, :, None])
        put("quant", _three_bits_reference(q.reshape(-1, 8, 8, 4)))
    elif fmt in GRIDS:
        put("d", data[:, None, 0:2] * inside)
        scales, q = grid_reference(data, fmt)
        put("scale", scales[:, :, None])
        groups = q.reshape(-1, 8, 2, 4, 4)
        put("nibble", (groups[:, :, 0] | groups[:, :, 1] << 4).reshape(-1, 32, 4))
    else:
        put("d", data[:, None, 0:2] * inside)
        put("scale", xs_scales_reference(data[:, 2:8]).view(np.uint8)[:, :, None])
        put("nibble", data[:, 8:].reshape(-1, 32, 4))


def grid_reference(data: np.ndarray, fmt: str) -> tuple[np.ndarray, np.ndarray]:
    """Unpack uint8 [blocks, file bytes] -> scales uint8 [blocks, 8], indices [blocks, 256]."""
    grid, qs = grids.entries(fmt), data[:, 2:66].astype(np.uint16)
    if fmt == "iq3_s":
        tops = np.unpackbits(data[:, 66:74], axis=1, bitorder="little")
        scales, indices = data[:, 106:], qs | tops.astype(np.uint16) << 8
        scales = np.stack([scales & 15, scales >> 4], axis=2).reshape(-1, 8)
        signs = np.unpackbits(data[:, 74:106], axis=1, bitorder="little")
    else:
        packed, indices = np.ascontiguousarray(data[:, 66:]).view("<u4"), qs
        scales = (packed >> 28).astype(np.uint8)
        bits = packed[..., None] >> np.arange(28, dtype=np.uint32) & 1
        sevens = bits.reshape(-1, 8, 4, 7)
        signs = np.concatenate([sevens, sevens.sum(-1, keepdims=True) & 1], axis=-1)
    signs = signs.reshape(-1, 256).astype(np.uint8)
    return scales * 2 + 1, grid[indices].reshape(-1, 256) | signs << 3


def _two_bits_reference(packed: np.ndarray) -> np.ndarray:
    """Unpack uint8 [blocks, 64] -> values 0..3, uint8 [blocks, activation block, K-group, 4]."""
    halves = packed.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return halves.reshape(-1, 8, 8, 4)


def _three_bits_reference(q: np.ndarray) -> np.ndarray:
    """Pack uint8 [blocks, activation block, K-group, 4], 0 to 7 -> words, uint8 [blocks, 24, 4]."""
    words = q[:, :, 0:6:2] | q[:, :, 1:6:2] << 3
    words[:, :, :2] |= (q[:, :, 6:] & 3) << 6
    words[:, :, 2] |= (q[:, :, 6] >> 2) << 6 | (q[:, :, 7] >> 2) << 7
    return words.reshape(-1, 24, 4)


def q3_scales_reference(packed: np.ndarray) -> np.ndarray:
    """Unpack uint8 [blocks, 12] -> int8 [blocks, 16]."""
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    top = packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    return ((low | top.reshape(-1, 16) << 4).astype(np.int8) - 32).astype(np.int8)


def xs_scales_reference(packed: np.ndarray) -> np.ndarray:
    """Unpack uint8 [blocks, 6] -> int8 [blocks, 8]."""
    high = np.ascontiguousarray(packed[:, :2]).view("<u2")
    low = np.stack([packed[:, 2:] & 15, packed[:, 2:] >> 4], axis=2).reshape(-1, 8)
    top = (high >> np.arange(0, 16, 2) & 3).astype(np.uint8)
    return ((low | top << 4).astype(np.int8) - 32).astype(np.int8)
