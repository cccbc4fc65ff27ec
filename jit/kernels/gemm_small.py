"""Register tiles for Q2_K and Q3_K panels (`panels_small.py`): integer sums over whole blocks.

For one block of 256, activation scale s_x and int8 activations x:

    out += s_x * (d * sum_j scale_j * sum(q * x)  -  dmin * sum_j min_j * sum(x))        (Q2_K)
    out += s_x * d * sum_j scale_j * sum((q - 4) * x)                                    (Q3_K)

Both sums over j are exact in int32, and below 2^24 in the end: at most 256 * 45 * 127 and
256 * 128 * 127. So however they are computed, the bits are the same. A sub-block's sum(q * x), at
most 16 * 7 * 127, fits in 16 bits: one dot product of int16 multiplies it by its scale and adds up.

When a panel is unpacked, scales go into the weights where a dot product takes whole bytes in one
instruction: q * scale is at most 45, and (4 - q) * scale, from -128 to 124, is a signed byte (or,
with 128 added, an unsigned one). Then nothing but the dot products is left of the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ..dot import Dot, dot_words
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32
from .activations import BLOCK_BYTES
from .epilogue import Epilogue
from .panels_k import SUPER
from .panels_small import three_bits
from .prefetch import Prefetcher
from .tiles import Sums, SuperTile

BLOCKS = SUPER // 32  # activation blocks that meet one block of weights; they share one scale
MAX_Q = {"q2_k": 3, "q3_k": 7}
STEPS = 4  # K-groups of a sub-block
ONES = 0x00010001  # int16 pair


class Tile(SuperTile):
    """The register tile for Q2_K or Q3_K panels."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        super().__init__(k, fmt, epilogue, blocks)
        self.dot = Dot(k, MAX_Q[fmt], STEPS)
        # Bytes with the scale in them need a dot product of whole bytes.
        self.folded = not self.dot.narrow
        self.whole = Dot(k)
        # An unpacked panel: bytes of all blocks, then (if not in these) scales of all sub-blocks.
        self.scale_at = blocks * SUPER * 2 * k.lanes

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """Unpack a panel's weights to bytes, and their scales if not folded in, for all tiles."""
        k, lanes = self.k, self.lanes
        with k.range(0, self.blocks, name="unpack") as block:
            data = panel.at(block * self.at["end"])
            with k.range(0, 8, name="sub") as sub:
                words = scratch.at((block * 8 + sub) * (64 * lanes)).cast(i32)
                scales = [self._scales(data, sub, half) for half in range(2)]
                for group, pair in enumerate(self._weights(data, sub)):
                    for half, q in enumerate(pair):
                        w = self._fold(q, scales[half][group // STEPS]) if self.folded else q
                        words.store((2 * group + half) * lanes, w)
                for n in range(0 if self.folded else 2):
                    at = self._unpacked_scale(scratch, block, sub, n)
                    for half in range(2):
                        at.store(half * lanes, scales[half][n])

    def _fold(self, q: Value, scale: Value) -> Value:
        """Multiply bytes: q * scale, or (4 - q) * scale, as the target's dot product requires."""
        scales = ((scale & 255) * 0x01010101).bitcast(i8)
        if self.fmt == "q2_k":
            return (q.bitcast(i8) * scales).bitcast(i32)
        return ((4 - q.bitcast(i8)) * scales + self._zero_point).bitcast(i32)

    @property
    def _zero_point(self) -> int:
        """The value added to a byte that includes its scale."""
        return 128 if self.fmt == "q3_k" and not self.k.target.signed_bytes else 0

    def _unpacked_scale(self, scratch: Ptr, block: Value, sub: Value, n: int) -> Ptr:
        index = (block * 8 + sub) * 2 + n
        return scratch.at(self.scale_at).cast(i32).at(index * (2 * self.lanes))

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes = self.k, self.lanes
        totals = [[k.var(k.zeros(i32, lanes)) for _ in range(2)] for _ in rows]
        with k.range(0, self.blocks, name="super") as block:
            data = panel.at(block * self.at["end"])
            xs = [row.at(block * (BLOCKS * BLOCK_BYTES)) for row in rows]
            for total in (v for pair in totals for v in pair):
                total.set(k.zeros(i32, lanes))
            with k.range(0, 8, name="sub") as sub:
                prefetcher.prefetch(block * 8 + sub)
                here = [x.at(sub * BLOCK_BYTES + 8).cast(i32) for x in xs]
                if unpacked is None:
                    scales = [self._scales(data, sub, half) for half in range(2)]
                    self._products(here, self._weights(data, sub), scales, totals)
                else:
                    self._unpacked_products(unpacked, block, sub, here, totals)
            self._close(data, xs, totals, sums, folded=unpacked is not None and self.folded)

    def _unpacked_products(
        self, unpacked: Ptr, block: Value, sub: Value, xs: list[Ptr], totals: list[list[Var]]
    ) -> None:
        lanes = self.lanes
        words = unpacked.at((block * 8 + sub) * (64 * lanes)).cast(i32)
        groups = (
            [words.load((2 * group + half) * lanes, lanes) for half in range(2)]
            for group in range(8)
        )
        if not self.folded:
            halves = [self._unpacked_scale(unpacked, block, sub, n) for n in range(2)]
            scales = [[at.load(half * lanes, lanes) for at in halves] for half in range(2)]
            self._products(xs, groups, scales, totals)
            return
        for group, ws in enumerate(groups):
            for x, pair in zip(xs, totals, strict=True):
                xv = x.splat(group, lanes)
                for w, total in zip(ws, pair, strict=True):
                    total.set(self.whole.step(total.value, w, xv))

    def _products(
        self,
        xs: list[Ptr],
        weights: Iterable[list[Value]],
        scales: list[list[Value]],
        totals: list[list[Var]],
    ) -> None:
        """Add an activation block: the products of its two sub-blocks, each times its scale.

        weights: for each K-group both halves; scales: for each half those of the sub-blocks.
        """
        k, lanes = self.k, self.lanes
        groups = enumerate(weights)
        for n in range(2):
            accs = [[self.dot.begin(k.zeros(i32, lanes)) for _ in range(2)] for _ in xs]
            for group, ws in islice(groups, STEPS):
                for x, pair in zip(xs, accs, strict=True):
                    xv = x.splat(group, lanes)
                    for half in range(2):
                        pair[half] = self.dot.step(pair[half], ws[half], xv)
            for pair, sums in zip(accs, totals, strict=True):
                for half, total in enumerate(sums):
                    total.set(self._scaled(total.value, pair[half], scales[half][n]))

    def _scaled(self, total: Value, acc: Value, scale: Value) -> Value:
        """Compute total + scale * the running sum `acc` of the dot products."""
        if self.dot.narrow or self.k.target.dot == "vpdpbusd":
            return dot_words(self.k, total, acc.bitcast(i32), scale)
        return total + acc * scale

    def _scales(self, data: Ptr, sub: Value, half: int) -> list[Value]:
        """Return the scales of two sub-blocks as int32 [lanes], ready for `_scaled`.

        Where the running sum is int16 pairs, both halves of a lane have the scale; where it is an
        int32 that a product of int16 pairs multiplies, only the low half has.
        """
        k = self.k
        pair = data.at(self.at["scale"]).cast(i16).load((sub * 2 + half) * self.lanes, self.lanes)
        if self.fmt == "q2_k":
            both = [pair & 15, (pair >> 8) & 15]
        else:
            both = [(pair << 8).sar(8), pair.sar(8)]
        if self.dot.narrow:
            low = [s.to(i32, signed=False) for s in both]
            return [s | (s << 16) for s in low]
        return [s.to(i32, signed=k.target.dot != "vpdpbusd") for s in both]

    def _weights(self, data: Ptr, sub: Value) -> Iterator[list[Value]]:
        """Return the K-groups of activation block `sub`, both halves: int32 lanes of four bytes."""
        lanes, count = self.lanes, 2 if self.fmt == "q2_k" else 3
        at = data.at(self.at["quant"]).cast(i32)

        def word(n: int) -> list[Value]:
            first = (sub * count + n) * (2 * lanes)
            return [at.load(first + half * lanes, lanes) for half in range(2)]

        words = [word(n) for n in range(count)]
        if self.fmt == "q2_k":
            for group in range(8):
                yield [(w >> (2 * (group % 4))) & 0x03030303 for w in words[group // 4]]
            return
        yield from three_bits(words)

    def _close(
        self,
        data: Ptr,
        xs: list[Ptr],
        totals: list[list[Var]],
        sums: list[list[Var]],
        folded: bool,
    ) -> None:
        """Close a block: subtract the mins or the zero point, multiply by the float scales."""
        k = self.k
        scales = [row.cast(f32).splat(0, self.lanes) for row in xs]
        wholes = self._whole_sums(xs) if folded and self._zero_point else None
        for half in range(2):
            d = self._half_floats(data, "d", half)
            dmin = self._half_floats(data, "dmin", half) if self.fmt == "q2_k" else None
            mins = None if dmin is None and folded else self._mins(data, xs, half)
            for t, (pair, out) in enumerate(zip(totals, sums, strict=True)):
                total = pair[half].value
                if dmin is not None:
                    assert mins is not None
                    part = k.fma(total.to(f32), d, mins[t].to(f32) * (0.0 - dmin))
                elif mins is not None:
                    part = (total - (mins[t] << 2)).to(f32) * d
                else:
                    part = (wholes[t] - total if wholes else 0 - total).to(f32) * d
                out[half].set(k.fma(part, scales[t], out[half].value))

    def _mins(self, data: Ptr, xs: list[Ptr], half: int) -> list[Value]:
        """Sum, for each row, min (Q3_K: scale) times the activations' sum over sub-blocks."""
        k, lanes = self.k, self.lanes
        accs = [k.zeros(i32, lanes) for _ in xs]
        for pair in range(8):
            where = (pair * 2 + half) * 2 * lanes
            mins = data.at(self.at["scale"]).at(where).load(0, 2 * lanes)
            wide = (mins >> 4).to(i16, signed=False) if self.fmt == "q2_k" else mins.to(i16)
            words = wide.bitcast(i32)
            for t, x in enumerate(xs):
                accs[t] = dot_words(k, accs[t], words, self._both_sums(x, pair))
        return accs

    def _whole_sums(self, xs: list[Ptr]) -> list[Value]:
        """Compute, for each row, 128 times the sum of its 256 activations."""
        k = self.k
        ones = k.const(ONES, k.zeros(i32, self.lanes).type)
        accs = [k.zeros(i32, self.lanes) for _ in xs]
        for pair in range(8):
            for t, x in enumerate(xs):
                accs[t] = dot_words(k, accs[t], ones, self._both_sums(x, pair))
        return [acc << 7 for acc in accs]

    def _both_sums(self, x: Ptr, block: int) -> Value:
        """Return the sums of the two halves of an activation block, an int16 pair in every lane."""
        return x.at(block * BLOCK_BYTES + 4).cast(i32).splat(0, self.lanes)
