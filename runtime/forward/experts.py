"""A mixture of experts on the tape: routing, GEMMs by expert, and the weighted sum.

In prefill the tokens are grouped by expert, so that each expert's weights are read once a pass. In
decode the one token's experts are a list already: every thread routes for itself, and the panels of
the chosen experts, one expert after the other, are cut into one stream for each thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import gemm, moe
from ...jit.kernels.activations import BLOCK_BYTES
from ...jit.kernels.epilogue import Epilogue
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, REPLICATED, STATIC, PerThread
from ..weights.matrix import Matrix
from .descriptor import ONE, TOKENS
from .gemms import CHUNKS
from .graph import GraphBuilder
from .tensors import Activation, QuantizedActivation

PARTS = 4  # of a row, among which threads share the few pairs of a decode
LINE = 16  # float32 of a cache line


@dataclass(frozen=True, slots=True)
class RoutingSpec:
    """The selection and weighting of a token's experts: see `jit/kernels/moe.py`."""

    used: int
    """Number of experts of one token."""
    gating: moe.Gating = "softmax"
    """How scores become likelihoods."""
    normalized: bool = True
    """Whether a token's weights are normalized to the sum 1."""
    scale: float = 1.0
    """Factor of the weights, after normalization."""
    groups: int = 1
    groups_used: int = 1
    """Number of equal groups of experts, and how many of them a token may choose from."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The assignment of pairs (token, slot) to experts, as `jit/kernels/moe.py` has it."""

    used: int
    """Number of experts of one token."""
    ids: np.ndarray | PerThread
    weights: np.ndarray | PerThread
    """Ids and weights of the chosen experts: int32 and float32 [tokens, used]."""
    lists: tuple[np.ndarray | PerThread, np.ndarray, np.ndarray]
    """Active experts, where the pairs of each start in the list of pairs, and that list."""
    units: np.ndarray
    """int64 [3]: units of the gate_up GEMM, units of the down GEMM, number of distinct experts."""


def route(
    g: GraphBuilder,
    scores: Activation,
    how: RoutingSpec,
    gate_up: Matrix,
    down: Matrix,
    *,
    biases: np.ndarray | None = None,
    corrections: np.ndarray | None = None,
    expert_scales: np.ndarray | None = None,
) -> Routing:
    """Choose each token's experts by `scores`; gate_up, down: the matrices that will use them.

    biases: added to scores; corrections: to likelihoods, for the choice alone; expert_scales: what
    an expert's weights are multiplied by. float32 [padded(experts)] each.
    """
    experts, used = scores.width, how.used
    max_pairs = g.max_tokens * used
    units = aligned(8, np.int64)[:3]
    g.experts_hit.append(units[2:])
    ids, weights = _choose(g, "route", scores, how, biases, corrections, expert_scales)
    if g.decode:
        # One pair for each expert, in the order of the slots.
        starts, pairs = (_counting(n) for n in (used + 1, used))
        units[:2] = used * gate_up.units, used * down.units
        return Routing(used, ids, weights, (ids, starts, pairs), units)
    assert isinstance(ids, np.ndarray)
    active = g.buffers.get("active_experts", experts + 1, 1, np.int32)
    starts = g.buffers.get("expert_starts", experts + 1, 1, np.int32)
    pairs = g.buffers.get("expert_pairs", max_pairs, 1, np.int32)
    args = [ids, g.units(TOKENS), active, starts, pairs, units, gate_up.units, down.units]
    g.tape.op("group", spec(moe.group, experts=experts, used=used), args, g.units(ONE))
    return Routing(used, ids, weights, (active, starts, pairs), units)


