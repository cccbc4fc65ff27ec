"""Register tiles for IQ4_XS, IQ3_S and IQ3_XXS panels (`panels_small.py`).

For one block of 256, activation scale s_x and int8 activations x:

    out += s_x * sum_j d * scale_j * sum((table[q] + z) * x - z * x)

with z = 128 for IQ4_XS where a dot product wants unsigned weights, else 0, and for the others the
largest magnitude (whose d is half as large for IQ3_XXS); the inner sums are int32 and start
from -z * sum(x), which an activation block brings along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..dot import Dot
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32
from .activations import BLOCK_BYTES
from .codebook import TABLES, table_bytes
from .gemm import Epilogue, apply_epilogue
from .mathlib import f16_to_f32
from .panels import FORMATS
from .panels_k import SUPER, offsets
from .prefetch import LINE, Prefetcher

BLOCKS = SUPER // 32  # activation blocks that meet one block of weights; they share one scale


class Tile:
    """The register tile."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        self.k, self.blocks = k, blocks
        self.epilogue: Epilogue = epilogue
        self.lanes = k.lanes
        self.at = offsets(fmt, k.lanes)
        values = TABLES["iq4_nl" if fmt == "iq4_xs" else fmt]
        self.zero_point = FORMATS[fmt].zero_point(k.target)
        self.table = [n + self.zero_point for n in values]
        self.dot = Dot(k, None if fmt == "iq4_xs" else max(self.table))
        self.factor = 0.5 if fmt == "iq3_xxs" else 1.0
        # A block is asked for in eight pieces, one with each activation block that meets it.
        self.share = -(-self.at["end"] // (8 * LINE)) * LINE
        # An unpacked panel: bytes of all blocks, then float32 scales of all sub-blocks.
        self.scale_at = blocks * SUPER * 2 * k.lanes

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """A panel's weights as bytes and its scales as float32, for all tiles to read."""
        k, lanes = self.k, self.lanes
        with k.range(0, self.blocks, name="unpack") as block:
            data = panel.at(block * self.at["end"])
            d = self._d(data)
            with k.range(0, 8, name="sub") as sub:
                words, floats = self._unpacked(scratch, block, sub)
                for group, pair in self._weights(data, sub):
                    for half, w in enumerate(pair):
                        words.store((2 * group + half) * lanes, w)
                for half in range(2):
                    floats.store(half * lanes, d[half] * self._scale(data, sub, half))

    def _unpacked(self, scratch: Ptr, block: Value, sub: Value) -> tuple[Ptr, Ptr]:
        """Where an activation block's weights and scales are when they are unpacked."""
        index, lanes = block * 8 + sub, self.lanes
        words = scratch.at(index * (64 * lanes)).cast(i32)
        return words, scratch.at(self.scale_at).cast(f32).at(index * (2 * lanes))

    def emit(
        self,
        panel: Ptr,
        prefetcher: Prefetcher,
        rows: list[Ptr],
        outs: list[Ptr],
        unit: Value,
        unpacked: Ptr | None,
    ) -> None:
        """The products of `rows` with a panel; from `unpacked` if it is given."""
        k, lanes = self.k, self.lanes
        zero = k.zeros(f32, lanes)
        sums = [[k.var(zero) for _ in range(2)] for _ in rows]
        parts = [[k.var(zero) for _ in range(2)] for _ in rows]
        with k.range(0, self.blocks, name="super") as block:
            data = panel.at(block * self.at["end"])
            xs = [row.at(block * (BLOCKS * BLOCK_BYTES)) for row in rows]
            d = self._d(data)
            for part in (v for pair in parts for v in pair):
                part.set(zero)
            with k.range(0, 8, name="sub") as sub:
                prefetcher.prefetch(block * 8 + sub, self.share)
                here = [x.at(sub * BLOCK_BYTES) for x in xs]
                if unpacked is None:
                    weights = self._weights(data, sub)
                    scales = [d[half] * self._scale(data, sub, half) for half in range(2)]
                else:
                    words, floats = self._unpacked(unpacked, block, sub)
                    weights = (
                        (group, [words.load((2 * group + half) * lanes, lanes) for half in (0, 1)])
                        for group in range(8)
                    )
                    scales = [floats.load(half * lanes, lanes) for half in range(2)]
                self._products(here, weights, scales, parts)
            for x, pair, totals in zip(xs, parts, sums, strict=True):
                scale = x.cast(f32).splat(0, lanes)
                for part, total in zip(pair, totals, strict=True):
                    total.set(k.fma(part.value, scale, total.value))
        apply_epilogue(k, self.epilogue, sums, outs, unit)

    def _products(
        self,
        xs: list[Ptr],
        weights: Iterable[tuple[int, list[Value]]],
        scales: list[Value],
        parts: list[list[Var]],
    ) -> None:
        """An activation block; weights: its K-groups, each with both halves."""
        k, lanes = self.k, self.lanes
        if self.zero_point:
            starts = [x.at(4).cast(i32).splat(0, lanes) for x in xs]
        else:
            starts = [k.zeros(i32, lanes) for _ in xs]
        accs = [[self.dot.begin(start) for _ in range(2)] for start in starts]
        for group, ws in weights:
            for x, pair in zip(xs, accs, strict=True):
                xv = x.at(8).cast(i32).splat(group, lanes)
                for half in range(2):
                    pair[half] = self.dot.step(pair[half], ws[half], xv)
        for t, pair in enumerate(parts):
            for half, part in enumerate(pair):
                total = self.dot.end(accs[t][half], starts[t]).to(f32)
                part.set(k.fma(total, scales[half], part.value))

    def _weights(self, data: Ptr, sub: Value) -> Iterator[tuple[int, list[Value]]]:
        """The K-groups of activation block `sub`, both halves: int32 lanes of four bytes."""
        lanes, nibbles = self.lanes, data.at(self.at["nibble"]).cast(i32)
        for n in range(4):
            first = (sub * 4 + n) * (2 * lanes)
            raw = [nibbles.load(first + half * lanes, lanes) for half in range(2)]
            for group, indices in ((n, raw), (n + 4, [r >> 4 for r in raw])):
                yield group, [table_bytes(self.k, i & 0x0F0F0F0F, self.table) for i in indices]

    def _scale(self, data: Ptr, sub: Value, half: int) -> Value:
        """The integer scale of activation block `sub`, as float32 [lanes]."""
        scales = data.at(self.at["scale"]).cast(i8)
        return scales.load((sub * 2 + half) * self.lanes, self.lanes).to(i32).to(f32)

    def _d(self, data: Ptr) -> list[Value]:
        """The float scales of both halves."""
        bits = data.at(self.at["d"]).cast(i16)
        ds = [f16_to_f32(self.k, bits.load(half * self.lanes, self.lanes)) for half in range(2)]
        return ds if self.factor == 1.0 else [d * self.factor for d in ds]
