"""Tables of 16 or 8 values: codebooks of IQ4_NL and 4-bit floats, and the magnitudes of grids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import constants
from ..simd import Kernel, Value, i8, i32

# What the nibbles of a format stand for. E2M1 floats are twice their value, whole numbers.
IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
TABLES: dict[str, Sequence[int]] = {"iq4_nl": IQ4_NL, "mxfp4": E2M1, "nvfp4": E2M1}
# Magnitudes, and the same with a minus. One of four digits is never used.
_IQ2 = (8, 25, 43, 0)
for _name, _sizes in (
    ("iq3_s", range(1, 16, 2)),
    ("iq3_xxs", (2, 6, 10, 14, 18, 22, 26, 31)),
    *((name, _IQ2) for name in ("iq2_xxs", "iq2_xs", "iq2_s")),
):
    TABLES[_name] = (*_sizes, *(-size for size in _sizes))
# Eight times -1, 0 and 1, one above it and one below.
TABLES.update(dict.fromkeys(("iq1_s", "iq1_m"), (-7, 1, 9, 0, -9, -1, 7, 0)))
# What the numbers of a table are multiplied by, if not by 1, to be those that the file means.
UNIT = {"iq3_xxs": 0.5, **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m"), 0.125)}

_PSHUFB = {128: "ssse3.pshuf.b.128", 256: "avx2.pshuf.b", 512: "avx512.pshuf.b.512"}

# The instruction that must be in the assembly for each kind of dot product; the portable has none.
KEY_INSTRUCTION = {
    "maddubs": "pshufb",
    "vpdpbusd": "pshufb",
    "mlal": "tbl",
    "sdot": "tbl",
    "usdot": "tbl",
}


def reference(index: np.ndarray, table: Sequence[int]) -> np.ndarray:
    """Look up entries: index uint8 below 16, any shape -> int32 of the same shape."""
    return np.array(table, np.int32)[index]


def table_bytes(k: Kernel, words: Value, table: Sequence[int]) -> Value:
    """Replace each byte of int32 lanes, an index into `table`, by its entry (modulo 256)."""
    index = words.bitcast(i8)
    entries = tuple(table[n % len(table)] & 255 for n in range(index.lanes))
    values = Value(k, constants(entries, i8))  # once for every 128 bits
    if k.target.dot in ("maddubs", "vpdpbusd"):
        found = k.call(f"llvm.x86.{_PSHUFB[k.target.bits]}", index.type, [values, index])
    elif k.target.arch == "aarch64":
        found = k.call("llvm.aarch64.neon.tbl1.v16i8", index.type, [values, index])
    else:
        found = table_values(k, index, table)
    return found.bitcast(i32)


def table_values(k: Kernel, index: Value, table: Sequence[int]) -> Value:
    """Look up integer lanes of any width without a shuffle: one comparison an entry."""
    found = k.const(table[0], index.type)
    for n, value in enumerate(table[1:], 1):
        found = index.eq(n).select(k.const(value, index.type), found)
    return found