def _choose(
    g: GraphBuilder,
    name: str,
    scores: Activation,
    how: RoutingSpec,
    biases: np.ndarray | None = None,
    corrections: np.ndarray | None = None,
    expert_scales: np.ndarray | None = None,
) -> tuple[np.ndarray | PerThread, np.ndarray | PerThread]:
    """Choose each token's experts and their weights; in decode every thread has its own copy."""
    given = {"biased": biases, "corrected": corrections, "scaled": expert_scales}
    sizes: dict[str, Any] = {key: True for key, values in given.items() if values is not None}
    usual = RoutingSpec(how.used)
    for key in ("gating", "normalized", "groups", "groups_used"):
        if getattr(how, key) != getattr(usual, key):
            sizes[key] = getattr(how, key)
    kernel = spec(moe.route, experts=scores.width, used=how.used, **sizes)
    unread = np.zeros(1, np.float32)
    extra = [unread if values is None else values for values in given.values()]
    used, max_pairs = how.used, g.max_tokens * how.used
    id_shape, weight_shape = ((1, used + 1), (1, used)) if g.decode else ((max_pairs, 1),) * 2
    found = (
        g.memory(f"{name}.ids", *id_shape, np.int32, replicated=g.decode),
        g.memory(f"{name}.weights", *weight_shape, replicated=g.decode),
    )
    args = [scores.data, scores.stride, *found, *extra, float(how.scale)]
    mode, chunk = (REPLICATED, 1) if g.decode else (DYNAMIC, 8)
    g.tape.op(name, kernel, args, g.units(TOKENS), mode=mode, chunk=chunk, barrier=not g.decode)
    return found


def gated(
    g: GraphBuilder,
    w: Matrix,
    h: QuantizedActivation,
    to: Routing,
    gate: Literal["silu", "gelu"],
    name: str,
) -> Activation:
    """Compute gate(gate h) * (up h) of each token's experts: a row for each pair."""
    y, units = g.row(name, w.rows, to.used), to.units[:1]
    if w.up is None:
        fused = "silu_mul" if gate == "silu" else "gelu_mul"
        _gemm(g, name, w, h, y, to, fused, units, share=to.used)
    else:
        after = "after_silu" if gate == "silu" else "after_gelu"
        _gemm(g, f"{name}.gate", w, h, y, to, "store", units, share=to.used)
        _gemm(g, name, w.up, h, y, to, after, units, share=to.used)
    return y


def squared(
    g: GraphBuilder, w: Matrix, h: QuantizedActivation, to: Routing, name: str
) -> Activation:
    """Compute relu(up h)^2 of each token's experts: a row for each pair."""
    y = g.row(name, w.rows, to.used)
    _gemm(g, name, w, h, y, to, "store", to.units[:1], share=to.used)
    g.square(y, f"{name}_square")
    return y


def clamped(
    g: GraphBuilder,
    matrices: tuple[Matrix, Matrix],
    biases: tuple[np.ndarray, np.ndarray],
    h: QuantizedActivation,
    to: Routing,
    alpha: float,
    limit: float,
    name: str,
) -> Activation:
    """Compute `clamped_glu` of gate h and up h of each token's experts: a row for each pair.

    biases: float32 [experts, padded(rows)], of the gate and of up.
    """
    rows = [g.row(f"{name}.{part}", matrices[0].rows, to.used) for part in ("gate", "up")]
    for w, y, part in zip(matrices, rows, ("gate", "up"), strict=True):
        _gemm(g, f"{name}.{part}", w, h, y, to, "store", to.units[:1], share=to.used)
    gate, up = rows
    parts = PARTS if g.decode and gate.stride % (PARTS * LINE) == 0 else 1
    args = [gate.data, up.data, *biases, to.ids, gate.stride, parts, float(alpha), float(limit)]
    g.tape.op(name, spec(moe.clamped_glu), args, g.units(TOKENS, to.used * parts))
    return gate


