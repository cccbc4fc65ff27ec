"""8-bit weights as magnitudes and signs, where a dot product multiplies unsigned by signed bytes.

    w * x = |w| * (x ^ m) + (|w| where w < 0)          m = -1 where w < 0, else 0

since -x = (x ^ -1) + 1. The last part is the same for every token: its sum over a block lies with
an unpacked panel's weights, and the int32 sums start from it. So the sign of a weight costs an
exclusive or, which all pipes of a CPU do, where `psignb` keeps one of the two that multiply.

A pair of products lies between -2 * 128 * 128 and 2 * 128 * 127, which int16 holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..dot import Dot, few_registers
from ..simd import Kernel, Ptr, Value, i8, i32
from ..targets import CpuTarget

EIGHT_BITS = ("q8_0", "iq4_nl", "iq4_xs")  # the last two are looked up in a table
GROUP = 4  # vectors of a K-group: size and mask of both halves of a panel
VECTORS = 8 * GROUP + 2  # of a block of 32; the starts of both halves come last
STEP = 2  # K-groups that one turn of the loop takes


def splits_signs(fmt: str, target: CpuTarget) -> bool:
    """Return whether unpacked panels of a format store magnitudes and signs separately."""
    return fmt in EIGHT_BITS and few_registers(target)


def block_bytes(lanes: int) -> int:
    """Return the bytes of an unpacked block of 32 of all rows of a panel."""
    return VECTORS * 4 * lanes


class SignMagnitude:
    """Unpacked blocks of magnitudes and signs: their layout, and sums of products with them."""

    def __init__(self, k: Kernel) -> None:
        self.k = k
        self.dot = Dot(k, 127)  # no weight is larger but |-128|, which the module's text is about

    def store(self, groups: Iterable[tuple[int | Value, list[Value]]], out: Ptr) -> None:
        """Store a block's K-groups to `out`: (index, four bytes a lane of both halves) each."""
        k, lanes, out = self.k, self.k.lanes, out.cast(i32)
        taken = [k.zeros(i32, lanes) for _ in range(2)]
        ones = k.const(0x01010101, taken[0].type)
        for group, ws in groups:
            for half, w in enumerate(ws):
                signed = w.bitcast(i8)
                size = signed.abs().bitcast(i32)
                none = k.const(0, signed.type)
                mask = (signed < 0).select(k.const(-1, signed.type), none).bitcast(i32)
                at = (group * GROUP + 2 * half) * lanes
                out.store(at, size)
                out.store(at + lanes, mask)
                taken[half] = self.dot.step(taken[half], size & mask, ones)
        for half, total in enumerate(taken):
            out.store((8 * GROUP + half) * lanes, total)

    def sums(self, block: Ptr, xs: list[Ptr]) -> list[list[Value]]:
        """Sum an unpacked block for each row: int32, both halves; `xs`: 32 bytes each."""
        k, lanes, words = self.k, self.k.lanes, block.cast(i32)
        starts = [words.load((8 * GROUP + half) * lanes, lanes) for half in range(2)]
        accs = [[k.var(start) for start in starts] for _ in xs]
        # A loop, or LLVM does the first half of a panel and keeps all of x for the second.
        with k.range(0, 8, step=STEP, name="group") as first:
            for group in (first + n for n in range(STEP)):
                ws = [words.load((group * GROUP + n) * lanes, lanes) for n in range(GROUP)]
                for x, pair in zip(xs, accs, strict=True):
                    xv = x.cast(i32).splat(group, lanes)
                    for acc, size, mask in zip(pair, ws[::2], ws[1::2], strict=True):
                        acc.set(self.dot.step(acc.value, size, xv ^ mask))
        return [[acc.value for acc in pair] for pair in accs]
