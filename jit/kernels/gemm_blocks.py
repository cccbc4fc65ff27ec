"""Register tiles for panels of blocks of 32 (`panels.py`).

Quantized weights (blocks of 32 along K, weight scale s_w, zero point z) meet activations that are
quantized in the same blocks, with a scale s_x each (`activations.py`):

    out += s_x * (s_w * (sum(w * q) - z * sum(q)))

in int32 until the inner brackets close. Where a block has a min instead of a zero point,
+ min * sum(q) takes the place of - s_w * z * sum(q).

Where a format has a `sum_base` the int32 sum is never converted. It starts from the bits of
1.5 * 2^23, a float whose last bit is worth 1, so it ends as those of 1.5 * 2^23 + sum. One FMA with
s_w and -1.5 * 2^23 * s_w makes s_w * sum of that, as rounded as a product of the two would be: s_w
has 11 significant bits at most, so the second factor is exact, and |sum| < 2^22.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ..dot import Dot, few_registers, running_steps
from ..simd import Kernel, Ptr, Value, Var, f32, i8, i16, i32, vec
from ..targets import CpuTarget
from .activations import BLOCK_BYTES
from .codebook import TABLES, table_bytes
from .epilogue import Epilogue
from .mathlib import f16_to_f32
from .panels import FORMATS, SUM_BASE, Format
from .prefetch import Pieces, Prefetcher
from .sign_magnitude import SignMagnitude, block_bytes, splits_signs
from .tiles import PanelTile, Sums


def sums_in_loop(target: CpuTarget, form: Format) -> bool:
    """Return whether tiles of three tokens or more loop over K-groups, rather than unroll them.

    Where a running sum is one register of int16, four tokens fit into 16 registers, if the loop
    keeps LLVM from computing K-groups side by side: then it spills half of them (Q4_0 with AVX2 on
    a Zen 4: 1.4 times as fast as tiles of two).
    """
    return few_registers(target) and form.max_q is not None and form.sub_blocks == 1


class Tile(PanelTile):
    """The register tile for panels of one format with blocks of 32."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        super().__init__(k, fmt, epilogue, blocks)
        self.form = FORMATS[fmt]
        self.block_bytes = self.form.panel_block_bytes(k.lanes)
        self.zero_point, self.base = self.form.zero_point(k.target), self.form.sum_base(k.target)
        self.running = running_steps(self.form.max_q)
        self.dot = Dot(k, self.form.max_q, self.running)
        activation = self.form.activation(k.target, blocks * 32)
        self.factored, self.group = activation.kind == "factors", activation.group
        self.signs = SignMagnitude(k) if splits_signs(fmt, k.target) else None
        self.looped = sums_in_loop(k.target, self.form)
        self.unpacked_loop = fmt == "q4_0"  # of the others unpacked words take longer in a loop

    @property
    def pieces(self) -> Pieces:
        """Each block is one."""
        return Pieces(self.blocks, self.block_bytes)

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """Unpack a panel's weights to bytes, for all tiles to read; scales are not copied."""
        k = self.k
        with k.range(0, self.blocks, name="unpack") as block:
            groups = k_groups(k, self.form, panel.at(block * self.block_bytes))
            if self.signs:
                self.signs.store(groups, scratch.at(block * block_bytes(self.lanes)))
            else:
                words = self._unpacked_words(scratch, block)
                for step, ws in groups:
                    for half, w in enumerate(ws):
                        words.store((step * 2 + half) * self.lanes, w)

    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`: see `PanelTile.products`."""
        k, lanes = self.k, self.lanes
        if self.factored:
            self._groups(panel, unpacked, prefetcher, rows, sums)
        else:
            with k.range(0, self.blocks, name="block") as block:
                self._block(panel, unpacked, prefetcher, rows, block, sums)
        if self.form.factor_bytes(lanes):
            factors = panel.at(self.blocks * self.block_bytes).cast(f32)
            for half in range(2):
                factor = factors.load(half * lanes, lanes)
                for pair in sums:
                    pair[half].set(pair[half].value * factor)

    def _groups(
        self,
        panel: Ptr,
        unpacked: Ptr | None,
        prefetcher: Prefetcher,
        rows: list[Ptr],
        sums: list[list[Var]],
    ) -> None:
        """Add blocks with factors; update sums once a group, since they may live in memory."""
        k, lanes = self.k, self.lanes
        parts = [[k.var(k.zeros(f32, lanes)) for _ in range(2)] for _ in rows]
        with k.range(0, self.blocks, step=self.group, name="group") as first:
            for part in (v for pair in parts for v in pair):
                part.set(k.zeros(f32, lanes))
            with k.range(first, first + self.group, name="block") as block:
                self._block(panel, unpacked, prefetcher, rows, block, parts)
            for row, pair, totals in zip(rows, parts, sums, strict=True):
                scale = row.at(first * BLOCK_BYTES).cast(f32).splat(0, lanes)
                for part, total in zip(pair, totals, strict=True):
                    total.set(k.fma(part.value, scale, total.value))

    def _block(
        self,
        panel: Ptr,
        unpacked: Ptr | None,
        prefetcher: Prefetcher,
        rows: list[Ptr],
        block: Value,
        sums: list[list[Var]],
    ) -> None:
        """Add one block of weights: its int32 sums for each row, times the scales."""
        k, lanes, form, dot = self.k, self.lanes, self.form, self.dot
        data = panel.at(block * self.block_bytes)
        prefetcher.prefetch(block)
        xs = [row.at(block * BLOCK_BYTES) for row in rows]
        x_scales = [] if self.factored else [x.cast(f32).splat(0, lanes) for x in xs]
        by = self._factors(xs)
        mins = None
        if form.has_min:
            halves = data.cast(i16).at(2 * lanes)
            mins = [f16_to_f32(k, halves.load(half * lanes, lanes)) for half in range(2)]
        if self.signs and unpacked is not None:
            wholes = self._sign_magnitude_sums(unpacked.at(block * block_bytes(lanes)), xs)
            scales = [block_scales(k, form, data, half) for half in range(2)]
            self._scaled(wholes, scales, None, xs, x_scales, sums)
            return
        in_loop = self.looped and len(xs) > 2 and (unpacked is None or self.unpacked_loop)
        words = iter(()) if in_loop else self._weights(data, unpacked, block)
        for sub in range(form.sub_blocks):
            totals = (
                self._looped_sums(data, unpacked, block, xs)
                if in_loop
                else [[self._start(x, sub)] * 2 for x in xs]
            )
            accs = [[dot.begin(total) for total in pair] for pair in totals]
            for n, (step, ws) in enumerate(itertools.islice(words, 8 // form.sub_blocks)):
                if n == self.running:
                    totals = [
                        [dot.end(*at, factor) for at in zip(*pairs, strict=True)]
                        for *pairs, factor in zip(accs, totals, by, strict=True)
                    ]
                    accs = [[dot.begin(total) for total in pair] for pair in totals]
                for t, x in enumerate(xs):
                    xv = x.at(8).cast(i32).splat(step, lanes)
                    for half in range(2):
                        accs[t][half] = dot.step(accs[t][half], ws[half], xv, by[t])
            # Ended one by one where they are used: fewer of them need a register.
            wholes = itertools.chain.from_iterable(totals)
            if not in_loop:
                wholes = (
                    dot.end(acc, total, factor)
                    for pair, starts, factor in zip(accs, totals, by, strict=True)
                    for acc, total in zip(pair, starts, strict=True)
                )
            scales = [block_scales(k, form, data, 2 * sub + half) for half in range(2)]
            self._scaled(wholes, scales, mins, xs, x_scales, sums)

    def _scaled(
        self,
        wholes: Iterable[Value],
        scales: list[Value],
        mins: list[Value] | None,
        xs: list[Ptr],
        x_scales: list[Value],
        sums: list[list[Var]],
    ) -> None:
        """Add a block's int32 sums times the scales of both halves, and its mins, to `sums`."""
        k, lanes, base = self.k, self.lanes, self.base
        # For a token or two an offset costs what it saves. So it does on AMD's CPUs, which have
        # pipes for additions alone (a Zen 5: 0.98 to 1.00 of the time without it).
        offset = base and len(xs) > 2 and k.target.intel
        offsets = [s * -SUM_BASE for s in scales] if offset else None
        pairs = itertools.product(range(len(xs)), range(2))
        for whole, (t, half) in zip(wholes, pairs, strict=True):
            total = sums[t][half]
            if self.factored:
                part = k.fma(whole.to(f32), scales[half], total.value)
            elif offsets:
                part = k.fma(whole.bitcast(f32), scales[half], offsets[half])
            else:
                exact = whole.bitcast(f32) - SUM_BASE if base else whole.to(f32)
                part = exact * scales[half]
            if mins:
                x_sum = xs[t].at(4).cast(i32).splat(0, lanes).to(f32)
                part = k.fma(x_sum, mins[half], part)
            total.set(part if self.factored else k.fma(part, x_scales[t], total.value))

    def _start(self, x: Ptr, sub: int) -> Value:
        """Return the initial value of a sum over a block of `x`, or over a part of it."""
        if self.form.sub_blocks > 1:
            field = x.at(4).cast(i16).load(sub).to(i32) * -self.zero_point + self.base
            return field.splat(self.lanes)
        if self.zero_point:
            return x.at(4).cast(i32).splat(0, self.lanes)
        return self.k.const(self.base, vec(i32, self.lanes))

    def _factors(self, xs: list[Ptr]) -> list[Value | None]:
        """Return what multiplies a block's running sums in int16, for each row."""
        return [x.cast(i16).splat(0, 2 * self.lanes) if self.factored else None for x in xs]

    def _unpacked_words(self, unpacked: Ptr, block: Value) -> Ptr:
        return unpacked.at(block * (64 * self.lanes)).cast(i32)

    def _weights(
        self, data: Ptr, unpacked: Ptr | None, block: Value
    ) -> Iterator[tuple[int | Value, list[Value]]]:
        """Return the K-groups of a block, those of its first part before those of the second."""
        if unpacked is None:
            yield from k_groups(self.k, self.form, data)
            return
        for step in range(8):
            yield step, self._unpacked_group(unpacked, block, step)

    def _unpacked_group(self, unpacked: Ptr, block: Value, step: int | Value) -> list[Value]:
        words = self._unpacked_words(unpacked, block)
        return [words.load((step * 2 + half) * self.lanes, self.lanes) for half in (0, 1)]

    def _sign_magnitude_sums(self, block: Ptr, xs: list[Ptr]) -> Iterator[Value]:
        """Return an unpacked block's int32 sums for each row, times its factor."""
        assert self.signs
        for x, pair in zip(xs, self.signs.sums(block, [x.at(8) for x in xs]), strict=True):
            factor = x.cast(i16).load(0).to(i32).splat(self.lanes)
            yield from (total * factor for total in pair)

    def _looped_sums(
        self, data: Ptr, unpacked: Ptr | None, block: Value, xs: list[Ptr]
    ) -> list[list[Value]]:
        """Return a block's int32 sums for each row, both halves, with a loop over weight words."""
        k, lanes, dot = self.k, self.lanes, self.dot
        words = 8 if unpacked is not None or self.form.name == "q8_0" else 4
        length = words * self.running // 8  # of a running sum
        sums: list[list[Value]] = []
        for first in range(0, words, length):
            accs = [[k.var(dot.begin(k.zeros(i32, lanes))) for _ in range(2)] for _ in xs]
            with k.range(first, first + length, name="word") as word:
                groups = (
                    _word_groups(k, self.form, data, word)
                    if unpacked is None
                    else [(word, self._unpacked_group(unpacked, block, word))]
                )
                for step, ws in groups:
                    for x, pair in zip(xs, accs, strict=True):
                        xv = x.at(8).cast(i32).splat(step, lanes)
                        for acc, w in zip(pair, ws, strict=True):
                            acc.set(dot.step(acc.value, w, xv))
            # Asked for here, starts and factors are no scalars that wait for the loop to end.
            sums = sums or [[self._start(x, 0)] * 2 for x in xs]
            sums = [
                [dot.end(acc.value, total, factor) for acc, total in zip(*both, strict=True)]
                for *both, factor in zip(accs, sums, self._factors(xs), strict=True)
            ]
        return sums


def k_groups(k: Kernel, form: Format, block: Ptr) -> Iterator[tuple[int | Value, list[Value]]]:
    """Yield a block's K-groups as (index, [first half, second half]) int32 vectors of bytes."""
    for word in range(8 if form.name == "q8_0" else 4):
        yield from _word_groups(k, form, block, word)


def _word_groups(
    k: Kernel, form: Format, block: Ptr, word: int | Value
) -> Iterator[tuple[int | Value, list[Value]]]:
    """Yield the K-groups in word `word` of both halves: one of bytes, or two of nibbles."""
    lanes = k.lanes
    words = block.at(2 * lanes * form.head_bytes).cast(i32)
    raw = [words.load((word * 2 + half) * lanes, lanes) for half in range(2)]
    if form.name == "q8_0":
        yield word, raw
        return
    bits: list[Value] = []
    if form.has_fifth:
        fifth = block.at(2 * lanes * (form.head_bytes - 4)).cast(i32)
        bits = [fifth.load(half * lanes, lanes) for half in range(2)]

    def whole(low: list[Value], group: int | Value) -> list[Value]:
        """Return the weights of a group: its nibbles, their fifth bits, or their table entries."""
        if form.name in TABLES:
            zero_point = form.zero_point(k.target)
            table = [n + zero_point for n in TABLES[form.name]]
            return [table_bytes(k, v, table) for v in low]
        if not bits:
            return low
        indices = group if isinstance(group, int) else group.to(i32).splat(lanes)
        tops = [((b >> indices) & 0x01010101) << 4 for b in bits]
        return [v | top for v, top in zip(low, tops, strict=True)]

    # With parts of 16 weights a word's nibbles lie two groups apart, and 0 to 3 come first.
    low = word if form.sub_blocks == 1 else word + word // 2 * 2
    high = low + (4 if form.sub_blocks == 1 else 2)
    yield low, whole([r & 0x0F0F0F0F for r in raw], low)
    yield high, whole([(r >> 4) & 0x0F0F0F0F for r in raw], high)


def block_scales(k: Kernel, form: Format, block: Ptr, half: int) -> Value:
    """Return the scales of half `half` of a panel's block of ``blocks``: float32 [lanes].

    With scales for parts of a block those of the second part are halves 2 and 3.
    """
    if form.name == "nvfp4":
        small = block.cast(i8).load(half * k.lanes, k.lanes).to(i16, signed=False)
        return f16_to_f32(k, small << 7)
    if form.name == "mxfp4":
        powers = block.cast(i8).load(half * k.lanes, k.lanes).to(i32, signed=False)
        return (powers << 23).bitcast(f32)
    return f16_to_f32(k, block.cast(i16).load(half * k.lanes, k.lanes))
