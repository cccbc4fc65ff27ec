"""Register tiles for IQ4_XS, IQ3, IQ2 and IQ1 panels (`panels_small.py`).

For one block of 256, activation scale s_x and int8 activations x:

    out += s_x * sum_j d * scale_j * sum((table[q] + z) * x - z * x)

with z = 128 for IQ4_XS where a dot product wants unsigned weights, else 0, and for the others the
largest magnitude (whose d is a half or an eighth: `codebook.UNIT`); the inner sums are int32 and
start from -z * sum(x), which an activation block brings along, for its halves where those have
scales of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ..dot import Dot
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32
from .activations import BLOCK_BYTES
from .codebook import TABLES, UNIT, table_bytes
from .epilogue import Epilogue
from .grids8 import EIGHTS, PAIRED, halves
from .panels import FORMATS
from .panels_k import SUPER
from .panels_small import GRIDS, three_bits
from .prefetch import Prefetcher
from .sign_magnitude import SignMagnitude, block_bytes, splits_signs
from .tiles import Sums, SuperTile

BLOCKS = SUPER // 32  # activation blocks that meet one block of weights; they share one scale
TABLED = ("iq4_xs", *GRIDS, *EIGHTS)


class Tile(SuperTile):
    """The register tile for IQ4_XS, IQ3, IQ2 or IQ1 panels."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        super().__init__(k, fmt, epilogue, blocks)
        values = TABLES["iq4_nl" if fmt == "iq4_xs" else fmt]
        self.zero_point = FORMATS[fmt].zero_point(k.target)
        self.table = [n + self.zero_point for n in values]
        self.subs = 2 if fmt in PAIRED else 1  # scales that meet one activation block
        self.steps = 8 // self.subs  # K-groups of each
        self.dot = Dot(k, None if fmt == "iq4_xs" else max(self.table), self.steps)
        self.signs = SignMagnitude(k) if splits_signs(fmt, k.target) else None
        # An unpacked panel: weights of all blocks, then float32 scales of all sub-blocks.
        self.words = block_bytes(k.lanes) if self.signs else 64 * k.lanes  # bytes of 32 weights
        self.scale_at = blocks * BLOCKS * self.words

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """Unpack a panel's weights to bytes and its scales to float32, for all tiles."""
        k, lanes = self.k, self.lanes
        with k.range(0, self.blocks, name="unpack") as block:
            data = panel.at(block * self.at["end"])
            d = self._d(data)
            with k.range(0, 8, name="sub") as sub:
                words, floats = self._unpacked(scratch, block, sub)
                if self.signs:
                    self.signs.store(self._weights(data, sub), words)
                else:
                    for group, pair in self._weights(data, sub):
                        for half, w in enumerate(pair):
                            words.store((2 * group + half) * lanes, w)
                for n, scale in enumerate(self._scales(data, sub, d)):
                    floats.store(n * lanes, scale)

    def _unpacked(self, scratch: Ptr, block: Value, sub: Value) -> tuple[Ptr, Ptr]:
        """Return the addresses of an activation block's unpacked weights and scales."""
        index, lanes = block * 8 + sub, self.lanes
        words = scratch.at(index * self.words).cast(i32)
        return words, scratch.at(self.scale_at).cast(f32).at(index * (2 * self.subs * lanes))

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes = self.k, self.lanes
        zero = k.zeros(f32, lanes)
        parts = [[k.var(zero) for _ in range(2)] for _ in rows]
        with k.range(0, self.blocks, name="super") as block:
            data = panel.at(block * self.at["end"])
            xs = [row.at(block * (BLOCKS * BLOCK_BYTES)) for row in rows]
            d = self._d(data)
            for part in (v for pair in parts for v in pair):
                part.set(zero)
            with k.range(0, 8, name="sub") as sub:
                prefetcher.prefetch(block * 8 + sub)
                here = [x.at(sub * BLOCK_BYTES) for x in xs]
                if unpacked is None:
                    scales = self._scales(data, sub, d)
                    self._products(here, self._weights(data, sub), scales, parts)
                else:
                    self._unpacked_products(here, *self._unpacked(unpacked, block, sub), parts)
            for x, pair, totals in zip(xs, parts, sums, strict=True):
                scale = x.cast(f32).splat(0, lanes)
                for part, total in zip(pair, totals, strict=True):
                    total.set(k.fma(part.value, scale, total.value))

    def _unpacked_products(
        self, xs: list[Ptr], words: Ptr, floats: Ptr, parts: list[list[Var]]
    ) -> None:
        """Add an activation block's products with its unpacked weights."""
        k, lanes = self.k, self.lanes
        scales = [floats.load(n * lanes, lanes) for n in range(2 * self.subs)]
        if self.signs:
            totals = self.signs.sums(words, [x.at(8) for x in xs])
            for pair, sums in zip(parts, totals, strict=True):
                for part, total, scale in zip(pair, sums, scales, strict=True):
                    part.set(k.fma(total.to(f32), scale, part.value))
            return
        weights = (
            (group, [words.load((2 * group + half) * lanes, lanes) for half in (0, 1)])
            for group in range(8)
        )
        self._products(xs, weights, scales, parts)

    def _products(
        self,
        xs: list[Ptr],
        weights: Iterable[tuple[int, list[Value]]],
        scales: list[Value],
        parts: list[list[Var]],
    ) -> None:
        """Add an activation block's products; weights: its K-groups, each of both halves.

        scales: as of `_scales`.
        """
        k, lanes, weights = self.k, self.lanes, iter(weights)
        for n in range(self.subs):
            starts = [self._start(x, n) for x in xs]
            accs = [[self.dot.begin(start) for _ in range(2)] for start in starts]
            for group, ws in islice(weights, self.steps):
                for x, pair in zip(xs, accs, strict=True):
                    xv = x.at(8).cast(i32).splat(group, lanes)
                    for half in range(2):
                        pair[half] = self.dot.step(pair[half], ws[half], xv)
            for t, pair in enumerate(parts):
                for half, part in enumerate(pair):
                    total = self.dot.end(accs[t][half], starts[t]).to(f32)
                    part.set(k.fma(total, scales[2 * n + half], part.value))

    def _start(self, x: Ptr, n: int) -> Value:
        """Return the initial sum over an activation block `x`, or over its half `n`."""
        if self.subs == 2:
            return (x.at(4).cast(i16).load(n).to(i32) * -self.zero_point).splat(self.lanes)
        if self.zero_point:
            return x.at(4).cast(i32).splat(0, self.lanes)
        return self.k.zeros(i32, self.lanes)

    def _weights(self, data: Ptr, sub: Value) -> Iterator[tuple[int, list[Value]]]:
        """Return the K-groups of activation block `sub`, both halves: int32 lanes of four bytes."""
        k, lanes, eights = self.k, self.lanes, self.fmt in EIGHTS
        words, count = data.at(self.at["quant" if eights else "nibble"]).cast(i32), 3 + (not eights)

        def raw(n: int) -> list[Value]:
            first = (sub * count + n) * (2 * lanes)
            return [words.load(first + half * lanes, lanes) for half in range(2)]

        if eights:
            for group, indices in enumerate(three_bits([raw(n) for n in range(3)])):
                yield group, [table_bytes(k, p, self.table) for p in indices]
            return
        for n in range(4):
            both = raw(n)
            for group, indices in ((n, both), (n + 4, [b >> 4 for b in both])):
                yield group, [table_bytes(k, i & 0x0F0F0F0F, self.table) for i in indices]

    def _scales(self, data: Ptr, sub: Value, d: list[Value]) -> list[Value]:
        """Return the scales of activation block `sub`, float32 [lanes], for both halves.

        Where its own halves have theirs, those of the second are the last two.
        """
        stored = data.at(self.at["scale"]).cast(i8)
        found: list[list[Value]] = []
        for half in range(2):
            scale = stored.load((sub * 2 + half) * self.lanes, self.lanes)
            eights = self.fmt in EIGHTS
            wide = halves(self.fmt, scale.to(i32, signed=False)) if eights else [scale.to(i32)]
            found.append([d[half] * one.to(f32) for one in wide])
        return [scale for both in zip(*found, strict=True) for scale in both]

    def _d(self, data: Ptr) -> list[Value]:
        """Return the float scales of both halves."""
        ds = [self._half_floats(data, "d", half) for half in range(2)]
        return [d * UNIT[self.fmt] for d in ds] if self.fmt in UNIT else ds
