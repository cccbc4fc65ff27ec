"""Upper bounds of an output head's logits, so that a greedy choice reads less of the head.

With w a row of the head, v a copy of it in four bits and x the activation as the kernels see it,

    w x <= v x + |w - v| |x|                                        (Cauchy and Schwarz)

so a row whose bound is below a logit that is known is not the largest. A greedy choice needs the
copy, the panel whose bound is the largest, and the panels whose bounds reach the largest logit in
there: the choice among these is the one among all, ties included. What is not a number, or so large
that sums could overflow, excludes nothing.

The copy is in panels as of Q4_0, with the radius |w - v| of each row behind each panel: float32
[2 * lanes]. It includes the rounding of float32 in both products: each adds up one product for each
block, in a chain.
"""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I8s, I32s, I64s, Kernel, Ptr, Value, f32, i8, i16, i32, i64, kernel
from ..targets import CpuTarget
from .activations import BLOCK, BLOCK_BYTES, ActivationFormat, group_of
from .argmax import NEVER
from .gemm import TILES
from .mathlib import f16_to_f32, f32_to_f16
from .panels import FORMATS, Format
from .prefetch import Prefetcher, TileIndex, silent

NIBBLES = FORMATS["q4_0"]
HEAD = FORMATS["q8_0"]  # of heads that have such a copy: both see the same activations
ROUNDING = 2.0**-23  # of a sum of float32, for each number added: twice what it can be
ABOVE = 1 + 2.0**-12  # what computed norms are multiplied by
LARGEST = 1e28  # of an activation: products with rows of up to 1e10 do not overflow
SMALLEST = 1e-30  # added to bounds: products this small are not exact


class CopyFormat(Format):
    """The layout of the copy in panels; in the file it is what it is made from."""

    def panel_bytes(self, blocks: int, lanes: int) -> int:
        """Return the bytes of a panel of `blocks` blocks, and of its rows' radii."""
        return NIBBLES.panel_bytes(blocks, lanes) + 2 * lanes * 4

    def activation(self, target: CpuTarget, depth: int) -> ActivationFormat:
        """Return the activation format for products with rows of `depth` weights."""
        return NIBBLES.activation(target, depth)


COPY = CopyFormat("head_copy", HEAD.block, HEAD.file_bytes, "blocks", NIBBLES.row_bytes)


@kernel
def pack_copy(
    k: Kernel,
    first: I8s,
    second: I8s,
    panels: I8s,
    row_bytes: I64,
    step_rows: I64,
    first_rows: I64,
    second_rows: I64,
    blocks: I64,
    bad: I32s,
) -> None:
    """Pack the copy of rows in Q8_0, in the file's layout: arguments as of `panels.pack`."""
    lanes, block_bytes = k.lanes, NIBBLES.panel_block_bytes(k.lanes)
    width, nibbles = min(lanes, 16), k.scratch(i8, 16)
    with k.units() as unit:
        out = panels.at(unit * (blocks * block_bytes + 2 * lanes * 4))
        radii = out.at(blocks * block_bytes).cast(f32)
        for half, (source, rows) in enumerate(((first, first_rows), (second, second_rows))):
            with k.range(0, lanes, name="lane") as lane:
                row = unit * step_rows + lane
                inside = row < rows
                src = source.at(inside.select(row, 0) * row_bytes)
                sizes, errors = k.var(k.zeros(f32, width)), k.var(k.zeros(f32, width))
                with k.range(0, blocks, name="block") as block:
                    a, b = src.at(block * HEAD.file_bytes), out.at(block * block_bytes)
                    values = _values(k, a, width)
                    scale = _scale(k, values)
                    b.cast(i16).store(lane + half * lanes, inside.select(scale, 0))
                    rounded, error = _rounded(values, f16_to_f32(k, scale))
                    for n, (low, high) in enumerate(zip(*_halved(rounded), strict=True)):
                        nibbles.store(n * width, (low | (high << 4)).to(i8))
                    words = b.at(2 * lanes * NIBBLES.head_bytes).cast(i32)
                    for group in range(4):
                        word = nibbles.cast(i32).load(group)
                        words.store(lane + (2 * group + half) * lanes, word)
                    for v, e in zip(values, error, strict=True):
                        sizes.set(k.fma(v, v, sizes.value))
                        errors.set(k.fma(e, e, errors.value))
                size, error = (v.value.hsum().sqrt() * ABOVE for v in (sizes, errors))
                steps = (blocks + 16).to(f32) * ROUNDING  # of each of the two products
                radius = error + (size * 2.0 + error) * steps
                radii.store(lane + half * lanes, inside.select(radius, 0.0))
        bad.store(unit, k.const(0, i32))


