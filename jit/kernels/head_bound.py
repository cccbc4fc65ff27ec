"""Upper bounds of an output head's logits, so that a greedy choice reads less of the head.

With w a row of the head, v a copy of it in four bits and x the activation as the kernels see it,

    w x <= v x + |w - v| |x|                                        (Cauchy and Schwarz)

so a row whose bound is below a logit that is known is not the largest. A greedy choice needs the
copy, the panel whose bound is the largest, and the panels whose bounds reach the largest logit in
there: the choice among these is the one among all, ties included. What is not a number, or so large
that sums could overflow, excludes nothing.

The copy is in panels as of Q4_0, with the radius |w - v| of each row behind each panel: float32
[2 * lanes]. It includes the rounding of float32 in both products, which each add up one product for
each block, in a chain.
"""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I8s, I32s, I64s, Kernel, Ptr, Value, f32, i8, i16, i32, kernel
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
LENGTHS = 1e-15, 1e28  # of activations, between which no product that counts over- or underflows


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
    with k.units() as unit:
        out = panels.at(unit * (blocks * block_bytes + 2 * lanes * 4))
        for half, (source, rows) in enumerate(((first, first_rows), (second, second_rows))):
            with k.range(0, lanes, name="lane") as lane:
                row, at = unit * step_rows + lane, lane + half * lanes
                inside = row < rows
                src = source.at(inside.select(row, 0) * row_bytes)
                sizes, errors = k.var(k.zeros(f32, BLOCK)), k.var(k.zeros(f32, BLOCK))
                with k.range(0, blocks, name="block") as block:
                    given, to = src.at(block * HEAD.file_bytes), out.at(block * block_bytes)
                    scale = f16_to_f32(k, given.cast(i16).load()).splat(BLOCK)
                    values = given.at(2).load(0, BLOCK).to(i32).to(f32) * scale
                    # As of Q4_0: what is farthest from 0 becomes -8.
                    high, low = values.hmax(), values.fold(lambda a, b: a.min(b))
                    farthest = (high > 0 - low).select(high, low) * -0.125
                    stored = f32_to_f16(k, farthest.max(-65504.0).min(65504.0))
                    rounded = f16_to_f32(k, stored)
                    inverse = (rounded.abs() > 0.0).select(1.0 / rounded, 0.0).splat(BLOCK)
                    n = (values * inverse + 8.5).to(i32).max(0).min(15)
                    error = values - (n - 8).to(f32) * rounded.splat(BLOCK)
                    sizes.set(k.fma(values, values, sizes.value))
                    errors.set(k.fma(error, error, errors.value))
                    to.cast(i16).store(at, inside.select(stored, 0))
                    start, end = n.halves()
                    words = (start | (end << 4)).to(i8).bitcast(i32)
                    for group in range(4):
                        where = to.at(2 * lanes * NIBBLES.head_bytes).cast(i32)
                        where.store(at + 2 * group * lanes, words.at(group))
                size, error = (v.value.hsum().sqrt() * ABOVE for v in (sizes, errors))
                radius = error + (size * 2.0 + error) * ((blocks + 16).to(f32) * ROUNDING)
                out.at(blocks * block_bytes).cast(f32).store(at, inside.select(radius, 0.0))
        bad.store(unit, k.const(0, i32))


