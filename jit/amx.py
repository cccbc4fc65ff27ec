"""AMX tile registers: products of 16 rows by 16 columns in one instruction.

A tile is up to 16 rows of up to 64 bytes. `dot` is, for signed bytes,

    c[m, n] += sum(a[m, k] * b[k // 4, 4 * n + k % 4] for k in range(depth))

with c int32 [16, 16], a int8 [16, depth], and b as panels have it: a K-group of four to a lane. The
sums are exact, so they are the bits of any other order.

What a tile register holds is state that the system saves only for threads that asked for it, and
each thread says the shapes of its tiles before it uses them (`configure`), and that it is done
(`release`): until then each switch to another thread saves 8 KiB more.

How they are used decides what they cost (seen on a Xeon of 2.6 GHz, 16 rows each): a product takes
5.3 ns; storing a tile 4.9 ns, whatever its rows, but 17 ns where the product has only just begun,
so a sum is stored when its register is needed again; loading 16 rows of 32 bytes takes 2.5 ns, and
16 ns where each of them lies across two cache lines.
"""

from __future__ import annotations

import struct

from . import ir
from .ir import i8, i64, void
from .simd import Kernel, Ptr

ROWS = 16  # of a tile
SUMS = (0, 1, 2, 3)  # registers of sums
LEFT, RIGHT = (4, 5), (6, 7)  # of rows of activations, and of K-groups of weights


def _call(k: Kernel, name: str, *args: ir.Value) -> None:
    fn = k.declare(f"llvm.x86.{name}", void, [a.type for a in args])
    k.b.call(fn, args)


def configure(k: Kernel, depth: int) -> None:
    """Configure this thread's tiles for products over `depth`, a multiple of 4 up to 64."""
    widths, rows = [0] * 16, [0] * 16
    for n in (*SUMS, *LEFT, *RIGHT):
        widths[n], rows[n] = (depth, ROWS) if n in LEFT else (64, ROWS)
        if n in RIGHT:
            rows[n] = depth // 4
    packed = struct.pack("<2B14x16H16B", 1, 0, *widths, *rows)
    config = k.scratch(i64, 8)
    for n, word in enumerate(struct.unpack("<8q", packed)):
        config.store(n, k.i64(word))
    _call(k, "ldtilecfg", config.value)


def release(k: Kernel) -> None:
    """Release this thread's tiles."""
    _call(k, "tilerelease")


def zero(k: Kernel, tile: int) -> None:
    _call(k, "tilezero", i8(tile))


def load(k: Kernel, tile: int, source: Ptr, stride: int) -> None:
    """Load a tile from rows that are `stride` bytes apart."""
    _call(k, "tileloadd64", i8(tile), source.value, i64(stride))


def store(k: Kernel, tile: int, target: Ptr, stride: int) -> None:
    _call(k, "tilestored64", i8(tile), target.value, i64(stride))


def dot(k: Kernel, c: int, a: int, b: int) -> None:
    """Add signed-byte products: c[m, n] += sum(a[m, k] b[k // 4, 4 n + k % 4]), c int32."""
    _call(k, "tdpbssd", i8(c), i8(a), i8(b))


def dot_bf16(k: Kernel, c: int, a: int, b: int) -> None:
    """Add bf16 products: c[m, n] += sum(a[m, 2k] b[k, 2n] + a[m, 2k + 1] b[k, 2n + 1]), float32.

    A sum over a tile starts from zero, in an order of its own, and is then added to c; denormals
    count as zeros. So its bits are not those of ``vdpbf16ps``, but a row's do not depend on what
    other rows hold.
    """
    _call(k, "tdpbf16ps", i8(c), i8(a), i8(b))
