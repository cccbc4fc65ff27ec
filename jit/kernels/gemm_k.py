"""Register tiles for Q4_K, Q5_K and Q6_K panels (`panels_k.py`).

For one block of 256, activation scale s_x and int8 activations q_x:

    out += s_x * (sum_j d * scale_j * sum(q * q_x)  -  dmin * sum_j min_j * sum(q_x))

Q6_K has a zero point of 32 instead of mins: its min_j is scale_j, its dmin 32 * d. The inner sums
are int32. The mins of all sub-blocks meet the activations' sums in a dot product of int16 pairs,
which costs less than a multiplication, or the start of a sum, for each sub-block.

Where the inner sums are int16 pairs (`target.dot` is ``maddubs``), the instruction that makes int32
of them multiplies them by scale_j for nothing: the sum over j is an integer, too, at most
256 * 63 * 127 * 128, and d and dmin come in once a block. Q6_K's zero point is taken off as mins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..dot import Dot, dot_words
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32
from .activations import BLOCK_BYTES
from .epilogue import Epilogue
from .panels_k import SUPER
from .prefetch import Prefetcher
from .tiles import Sums, SuperTile

BLOCKS = SUPER // 32  # activation blocks that meet one block of weights; they share one scale
MAX_Q = {"q4_k": 15, "q5_k": 31, "q6_k": 63}


class Tile(SuperTile):
    """The register tile for Q4_K, Q5_K or Q6_K panels."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        super().__init__(k, fmt, epilogue, blocks)
        self.steps = 4 if fmt == "q6_k" else 8  # K-groups of a sub-block
        # So many of them fit into a running sum of int16, where there is one.
        self.running = max(n for n in (2, 4, 8) if n <= self.steps and n * MAX_Q[fmt] * 254 < 32768)
        self.dot = Dot(k, MAX_Q[fmt], self.running)
        # Where running sums are int16 pairs, the product that widens them takes a scale with it.
        self.integer = self.dot.narrow and k.target.dot == "maddubs"
        self.element = i32 if self.integer else f32  # of unpacked scales, and of a block's parts
        self.scales = 8 // self.steps  # sub-blocks that meet one activation block
        # An unpacked panel: bytes of all blocks, then the scales of all sub-blocks.
        self.scale_at = blocks * SUPER * 2 * k.lanes

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """Unpack a panel's weights to bytes and its scales as `_scales` has them, for all tiles."""
        k, lanes = self.k, self.lanes
        with k.range(0, self.blocks, name="unpack") as block:
            data = panel.at(block * self.at["end"])
            d = [self._half_floats(data, "d", half) for half in range(2)]
            with k.range(0, 8, name="sub") as sub:
                words = scratch.at((block * 8 + sub) * (64 * lanes)).cast(i32)
                for group in range(8):
                    for half in range(2):
                        w = self._weights(data, sub, group, half)
                        words.store((2 * group + half) * lanes, w)
                for n in range(self.scales):
                    for half, scale in enumerate(self._scales(data, d, sub, n)):
                        self._unpacked_scale(scratch, block, sub, n).store(half * lanes, scale)

    def _unpacked_scale(self, scratch: Ptr, block: Value, sub: Value, n: int) -> Ptr:
        index = (block * 8 + sub) * self.scales + n
        return scratch.at(self.scale_at).cast(self.element).at(index * (2 * self.lanes))

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes = self.k, self.lanes
        parts = [[k.var(k.zeros(self.element, lanes)) for _ in range(2)] for _ in rows]
        with k.range(0, self.blocks, name="super") as block:
            data = panel.at(block * self.at["end"])
            xs = [row.at(block * (BLOCKS * BLOCK_BYTES)) for row in rows]
            d = [self._half_floats(data, "d", half) for half in range(2)]
            if self.integer:
                for part in (v for pair in parts for v in pair):
                    part.set(k.zeros(self.element, lanes))
            else:
                self._start_with_mins(data, d, xs, parts)
            # One token alone waits for its sums: what does not need them comes first.
            early = self.fmt != "q6_k" and self.integer and len(xs) == 1
            mins = self._mins(data, xs, (0, 1)) if early else None
            with k.range(0, 8, name="sub") as sub:
                prefetcher.prefetch(block * 8 + sub)
                if unpacked is None:
                    self._sub_blocks(data, xs, sub, d, parts)
                else:
                    self._unpacked_blocks(unpacked, xs, block, sub, parts)
            for half in range(2):
                ended = [pair[half].value for pair in parts]
                if self.integer:
                    taken = mins[half] if mins else self._mins(data, xs, (half,))[0]
                    ended = self._closed(data, ended, taken, half)
                for x, part, pair in zip(xs, ended, sums, strict=True):
                    x_scale = x.cast(f32).splat(0, lanes)
                    pair[half].set(k.fma(part, x_scale, pair[half].value))

    def _closed(self, data: Ptr, totals: list[Value], mins: list[Value], half: int) -> list[Value]:
        """Return a block's integer sums as float32, less its mins or its zero point."""
        k, d = self.k, self._half_floats(data, "d", half)
        both = zip(totals, mins, strict=True)
        if self.fmt == "q6_k":
            return [(total - (zero << 5)).to(f32) * d for total, zero in both]
        dmin = 0.0 - self._half_floats(data, "dmin", half)
        return [k.fma(total.to(f32), d, taken.to(f32) * dmin) for total, taken in both]

    def _sub_blocks(
        self, data: Ptr, xs: list[Ptr], sub: Value, d: list[Value], parts: list[list[Var]]
    ) -> None:
        """Add the 32 values of activation block `sub`: one sub-block, or two of 16."""
        for n in range(self.scales):
            scales = self._scales(data, d, sub, n)
            groups = range(n * self.steps, (n + 1) * self.steps)
            weights = ([self._weights(data, sub, g, half) for half in range(2)] for g in groups)
            self._products(xs, sub, n, groups, weights, scales, parts)

    def _unpacked_blocks(
        self, unpacked: Ptr, xs: list[Ptr], block: Value, sub: Value, parts: list[list[Var]]
    ) -> None:
        """Add the 32 values of activation block `sub` from an unpacked panel."""
        lanes = self.lanes
        words = unpacked.at((block * 8 + sub) * (64 * lanes)).cast(i32)
        for n in range(self.scales):
            at = self._unpacked_scale(unpacked, block, sub, n)
            scales = [at.load(half * lanes, lanes) for half in range(2)]
            groups = range(n * self.steps, (n + 1) * self.steps)
            weights = (
                [words.load((2 * g + half) * lanes, lanes) for half in range(2)] for g in groups
            )
            self._products(xs, sub, n, groups, weights, scales, parts)

    def _products(
        self,
        xs: list[Ptr],
        sub: Value,
        n: int,
        groups: Iterable[int],
        weights: Iterable[list[Value]],
        scales: list[Value],
        parts: list[list[Var]],
    ) -> None:
        """Add one sub-block: int8 products of its K-groups, times its scale."""
        k, lanes = self.k, self.lanes
        if self.integer:
            factors: list[Value | None] = [scale.bitcast(i16) for scale in scales]
            totals = [[part.value for part in pair] for pair in parts]
        else:
            factors = [None, None]
            totals = [[k.zeros(i32, lanes)] * 2 for _ in xs]
        accs = [[self.dot.begin(total) for total in pair] for pair in totals]

        def ended() -> list[list[Value]]:
            return [
                [self.dot.end(*both) for both in zip(*pairs, factors, strict=True)]
                for pairs in zip(accs, totals, strict=True)
            ]

        for at, (group, ws) in enumerate(zip(groups, weights, strict=True)):
            if at and at % self.running == 0:
                totals = ended()
                accs = [[self.dot.begin(total) for total in pair] for pair in totals]
            for t, x in enumerate(xs):
                xv = x.at(sub * BLOCK_BYTES + 8).cast(i32).splat(group, lanes)
                for half in range(2):
                    accs[t][half] = self.dot.step(accs[t][half], ws[half], xv)
        for pair, wholes in zip(parts, ended(), strict=True):
            for part, whole, scale in zip(pair, wholes, scales, strict=True):
                part.set(whole if self.integer else k.fma(whole.to(f32), scale, part.value))

    def _weights(self, data: Ptr, sub: Value, group: int, half: int) -> Value:
        """Return K-group `group` of activation block `sub` for one half: int32 lanes of bytes."""
        lanes = self.lanes
        nibbles = data.at(self.at["nibble"]).cast(i32)
        if self.fmt == "q6_k":
            # Half n of the block: block 4n + q takes nibble words 16n + 8(q & 1) + g, the low
            # nibbles for q < 2, and bits 2q, 2q + 1 of upper word 8n + g.
            n, q = sub >> 2, sub & 3
            word = nibbles.load((n * 16 + (q & 1) * 8 + group) * (2 * lanes) + half * lanes, lanes)
            low = (word >> ((q >> 1) * 4).to(i32).splat(lanes)) & 0x0F0F0F0F
            upper = data.at(self.at["high"]).cast(i32)
            bits = upper.load((n * 8 + group) * (2 * lanes) + half * lanes, lanes)
            return low | (((bits >> (q * 2).to(i32).splat(lanes)) & 0x03030303) << 4)
        word = nibbles.load(((sub >> 1) * 8 + group) * (2 * lanes) + half * lanes, lanes)
        low = (word >> ((sub & 1) * 4).to(i32).splat(lanes)) & 0x0F0F0F0F
        if self.fmt == "q4_k":
            return low
        high = data.at(self.at["high"]).cast(i32).load(group * 2 * lanes + half * lanes, lanes)
        return low | (((high >> sub.to(i32).splat(lanes)) & 0x01010101) << 4)

    def _scales(self, data: Ptr, d: list[Value], sub: Value, n: int) -> list[Value]:
        """Return what multiplies the sums of sub-block n of activation block `sub`, both halves.

        float32 [lanes] with the block's `d` in it; or the integer scale as int16 pairs.
        """
        scales = [self._scale(data, sub, n, half) for half in range(2)]
        if self.integer:
            return [(scale & 0xFFFF) | (scale << 16) for scale in scales]
        return [one * scale.to(f32) for one, scale in zip(d, scales, strict=True)]

    def _scale(self, data: Ptr, sub: Value, n: int, half: int) -> Value:
        """Return the integer scale of sub-block n of activation block `sub`, int32 [lanes]."""
        lanes, scales = self.lanes, data.at(self.at["scale"])
        where = sub * (2 * lanes) + half * lanes
        if self.fmt == "q6_k":
            pair = scales.cast(i16).load(where, lanes)
            return (pair.sar(8) if n else (pair << 8).sar(8)).to(i32)
        return scales.cast(i8).load(where, lanes).to(i32, signed=False)

    def _start_with_mins(
        self, data: Ptr, d: list[Value], xs: list[Ptr], parts: list[list[Var]]
    ) -> None:
        """Initialize a block's parts with its mins times the activations' sums."""
        zero_point = self.fmt == "q6_k"
        for half, ended in enumerate(self._mins(data, xs, (0, 1))):
            factor = d[half] * -32.0 if zero_point else 0.0 - self._half_floats(data, "dmin", half)
            for pair, mins in zip(parts, ended, strict=True):
                pair[half].set(mins.to(f32) * factor)

    def _mins(self, data: Ptr, xs: list[Ptr], halves: Sequence[int]) -> list[list[Value]]:
        """Sum, for halves and rows, min (Q6_K: scale) times the activations' sum, by sub-block."""
        k, lanes, each = self.k, self.lanes, self.fmt == "q6_k"
        at = data.at(self.at["scale" if each else "min"])
        accs = [[k.zeros(i32, lanes) for _ in xs] for _ in halves]
        for pair in range(8 if each else 4):
            found = [at.at((pair * 2 + half) * 2 * lanes).load(0, 2 * lanes) for half in halves]
            words = [mins.to(i16, signed=each).bitcast(i32) for mins in found]
            for t, x in enumerate(xs):
                block = pair if each else 2 * pair
                both = x.at(block * BLOCK_BYTES + 4).cast(i32).splat(0, lanes)
                for own, mine in zip(accs, words, strict=True):
                    own[t] = dot_words(k, own[t], mine, both)
        return accs