@kernel
def gemm_bounds(
    k: Kernel, copy: I8s, x: I8s, mask: I32s, use_mask: I64s, bounds: F32s, *, blocks: int
) -> None:
    """Set bounds[unit] to the largest bound of the allowed rows of a panel; unit = panel.

    x: a prepared row for products with the copy. mask: one bit for each row, if use_mask[0] is not
    0. A panel with nothing allowed gives -3.4e38.
    """
    lanes, stride = k.lanes, COPY.panel_bytes(blocks, k.lanes)
    length, row = _length(k, x, blocks).splat(lanes), k.scratch(f32, 2 * lanes)
    with k.units() as unit:
        panel = copy.at(unit * stride)
        _product(k, NIBBLES, blocks, panel, x, row)
        allowed = _allowed(k, mask, use_mask, unit).splat(lanes)
        radii = panel.at(NIBBLES.panel_bytes(blocks, lanes)).cast(f32)
        largest = k.f32(NEVER, lanes)
        for at in (0, lanes):
            bound = k.fma(radii.load(at, lanes), length, row.load(at, lanes))
            bound = bound.eq(bound).select(bound, float("inf"))
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

    bounds: of `count` panels. panels: int32 [count + 1], the list and once more its last panel;
    found[0]: its length. rows: of the head. The mask keeps the bits of these panels alone, and is
    used from then on.
    """
    rows_each, row = 2 * k.lanes, k.scratch(f32, 2 * k.lanes)
    with k.units():
        largest, best, known = k.var(k.f32(NEVER)), k.var(k.i64(0)), k.var(k.f32(NEVER))
        with k.range(0, count) as panel:
            better = bounds.load(panel) > largest.value
            best.set(better.select(panel, best.value))
            largest.set(better.select(bounds.load(panel), largest.value))
        where = weights.at(best.value * HEAD.panel_bytes(blocks, k.lanes))
        _product(k, HEAD, blocks, where, x, row)
        allowed = _allowed(k, mask, use_mask, best.value)
        with k.range(0, rows_each) as n:
            usable = ((allowed >> n.to(i32)) & 1).ne(0) & (best.value * rows_each + n < rows)
            better = usable & (row.load(n) > known.value)
            known.set(better.select(row.load(n), known.value))
        known.set((known.value < -NEVER).select(known.value, NEVER))  # infinity, as others may be
        found.store(0, k.i64(0))
        with k.range(0, count) as panel:
            taken = bounds.load(panel) >= known.value
            bits = taken.select(_allowed(k, mask, use_mask, panel), 0)
            mask.cast(_bits(k)).store(panel, bits.to(_bits(k)))
            with k.if_(taken):
                at = found.load(0)
                panels.store(at, panel.to(i32))
                panels.store(at + 1, panel.to(i32))
                found.store(0, at + 1)
        use_mask.store(0, k.i64(1))


def _product(k: Kernel, form: Format, blocks: int, panel: Ptr, x: Ptr, row: Ptr) -> None:
    """Multiply `x` by a panel; store the products at `row`, as every pass of one row has them."""
    tile = TILES[form.name](k, form.name, "store", blocks)
    index = TileIndex(k.i64(0), k.i64(1), k.i64(tile.pieces.lines))
    prefetcher = Prefetcher(k, panel, k.i64(0), index, tile.pieces, k.i64(1) > silent(k.target))
    tile.emit(panel, prefetcher, [x], [row], k.i64(0), None)


def _bits(k: Kernel):
    """Return the integer type with a bit for each row of a panel."""
    return {8: i8, 16: i16, 32: i32}[2 * k.lanes]


def _allowed(k: Kernel, mask: Ptr, use_mask: Ptr, panel: Value) -> Value:
    """Return a panel's bits of the mask, int32; -1 if no mask is used."""
    used = use_mask.load(0).ne(0)
    bits = mask.cast(_bits(k)).load(used.select(panel, 0))
    return used.select(bits.to(i32, signed=False), -1)


def _length(k: Kernel, x: Ptr, blocks: int) -> Value:
    """Return the norm of a prepared row, rounded up; infinity if it is not within `LENGTHS`."""
    factored = NIBBLES.activation(k.target, blocks * BLOCK).kind == "factors"
    group, total = group_of(blocks) if factored else 1, k.var(k.f32(0.0))
    with k.range(0, blocks, name="block") as block:
        own = x.at(block * BLOCK_BYTES)
        scale = x.at((block - block % group) * BLOCK_BYTES).cast(f32).load()
        if factored:
            scale = scale * own.cast(i16).load().to(i32).to(f32)
        q = own.at(8).load(0, BLOCK).to(i32)
        total.set(total.value + (q * q).hsum().to(f32) * scale * scale)
    length = total.value.sqrt() * ABOVE
    return ((length > LENGTHS[0]) & (length < LENGTHS[1])).select(length, float("inf"))


def reference(weights: np.ndarray, copy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Bound the logits: weights, copy float [rows, K], x float [K] -> float64 [rows]."""
    wide, v = x.astype(np.float64), copy.astype(np.float64)
    return v @ wide + np.linalg.norm(weights - v, axis=1) * np.linalg.norm(wide)