def _values(k: Kernel, block: Ptr, width: int) -> list[Value]:
    """Load a block of Q8_0 in the file's layout: float32 vectors of `width`."""
    scale = f16_to_f32(k, block.cast(i16).load()).splat(width)
    return [block.at(2 + n).load(0, width).to(i32).to(f32) * scale for n in range(0, BLOCK, width)]


def _scale(k: Kernel, values: list[Value]) -> Value:
    """Return the scale of a block of Q4_0: its farthest value divided by -8, as fp16 bits."""
    above, below = values[0], values[0]
    for v in values[1:]:
        above, below = above.max(v), below.min(v)
    most, least = above.hmax(), below.fold(lambda a, b: a.min(b))
    farthest = (most > 0 - least).select(most, least)
    return f32_to_f16(k, (farthest * -0.125).max(-65504.0).min(65504.0))


def _rounded(values: list[Value], scale: Value) -> tuple[list[Value], list[Value]]:
    """Return the nibbles of a block (int32), and what is left of each value."""
    inverse = (scale.abs() > 0.0).select(1.0 / scale, 0.0)
    rounded, left = [], []
    for v in values:
        n = (v * inverse.splat(v.lanes) + 8.5).to(i32).max(0).min(15)
        rounded.append(n)
        left.append(v - (n - 8).to(f32) * scale.splat(v.lanes))
    return rounded, left


def _halved(values: list[Value]) -> tuple[list[Value], list[Value]]:
    middle = len(values) // 2
    return values[:middle], values[middle:]


@kernel
def gemm_bounds(
    k: Kernel, copy: I8s, x: I8s, mask: I32s, use_mask: I64s, bounds: F32s, *, blocks: int
) -> None:
    """Set bounds[unit] to the largest bound of the allowed rows of a panel; unit = panel.

    x: a prepared row for products with the copy. mask: one bit for each row, if use_mask[0] is not
    0. A panel with nothing allowed gives -3.4e38.
    """
    lanes, stride = k.lanes, COPY.panel_bytes(blocks, k.lanes)
    length, row = _length(k, x, blocks), k.scratch(f32, 2 * lanes)
    with k.units() as unit:
        panel = copy.at(unit * stride)
        _product(k, NIBBLES.name, blocks, panel, k.i64(stride), x, row)
        allowed = _allowed(k, mask, use_mask, unit).splat(lanes)
        radii = panel.at(NIBBLES.panel_bytes(blocks, lanes)).cast(f32)
        largest = k.f32(NEVER, lanes)
        for at in (0, lanes):
            bound = k.fma(radii.load(at, lanes), length.splat(lanes), row.load(at, lanes))
            bound = bound.eq(bound).select(bound + SMALLEST, float("inf"))
            bit = (allowed >> (k.iota(lanes) + at)) & 1
            largest = largest.max(bit.ne(0).select(bound, NEVER))
        bounds.store(unit, largest.hmax())


