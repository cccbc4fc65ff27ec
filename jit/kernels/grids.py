"""Grids of IQ1 to IQ3: an index in the file selects the digits of four or eight weights.

A digit is one of eight magnitudes in IQ3, of three in IQ2, and -1, 0 or 1 in IQ1. A grid has 256 to
2,048 of the 4,096 or 6,561 ways to choose four or eight; `grids.npz` has them all. With a sign
each, in IQ1 on which side of the digit the weight lies, digits are places in `codebook.TABLES`.

Here are the grids, and the blocks of IQ3; those of IQ2 and IQ1 are in `grids8.py`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from ..simd import Kernel, Ptr, Value, i32


@cache
def entries(fmt: str) -> np.ndarray:
    """Return the grid of `fmt`: uint8 [entries, 4 or 8], digits."""
    with np.load(Path(__file__).with_suffix(".npz")) as grids:
        return grids["iq1" if fmt.startswith("iq1") else fmt]


def words(k: Kernel, fmt: str) -> Ptr:
    """Return the grid as constants of the kernel: int32 of four bytes, one for each weight.

    They are added once for any number of requests.
    """
    name, values = f"grid_{fmt}", entries(fmt).view("<i4").reshape(-1).tolist()
    table = k.module.globals.get(name) or k.module.table(name, len(values), i32, values)
    return Ptr(k, table, i32)


def byte(block: Ptr, at: int) -> Value:
    """Load an unsigned byte as int32."""
    return block.at(at).load().to(i32, signed=False)


def spread(four: Value, bit: int) -> Value:
    """Return the four lowest bits of an int32, each as bit `bit` of its own byte."""
    # Four copies, seven bits apart: bit i lands on bit 0 of byte i.
    return ((four * 0x00204081) & 0x01010101) << bit


def nibbles(fmt: str, grid: Ptr, block: Ptr) -> list[list[Value]]:
    """Unpack a file block to indices into `codebook.TABLES`: [activation block][K-group] int32.

    A byte of a word is the magnitude of a weight, with 8 for its sign.
    """
    out = []
    for sub in range(8):
        if fmt == "iq3_xxs":
            word = block.at(66 + 4 * sub).cast(i32).load()
            # Of eight signs the last is what makes their number even.
            sevens = [(word >> (7 * n)) & 0x7F for n in range(4)]
            signs = [seven | (parity(seven) << 7) for seven in sevens]
        else:
            signs = [byte(block, 74 + 4 * sub + n) for n in range(4)]
        groups = []
        for g in range(8):
            index = byte(block, 2 + 8 * sub + g)
            if fmt == "iq3_s":
                index = index | (((byte(block, 66 + sub) >> g) & 1) << 8)
            four = (signs[g // 2] >> (4 * (g % 2))) & 15
            groups.append(grid.load(index) | spread(four, 3))
        out.append(groups)
    return out


def parity(value: Value) -> Value:
    """Return whether the number of set bits of an int32 below 2^8 is odd."""
    value = value ^ (value >> 4)
    value = value ^ (value >> 2)
    return (value ^ (value >> 1)) & 1


def scales(fmt: str, block: Ptr) -> list[Value]:
    """Return the 8 scales of a block of the file, odd numbers from 1 to 31."""
    if fmt == "iq3_xxs":
        fours = [(block.at(66 + 4 * n).cast(i32).load() >> 28) & 15 for n in range(8)]
    else:
        packed = [byte(block, 106 + n) for n in range(4)]
        fours = [(packed[n // 2] >> (4 * (n % 2))) & 15 for n in range(8)]
    return [four * 2 + 1 for four in fours]
