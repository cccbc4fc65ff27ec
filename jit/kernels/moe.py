"""Mixture of experts: routing, products by expert, and the weighted sum.

    p = softmax(scores) or sigmoid(scores),  T = the `used` largest of p + c          (route)
    w_e = s p_e, or s p_e / sum of p over T
    y_e = expert_e(h) for e in T                                                     (gemm_experts)
    x += sum over T of w_e * y_e, the likeliest expert first                         (combine)

c corrects the choice, not the weights, where a model has it. Experts may be in groups, of which
only the best few are chosen from: those whose two best experts have the largest p + c together.
Both are DeepSeek-V3's (arXiv:2412.19437, section 2.1.2).

A *pair* is one token with one of its experts: number token * used + slot. Buffers of pairs stay in
this order; `group` makes lists of the pairs that each expert gets, so that a pass reads the weights
of an expert once. Each output of a pair is one chain of operations, and `combine` adds up in the
order of the slots: a token's result has the same bits whatever else was in the pass.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..simd import F32, I64, F32s, I8s, I32s, I64s, Kernel, Ptr, Value, f32, i32, i64, kernel
from .epilogue import Epilogue
from .gemm import tile_gemm
from .mathlib import exp, sigmoid
from .panels import FORMATS

NEVER = float("-inf")
Gating = Literal["softmax", "sigmoid"]


@kernel
def route(
    k: Kernel,
    scores: F32s,
    stride: I64,
    ids: I32s,
    weights: F32s,
    biases: F32s,
    corrections: F32s,
    expert_scales: F32s,
    scale: F32,
    *,
    experts: int,
    used: int,
    gating: Gating = "softmax",
    normalized: bool = True,
    biased: bool = False,
    corrected: bool = False,
    scaled: bool = False,
    groups: int = 1,
    groups_used: int = 1,
) -> None:
    """Choose ids and weights of the `used` likeliest experts, best first; unit = token.

    scores float32 [tokens, stride], stride a multiple of the lanes; ids, weights [tokens, used].
    Of equal scores the lower id comes first. A score that is NaN is never chosen; if there are not
    enough others, the weights are NaN.

    biases, corrections, expert_scales: float32 [experts], with `biased`, `corrected` and `scaled`:
    added to scores, added to likelihoods for the choice, and multiplied into weights, as `scale`
    is. `normalized`: a token's weights have the sum 1 before. groups, groups_used: see above.
    """
    lanes = k.lanes
    room = -(-experts // lanes) * lanes
    # Softmax over what is chosen is softmax over all, normalized: no likelihood is needed.
    plain = gating == "softmax" and normalized and not corrected and groups == 1
    left = k.scratch(f32, room)
    likely = left if plain else k.scratch(f32, room)
    with k.units("token") as token:
        row = scores.at(token * stride)
        with k.range(0, room, step=lanes, name="copy") as at:
            inside = (k.iota(lanes) + at.to(i32).splat(lanes)) < experts
            score = row.load(at, lanes)
            if biased:  # both are padded to whole vectors
                score = score + biases.load(at, lanes)
            likely.store(at, inside.select(score, NEVER))
        if not plain:
            _likelihoods(k, likely, room, gating)
            with k.range(0, experts, name="choice") as e:
                p = likely.load(e)
                left.store(e, p + corrections.load(e) if corrected else p)
            with k.range(experts, room, name="behind") as e:
                left.store(e, k.f32(NEVER))
            if groups > 1:
                _drop_groups(k, left, experts, groups, groups_used)
        chosen, shares = ids.at(token * used), weights.at(token * used)
        with k.range(0, used, name="slot") as slot:
            maximum, index = _largest(k, left, room)
            chosen.store(slot, index)
            shares.store(slot, maximum if plain else likely.load(index.to(i64)))
            left.store(index.to(i64), k.f32(NEVER))
        if plain:
            _softmax(k, shares, used)
        elif normalized:
            _normalize(k, shares, used)
        with k.range(0, used, name="scale") as slot:
            share = shares.load(slot) * scale
            if scaled:
                share = share * expert_scales.load(chosen.load(slot).to(i64))
            shares.store(slot, share)


def _likelihoods(k: Kernel, values: Ptr, room: int, gating: Gating) -> None:
    """Turn scores, padded with -inf, into likelihoods in place; NaN where not finite."""
    lanes = k.lanes
    if gating == "sigmoid":
        with k.range(0, room, step=lanes, name="sigmoid") as at:
            x = values.load(at, lanes)
            values.store(at, sigmoid(k, x))
        return
    largest, _ = _largest(k, values, room)
    maximum, total = largest.splat(lanes), k.var(k.zeros(f32, lanes))
    with k.range(0, room, step=lanes, name="exp") as at:
        x = values.load(at, lanes)
        e = x.eq(NEVER).select(k.zeros(f32, lanes), exp(k, x - maximum) + (x - x))
        values.store(at, e)
        total.set(total.value + e)
    whole = total.value.hsum().splat(lanes)
    with k.range(0, room, step=lanes, name="share") as at:
        values.store(at, values.load(at, lanes) / whole)


def _drop_groups(k: Kernel, left: Ptr, experts: int, groups: int, used_groups: int) -> None:
    """Restrict the choice to experts of the best `used_groups` of `groups` equal groups."""
    lanes, size = k.lanes, experts // groups
    room = -(-groups // lanes) * lanes
    worth, keeps = k.scratch(f32, room), k.scratch(f32, room)
    with k.range(0, room, name="group") as g:
        worth.store(g, k.f32(NEVER))
        keeps.store(g, k.f32(NEVER))
    with k.range(0, groups, name="group") as g:
        first, second = k.var(k.f32(NEVER)), k.var(k.f32(NEVER))
        with k.range(g * size, (g + 1) * size, name="member") as e:
            x = left.load(e)
            best = x > first.value
            second.set(best.select(first.value, second.value.max(x)))
            first.set(best.select(x, first.value))
        worth.store(g, first.value + second.value if size > 1 else first.value)
    with k.range(0, used_groups, name="kept"):
        _, index = _largest(k, worth, room)
        worth.store(index.to(i64), k.f32(NEVER))
        keeps.store(index.to(i64), k.f32(0))
    with k.range(0, experts, name="drop") as e:
        left.store(e, left.load(e) + keeps.load(e // size))


def _normalize(k: Kernel, values: Ptr, count: int) -> None:
    """Divide values by their sum."""
    total = k.var(k.f32(0))
    with k.range(0, count, name="sum") as n:
        total.set(total.value + values.load(n))
    with k.range(0, count, name="share") as n:
        values.store(n, values.load(n) / total.value)


def _largest(k: Kernel, values: Ptr, count: int) -> tuple[Value, Value]:
    """Return the largest of `count` values, and the first index where it is."""
    lanes = k.lanes
    largest, where = k.var(k.f32(NEVER, lanes)), k.var(k.zeros(i32, lanes))
    with k.range(0, count, step=lanes, name="largest") as at:
        xs = values.load(at, lanes)
        better = xs > largest.value
        where.set(better.select(k.iota(lanes) + at.to(i32).splat(lanes), where.value))
        largest.set(better.select(xs, largest.value))
    maximum = largest.value.hmax()
    ties = largest.value.eq(maximum.splat(lanes)).select(where.value, 0x7FFFFFFF)
    return maximum, ties.fold(lambda a, b: a.min(b))


def _softmax(k: Kernel, values: Ptr, count: int) -> None:
    """Compute e^v / sum of e^v, for values whose first is the largest and last the smallest."""
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
    """Group the pairs of each expert by a counting sort; one unit.

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
def head_lists(
    k: Kernel,
    tokens: I64s,
    active: I32s,
    starts: I32s,
    pairs: I32s,
    units: I64s,
    each: I64,
    *,
    heads: int,
) -> None:
    """Write the lists of `group` for tokens that use all of `heads` matrices; one unit.

    units[0] = heads times `each`.
    """  # fmt: skip
    with k.units():
        count = tokens.load(0)
        with k.range(0, heads, name="head") as h:
            active.store(h, h.to(i32))
            starts.store(h, (h * count).to(i32))
            with k.range(0, count, name="token") as t:
                pairs.store(h * count + t, (t * heads + h).to(i32))
        active.store(heads, k.const(0, i32))
        starts.store(heads, (count * heads).to(i32))
        units.store(0, each * heads)


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
    tile: int = 0,
    max_single_tile: int = 0,
) -> None:
    """Multiply each active expert's panels by the rows of its pairs; unit = (active expert, panel).

    weights: the panels of all experts, `units_each` an expert. Pair p takes row p // share of x
    (rows of `x_bytes` bytes, prepared as the format asks) and gives row p of out. active, starts,
    pairs as `group` writes them; `active` has one entry more than there are. scratch: each
    thread's own; tile, max_single_tile: as for `tile_gemm`.
    """
    panel_bytes = FORMATS[fmt].panel_bytes(blocks, k.lanes)
    product = tile_gemm(k, fmt, epilogue, blocks, scratch, tile, max_single_tile)
    with k.units() as unit:
        slot, column = unit // units_each, unit % units_each
        at = _panel(active, unit, units_each)
        following = (_panel(active, unit + 1, units_each) - at) * panel_bytes
        start, end = (starts.load(slot + n).to(i64) for n in range(2))
        mine = pairs.at(start)

        def pointers(first: Value, tokens: int) -> tuple[list[Ptr], list[Ptr]]:
            here = [mine.load(first + t).to(i64) for t in range(tokens)]
            rows = [x.at(pair // share * x_bytes) for pair in here]
            if FORMATS[fmt].family == "float":
                rows = [row.cast(f32) for row in rows]
            return rows, [out.at(pair * out_stride) for pair in here]

        product(weights.at(at * panel_bytes), following, end - start, pointers, column)


def _panel(active: Ptr, unit: Value, units_each: Value) -> Value:
    """Return the index of a unit's panel among those of all experts."""
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
    ids: I32s,
    biases: F32s,
    *,
    used: int,
    add: bool = True,
    biased: bool = False,
) -> None:
    """Add x += sum over its pairs of weight * row of y, in the order of the slots; unit = token.

    Without `add`, x is that sum. `width` is a multiple of the lanes. With `biased` the bias of a
    pair's expert is added to its row: ids [tokens, used] as `route` writes them, biases float32
    [experts, width].
    """
    lanes = k.lanes
    with k.units("token") as token:
        row, rows = x.at(token * x_stride), y.at(token * used * y_stride)
        shares = [weights.splat(token * used + slot, lanes) for slot in range(used)]
        with k.range(0, width, step=lanes, name="column") as at:
            total = row.load(at, lanes) if add else k.zeros(f32, lanes)
            for slot, share in enumerate(shares):
                y_e = rows.load(slot * y_stride + at, lanes)
                if biased:
                    expert = ids.load(token * used + slot).to(i64)
                    y_e = y_e + biases.load(expert * width + at, lanes)
                total = k.fma(y_e, share, total)
            row.store(at, total)


@kernel
def clamped_glu(
    k: Kernel,
    gate: F32s,
    up: F32s,
    gate_biases: F32s,
    up_biases: F32s,
    ids: I32s,
    stride: I64,
    parts: I64,
    alpha: F32,
    limit: F32,
) -> None:
    """Compute gate = g sigmoid(alpha g) (u + 1) in place; unit = (pair, one of `parts` parts).

    g = min(gate + its bias, limit), u = up + its bias, between -limit and limit. gate, up float32
    [pairs, stride]; biases float32 [experts, stride]; ids int32 [pairs]. A part of a row must be a
    multiple of the lanes.
    """
    lanes = k.lanes
    size = stride // parts
    with k.units() as unit:
        pair, start = unit // parts, unit % parts * size
        at, bias = pair * stride + start, ids.load(pair).to(i64) * stride + start
        bound, steep = limit.splat(lanes), alpha.splat(lanes)
        with k.range(0, size, step=lanes, name="column") as n:
            g = gate.load(at + n, lanes) + gate_biases.load(bias + n, lanes)
            u = up.load(at + n, lanes) + up_biases.load(bias + n, lanes)
            broken = (g - g) + (u - u)  # NaN, which bounds would hide
            g, u = g.min(bound), u.min(bound).max(0 - bound)
            open_ = 1.0 / (exp(k, (0 - g * steep).min(88.0)) + 1.0)
            gate.store(at + n, g * open_ * (u + 1.0) + broken)


def route_reference(
    scores: np.ndarray,
    used: int,
    *,
    gating: Gating = "softmax",
    normalized: bool = True,
    corrections: np.ndarray | None = None,
    scale: float = 1.0,
    groups: int = 1,
    groups_used: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Route scores float [tokens, experts] -> ids int32, weights float32 [tokens, used]."""
    wide = scores.astype(np.float64)
    p = np.exp(wide - wide.max(axis=-1, keepdims=True))
    p = p / p.sum(axis=-1, keepdims=True) if gating == "softmax" else 1 / (1 + np.exp(-wide))
    choice = p if corrections is None else p + corrections
    if groups > 1:
        each = choice.reshape(len(scores), groups, -1)
        worth = np.sort(each, axis=-1)[..., -2:].sum(axis=-1)
        best = np.argsort(-worth, axis=-1, kind="stable")[:, :groups_used]
        keeps = np.full(worth.shape, -np.inf)
        np.put_along_axis(keeps, best, 0.0, axis=-1)
        choice = (each + keeps[..., None]).reshape(choice.shape)
    ids = np.argsort(-choice, axis=-1, kind="stable")[:, :used]
    weights = np.take_along_axis(p, ids, axis=-1)
    weights = weights / weights.sum(axis=-1, keepdims=True) if normalized else weights
    return ids.astype(np.int32), (scale * weights).astype(np.float32)


def combine_reference(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Combine x [tokens, width], y [tokens, used, width], weights [tokens, used] -> float32 x."""
    return (x + np.einsum("tsw,ts->tw", y.astype(np.float64), weights)).astype(np.float32)