@kernel
def select_panels(
    k: Kernel,
    weights: I8s,
    x: I8s,
    bounds: F32s,
    mask: I32s,
    use_mask: I64s,
    panels: I32s,
    found: I64s,
    count: I64,
    rows: I64,
    *,
    blocks: int,
) -> None:
    """List the panels that may hold the largest allowed logit; one unit.

    bounds: of `count` panels, followed by -3.4e38 up to a multiple of the lanes. panels: int32
    [count + 1], the list and once more its last panel; found[0]: its length. rows: of the head. The
    mask keeps the bits of these panels alone, and is used from then on.
    """
    lanes, stride = k.lanes, HEAD.panel_bytes(blocks, k.lanes)
    row, kind = k.scratch(f32, 2 * lanes), {8: i8, 16: i16, 32: i32}[2 * lanes]
    with k.units():
        largest, where = k.var(k.f32(NEVER, lanes)), k.var(k.zeros(i32, lanes))
        with k.range(0, count, step=lanes) as at:
            bound = bounds.load(at, lanes)
            better = bound > largest.value
            where.set(better.select(k.iota(lanes) + at.to(i32).splat(lanes), where.value))
            largest.set(better.select(bound, largest.value))
        most = largest.value.hmax()
        ties = largest.value.eq(most.splat(lanes)).select(where.value, 0x7FFFFFFF)
        best = ties.fold(lambda a, b: a.min(b)).to(i64)
        _product(k, HEAD.name, blocks, weights.at(best * stride), k.i64(0), x, row)
        known = k.var(k.f32(NEVER))
        word = _allowed(k, mask, use_mask, best)
        with k.range(0, 2 * lanes) as n:
            logit = row.load(n)
            usable = ((word >> n.to(i32)) & 1).ne(0) & (best * (2 * lanes) + n < rows)
            known.set((usable & (logit > known.value)).select(logit, known.value))
        # Above all numbers: it, or others, may have overflowed.
        known.set((known.value < -NEVER).select(known.value, NEVER))
        found.store(0, k.i64(0))
        with k.range(0, count, step=lanes) as at:
            reach = bounds.load(at, lanes).hmax() >= known.value
            with k.range(at, (at + lanes).min(count)) as panel:
                taken = reach & (bounds.load(panel) >= known.value)
                own = taken.select(_allowed(k, mask, use_mask, panel), 0)
                mask.cast(kind).store(panel, own.to(kind))
                with k.if_(taken):
                    n = found.load(0)
                    panels.store(n, panel.to(i32))
                    panels.store(n + 1, panel.to(i32))
                    found.store(0, n + 1)
        use_mask.store(0, k.i64(1))


def _product(
    k: Kernel, fmt: str, blocks: int, panel: Ptr, following: Value, x: Ptr, row: Ptr
) -> None:
    """Multiply `x` by a panel; store the products at `row`, as every pass of one row has them."""
    tile = TILES[fmt](k, fmt, "store", blocks)
    index = TileIndex(k.i64(0), k.i64(1), k.i64(tile.pieces.lines))
    enabled = k.i64(1) > silent(k.target)
    prefetcher = Prefetcher(k, panel, following, index, tile.pieces, enabled)
    tile.emit(panel, prefetcher, [x], [row], k.i64(0), None)


def _allowed(k: Kernel, mask: Ptr, use_mask: Ptr, panel: Value) -> Value:
    """Return a panel's bits of the mask, int32; -1 if no mask is used."""
    used = use_mask.load(0).ne(0)
    kind = {8: i8, 16: i16, 32: i32}[2 * k.lanes]
    return used.select(mask.cast(kind).load(used.select(panel, 0)).to(i32, signed=False), -1)


def _length(k: Kernel, x: Ptr, blocks: int) -> Value:
    """Return the norm of a prepared row, rounded up; infinity for zeros and what is too large."""
    factored = NIBBLES.activation(k.target, blocks * BLOCK).kind == "factors"
    group, width = group_of(blocks) if factored else 1, min(k.lanes, 16)

    def scale(block: Value) -> Value:
        own = x.at((block - block % group) * BLOCK_BYTES).cast(f32).load()
        factor = x.at(block * BLOCK_BYTES).cast(i16).load().to(i32).to(f32)
        return own * factor if factored else own

    largest, total = k.var(k.f32(0.0)), k.var(k.f32(0.0))
    with k.range(0, blocks, name="scale") as block:
        largest.set(scale(block).max(largest.value))
    with k.range(0, blocks, name="block") as block:
        squares, share = k.zeros(i32, width), scale(block) / largest.value
        for n in range(8, BLOCK_BYTES, width):
            q = x.at(block * BLOCK_BYTES + n).load(0, width).to(i32)
            squares = squares + q * q
        total.set(total.value + squares.hsum().to(f32) * share * share)
    length = total.value.sqrt() * largest.value * ABOVE
    return (length < LARGEST).select(length, float("inf"))


def reference(
    weights: np.ndarray, copy: np.ndarray, x: np.ndarray, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Bound the logits of each row: weights, copy float [rows, K], x float [K] -> float64 [rows].

    Rows that are not allowed, bool [rows], get -inf.
    """
    wide, v = x.astype(np.float64), copy.astype(np.float64)
    radii = np.linalg.norm(weights.astype(np.float64) - v, axis=1)
    bounds = v @ wide + radii * np.linalg.norm(wide)
    return bounds if allowed is None else np.where(allowed, bounds, -np.inf)