def add(
    g: GraphBuilder,
    x: Activation,
    w: Matrix,
    y: QuantizedActivation,
    to: Routing,
    name: str,
    biases: np.ndarray | None = None,
    *,
    fresh: bool = False,
) -> None:
    """Add each token's weighted sum of w y over experts to x; biases: float32 [experts, width].

    fresh: overwrite x with that sum.
    """
    out = g.row(f"{name}_each", w.rows, to.used)
    _gemm(g, name, w, y, out, to, "store", to.units[1:2], share=1)
    lanes = g.target.lanes
    width = -(-x.width // lanes) * lanes
    form: dict[str, Any] = {"add": False} if fresh else {}
    if biases is not None:
        form["biased"], width = True, biases.shape[1]
    unread = np.zeros(1, np.float32) if biases is None else biases
    args = [x.data, out.data, to.weights, x.stride, out.stride, width, to.ids, unread]
    g.tape.op(f"{name}_sum", spec(moe.combine, used=to.used, **form), args, g.units(TOKENS))


def total(g: GraphBuilder, w: Matrix, y: QuantizedActivation, to: Routing, name: str) -> Activation:
    """Return the weighted sum of w y over each token's experts."""
    out = g.row(f"{name}_total", w.rows)
    add(g, out, w, y, to, name, fresh=True)
    return out


def by_head(g: GraphBuilder, w: Matrix, x: QuantizedActivation, name: str) -> Activation:
    """Compute w_h x_h of each head h by an expert GEMM, a head an expert: rows [tokens * heads]."""
    heads = w.experts
    out, units = g.row(name, w.rows, heads), aligned(8, np.int64)[:3]
    if g.decode:
        lists = (_counting(heads + 1), _counting(heads + 1), _counting(heads))
        units[0] = heads * w.units
    else:
        max_pairs = g.max_tokens * heads
        lists = (
            g.buffers.get("active_heads", heads + 1, 1, np.int32),
            g.buffers.get("head_starts", heads + 1, 1, np.int32),
            g.buffers.get("head_pairs", max_pairs, 1, np.int32),
        )
        args = [g.units(TOKENS), *lists, units, w.units]
        g.tape.op(f"{name}.lists", spec(moe.head_lists, heads=heads), args, g.units(ONE))
    to = Routing(heads, lists[0], lists[0], lists, units)
    _gemm(g, name, w, x, out, to, "store", units[:1], share=1)
    return out


def add_gated(g: GraphBuilder, x: Activation, y: Activation, score: Activation, name: str) -> None:
    """Add x += sigmoid(score) y; score: one number a token."""
    ids, weights = _choose(g, f"{name}_gate", score, RoutingSpec(1, "sigmoid", False))
    width = -(-x.width // g.target.lanes) * g.target.lanes
    unread = np.zeros(1, np.float32)
    args = [x.data, y.data, weights, x.stride, y.stride, width, ids, unread]
    g.tape.op(f"{name}_sum", spec(moe.combine, used=1), args, g.units(TOKENS))


def _gemm(
    g: GraphBuilder,
    name: str,
    w: Matrix,
    x: QuantizedActivation,
    out: Activation,
    to: Routing,
    epilogue: Epilogue,
    units: np.ndarray,
    share: int,
) -> None:
    g.before_experts(w, to.lists, units, share)
    form = w.format
    rows = x.forms[w.activation(g.target)]
    x_bytes = w.depth // 32 * BLOCK_BYTES if form.quantized else 4 * rows.stride
    needs = gemm.scratch_bytes(form.name, w.depth, g.target)
    args = [w.panels, rows.data, out.data, x_bytes, out.stride, w.units, *to.lists,
            g.scratch("unpack", needs)]  # fmt: skip
    sizes = {"fmt": form.name, "epilogue": epilogue, "blocks": w.blocks, "share": share,
             **g.register_tiles}  # fmt: skip
    mode, chunk = (STATIC, 1) if g.decode else (DYNAMIC, max(1, w.units // CHUNKS))
    g.tape.op(name, spec(moe.gemm_experts, **sizes), args, units, mode=mode, chunk=chunk)


def _counting(count: int) -> np.ndarray:
    """Return 0, 1, 2, … as int32."""
    numbers = aligned(count, np.int32)
    numbers[:] = np.arange(count)
    return numbers
