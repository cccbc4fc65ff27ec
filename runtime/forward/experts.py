"""A mixture of experts on the tape: routing, products by expert, and the weighted sum.

In prefill the tokens are grouped by expert, so that each expert's weights are read once a pass. In
decode the one token's experts are a list already: every thread routes for itself, and the panels of
the chosen experts, one expert after the other, are cut into one stream for each thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import gemm, gemm_k, moe
from ...jit.kernels.activations import BLOCK_BYTES
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, REPLICATED, STATIC, PerThread
from ..weights.loader import Matrix
from .graph import CHUNKS, ONE, TOKENS, GraphBuilder
from .tensors import Activation, QuantizedActivation


@dataclass(frozen=True, slots=True)
class Routing:
    """Which pairs (token, slot) go to which expert, as `jit/kernels/moe.py` has it.

    Attributes:
        used: experts of one token.
        weights: float32 [tokens, used].
        lists: active experts, where the pairs of each start, the pairs.
        units: int64 [3], of the products by gate_up and by down; then the distinct experts.
    """

    used: int
    weights: np.ndarray | PerThread
    lists: tuple[np.ndarray | PerThread, np.ndarray, np.ndarray]
    units: np.ndarray


def route(g: GraphBuilder, scores: Activation, used: int, gate_up: Matrix, down: Matrix) -> Routing:
    """Choose each token's `used` experts by `scores`; gate_up, down: what they will be used for."""
    experts, most = scores.width, g.most_tokens * used
    g.pairs = used
    units = aligned(8, np.int64)[:3]
    g.experts_hit.append(units[2:])
    kernel = spec(moe.route, experts=experts, used=used)
    if g.decode:
        ids, weights = _own(g, "expert_ids", used + 1, np.int32), _own(g, "expert_weights", used)
        args = [scores.data, scores.stride, ids, weights]
        g.tape.op("route", kernel, args, g.units(TOKENS), mode=REPLICATED, barrier=False)
        # One pair for each expert, in the order of the slots.
        starts, pairs = (_counting(n) for n in (used + 1, used))
        units[:2] = used * gate_up.units, used * down.units
        return Routing(used, weights, (ids, starts, pairs), units)
    ids = g.buffers.get("expert_ids", most, 1, np.int32)
    weights = g.buffers.get("expert_weights", most, 1)
    args = [scores.data, scores.stride, ids, weights]
    g.tape.op("route", kernel, args, g.units(TOKENS), mode=DYNAMIC, chunk=8)
    active = g.buffers.get("active_experts", experts + 1, 1, np.int32)
    starts = g.buffers.get("expert_starts", experts + 1, 1, np.int32)
    pairs = g.buffers.get("expert_pairs", most, 1, np.int32)
    args = [ids, g.units(TOKENS), active, starts, pairs, units, gate_up.units, down.units]
    g.tape.op("group", spec(moe.group, experts=experts, used=used), args, g.units(ONE))
    return Routing(used, weights, (active, starts, pairs), units)


def silu_mul(
    g: GraphBuilder, w: Matrix, h: QuantizedActivation, to: Routing, name: str
) -> Activation:
    """silu(gate h) * (up h) of each token's experts: a row for each pair."""
    y = g.row(name, w.rows, to.used)
    if w.up is None:
        _product(g, name, w, h, y, to, "silu_mul", to.units[:1], share=to.used)
    else:
        _product(g, f"{name}.gate", w, h, y, to, "store", to.units[:1], share=to.used)
        _product(g, name, w.up, h, y, to, "after_silu", to.units[:1], share=to.used)
    return y


def add(
    g: GraphBuilder, x: Activation, w: Matrix, y: QuantizedActivation, to: Routing, name: str
) -> None:
    """x += the weighted sum of w y over each token's experts."""
    out = g.row(f"{name}_each", w.rows, to.used)
    _product(g, name, w, y, out, to, "store", to.units[1:2], share=1)
    lanes = g.target.lanes
    width = -(-x.width // lanes) * lanes
    args = [x.data, out.data, to.weights, x.stride, out.stride, width]
    g.tape.op(f"{name}_sum", spec(moe.combine, used=to.used), args, g.units(TOKENS))


def _product(
    g: GraphBuilder,
    name: str,
    w: Matrix,
    x: QuantizedActivation,
    out: Activation,
    to: Routing,
    epilogue: gemm.Epilogue,
    units: np.ndarray,
    share: int,
) -> None:
    g.before_experts(w, to.lists, units, share)
    form = w.format
    rows = x.forms[w.activation(g.target)]
    x_bytes = w.depth // 32 * BLOCK_BYTES if form.quantized else 4 * rows.stride
    needs = gemm_k.scratch_bytes(form.name, w.depth, g.target.lanes) if form.family == "k" else 64
    args = [w.panels, rows.data, out.data, x_bytes, out.stride, w.units, *to.lists,
            g.scratch("unpack", needs)]  # fmt: skip
    sizes = {"fmt": form.name, "epilogue": epilogue, "blocks": w.blocks, "share": share,
             "per_block_scale": w.per_block_scale, **g.register_tiles}  # fmt: skip
    mode, chunk = (STATIC, 1) if g.decode else (DYNAMIC, max(1, w.units // CHUNKS))
    g.tape.op(name, spec(moe.gemm_experts, **sizes), args, units, mode=mode, chunk=chunk)


def _own(g: GraphBuilder, name: str, count: int, dtype: type = np.float32) -> PerThread:
    threads = range(g.tape.threads)
    return PerThread([g.buffers.get(f"{name}.{t}", 1, count, dtype) for t in threads])


def _counting(count: int) -> np.ndarray:
    """0, 1, 2, … as int32."""
    numbers = aligned(count, np.int32)
    numbers[:] = np.arange(count)
    return numbers
