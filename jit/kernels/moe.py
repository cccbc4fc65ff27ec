"""Mixture of experts: who goes to which expert, products by expert, and the weighted sum.

    p = softmax(scores),  T = the `used` largest,  w_e = p_e / sum of p over T        (route)
    y_e = expert_e(h) for e in T                                                     (gemm_experts)
    x += sum over T of w_e * y_e, the likeliest expert first                         (combine)

A *pair* is one token with one of its experts: number token * used + slot. Buffers of pairs stay in
this order; `group` makes lists of the pairs that each expert gets, so that a pass reads the weights
of an expert once. Each output of a pair is one chain of operations, and `combine` adds up in the
order of the slots: a token's result has the same bits whatever else was in the pass.
"""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I8s, I32s, I64s, Kernel, Ptr, Value, f32, i32, i64, kernel
from .gemm import Epilogue
from .gemm_dispatch import tile_gemm
from .mathlib import exp
from .panels import FORMATS

NEVER = float("-inf")


@kernel
def route(
    k: Kernel, scores: F32s, stride: I64, ids: I32s, weights: F32s, *, experts: int, used: int
) -> None:
    """Unit = token: ids and weights of its `used` likeliest of `experts` experts, best first.

    scores float32 [tokens, stride], stride a multiple of the lanes; ids, weights [tokens, used].
    Of equal scores the lower id comes first. A score that is NaN is never chosen; if there are not
    enough others, the weights are NaN.
    """
    lanes = k.lanes
    room = -(-experts // lanes) * lanes
    left = k.scratch(f32, room)
    with k.units("token") as token:
        row = scores.at(token * stride)
        with k.range(0, room, step=lanes, name="copy") as at:
            inside = (k.iota(lanes) + at.to(i32).splat(lanes)) < experts
            left.store(at, inside.select(row.load(at, lanes), NEVER))
        chosen, shares = ids.at(token * used), weights.at(token * used)
        with k.range(0, used, name="slot") as slot:
            most, index = _largest(k, left, room)
            chosen.store(slot, index)
            shares.store(slot, most)
            left.store(index.to(i64), k.f32(NEVER))
        _softmax(k, shares, used)


def _largest(k: Kernel, values: Ptr, count: int) -> tuple[Value, Value]:
    """The largest of `count` values, and the first place where it is."""
    lanes = k.lanes
    largest, where = k.var(k.f32(NEVER, lanes)), k.var(k.zeros(i32, lanes))
    with k.range(0, count, step=lanes, name="largest") as at:
        xs = values.load(at, lanes)
        better = xs > largest.value
        where.set(better.select(k.iota(lanes) + at.to(i32).splat(lanes), where.value))
        largest.set(better.select(xs, largest.value))
    most = largest.value.hmax()
    ties = largest.value.eq(most.splat(lanes)).select(where.value, 0x7FFFFFFF)
    return most, ties.fold(lambda a, b: a.min(b))


def _softmax(k: Kernel, values: Ptr, count: int) -> None:
    """e^v / sum of e^v, for values of which the first is the largest and the last the least."""
    first = values.load(0)
    # 0, or NaN if a value is not finite: `exp` would not show it.
    broken = (first - first) + (values.load(count - 1) - values.load(count - 1))
    total = k.var(k.f32(0))
    with k.range(0, count, name="exp") as n:
        e = exp(k, values.load(n) - first) + broken
        values.store(n, e)
        total.set(total.value + e)
    with k.range(0, count, name="share") as n:
        values.store(n, values.load(n) / total.value)


@kernel
def group(
    k: Kernel,
    ids: I32s,
    tokens: I64s,
    active: I32s,
    starts: I32s,
    pairs: I32s,
    units: I64s,
    gate_units: I64,
    down_units: I64,
    *,
    experts: int,
    used: int,
) -> None:
    """One unit: the pairs of each expert, by a counting sort.

    ids int32 [tokens[0] * used]. active: the experts that have any, in order; starts: where the
    pairs of each begin in `pairs`, and their end; both int32 [experts + 1]. units[0], units[1] =
    active experts times gate_units, down_units: what the products that follow have to do; units[2]
    += active experts.
    """
    at = k.scratch(i32, experts)
    one = k.const(1, i32)
    with k.units():
        count = tokens.load(0) * used
        with k.range(0, experts, name="clear") as e:
            at.store(e, k.const(0, i32))
        with k.range(0, count, name="count") as pair:
            e = ids.load(pair).to(i64)
            at.store(e, at.load(e) + one)
        n, total = k.var(k.i64(0)), k.var(k.const(0, i32))
        with k.range(0, experts, name="expert") as e:
            mine = at.load(e)
            # Written in any case: the next expert that has pairs overwrites one that has none.
            active.store(n.value, e.to(i32))
            starts.store(n.value, total.value)
            at.store(e, total.value)
            n.set(n.value + (mine > 0).select(k.i64(1), 0))
            total.set(total.value + mine)
        active.store(n.value, k.const(0, i32))  # read by whoever looks one panel ahead
        starts.store(n.value, total.value)
        with k.range(0, count, name="pair") as pair:
            e = ids.load(pair).to(i64)
            pairs.store(at.load(e).to(i64), pair.to(i32))
            at.store(e, at.load(e) + one)
        units.store(0, n.value * gate_units)
        units.store(1, n.value * down_units)
        units.store(2, units.load(2) + n.value)


@kernel
def gemm_experts(
    k: Kernel,
    weights: I8s,
    x: I8s,
    out: F32s,
    x_bytes: I64,
    out_stride: I64,
    units_each: I64,
    active: I32s,
    starts: I32s,
    pairs: I32s,
    scratch: I8s,
    *,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    share: int,
    per_block_scale: bool = False,
    tile: int = 0,
    max_single_tile: int = 0,
) -> None:
    """Each active expert's panels times the rows of its pairs; unit = (active expert, panel).

    weights: the panels of all experts, `units_each` an expert. Pair p takes row p // share of x
    (rows of `x_bytes` bytes, prepared as the format asks) and gives row p of out. active, starts,
    pairs as `group` writes them; `active` has one entry more than there are. scratch: each
    thread's own, for K-quants only; per_block_scale, tile, max_single_tile: as `gemm_quant` has
    them.
    """
    panel_bytes = FORMATS[fmt].panel_bytes(blocks, k.lanes)
    product = tile_gemm(k, fmt, epilogue, blocks, per_block_scale, scratch, tile, max_single_tile)
    with k.units() as unit:
        slot, column = unit // units_each, unit % units_each
        at = _panel(active, unit, units_each)
        following = (_panel(active, unit + 1, units_each) - at) * panel_bytes
        start, end = (starts.load(slot + n).to(i64) for n in range(2))
        mine = pairs.at(start)

        def place(first: Value, tokens: int) -> tuple[list[Ptr], list[Ptr]]:
            here = [mine.load(first + t).to(i64) for t in range(tokens)]
            rows = [x.at(pair // share * x_bytes) for pair in here]
            if FORMATS[fmt].family == "float":
                rows = [row.cast(f32) for row in rows]
            return rows, [out.at(pair * out_stride) for pair in here]

        product(weights.at(at * panel_bytes), following, end - start, place, column)


def _panel(active: Ptr, unit: Value, units_each: Value) -> Value:
    """Number of a unit's panel among those of all experts."""
    return active.load(unit // units_each).to(i64) * units_each + unit % units_each


@kernel
def combine(
    k: Kernel,
    x: F32s,
    y: F32s,
    weights: F32s,
    x_stride: I64,
    y_stride: I64,
    width: I64,
    *,
    used: int,
) -> None:
    """Unit = token: x += sum over its pairs of weight * row of y, in the order of the slots.

    `width` is a multiple of the lanes.
    """
    lanes = k.lanes
    with k.units("token") as token:
        row, rows = x.at(token * x_stride), y.at(token * used * y_stride)
        shares = [weights.splat(token * used + slot, lanes) for slot in range(used)]
        with k.range(0, width, step=lanes, name="column") as at:
            total = row.load(at, lanes)
            for slot, share in enumerate(shares):
                total = k.fma(rows.load(slot * y_stride + at, lanes), share, total)
            row.store(at, total)


def route_reference(scores: np.ndarray, used: int) -> tuple[np.ndarray, np.ndarray]:
    """scores float [tokens, experts] -> ids int32 and weights float32, [tokens, used] each."""
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :used]
    chosen = np.take_along_axis(scores.astype(np.float64), ids, axis=-1)
    p = np.exp(chosen - chosen[:, :1])
    return ids.astype(np.int32), (p / p.sum(axis=-1, keepdims=True)).astype(np.float32)


def combine_reference(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """x [tokens, width], y [tokens, used, width], weights [tokens, used] -> float32 like x."""
    return (x + np.einsum("tsw,ts->tw", y.astype(np.float64), weights)).astype(np.float32)
