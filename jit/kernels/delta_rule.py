"""The gated delta rule: a head's memory S [d_k, d_v], corrected by each token (Qwen3-Next, 3.5).

    k = k' / sqrt(sum k'^2 + 1e-6),   q = q' / sqrt(sum q'^2 + 1e-6) / sqrt(d_k)
    a = e^(A softplus(alpha + dt)),   beta = sigmoid(b)
    S = a S,   S = S + k (beta (v - S^T k))^T,   o = S^T q
    y = o / sqrt(mean(o^2) + eps) * w * silu(z)

q', k', v are the rows of a convolution, in this order: q' and k' of `key_heads`, v of
`value_heads`. Value head r reads key head r mod G, or r div (R / G) where heads are not `tiled`.
How S lies and how tokens pass through it: `state_tile.py`. Source: Gated Delta Networks, Yang,
Kautz and Hatamizadeh, arXiv:2412.06464.
"""

from __future__ import annotations

import numpy as np

from ..simd import F32, I64, F32s, I64s, Kernel, Ptr, Value, f32, kernel
from .batch import COUNT, FIRST, STATE_FROM, STATE_TO, TABLE, TILE_SLOTS
from .mathlib import sigmoid, silu, softplus
from .state_tile import TOKENS, WIDTH, StateTile, columns, decay, lanes_of

L2_EPS = 1e-6


def scratch_bytes(key_dim: int) -> int:
    """Return the bytes of scratch that one thread needs."""
    return 4 * TOKENS * (2 * key_dim + 2)


@kernel
def delta_rule(
    k: Kernel,
    u: F32s,
    z: F32s,
    alpha: F32s,
    beta: F32s,
    a: F32s,
    dt: F32s,
    weight: F32s,
    out: F32s,
    u_stride: I64,
    z_stride: I64,
    gate_stride: I64,
    out_stride: I64,
    pages: I64s,
    offset: I64,
    runs: I64s,
    scratch: F32s,
    eps: F32,
    *,
    key_dim: int,
    value_dim: int,
    key_heads: int,
    value_heads: int,
    tiled: bool = True,
    paired: bool = False,
) -> None:
    """Run the gated delta rule; unit = (run, value head), head fastest. runs: as in `batch.py`.

    u float32 [rows, u_stride]: q', k', v; z [rows, z_stride]; alpha, beta [rows, gate_stride]: b is
    in `beta`; a, dt [value_heads]; weight [value_dim]; out [rows, out_stride]; offset: float32
    values of a state before this layer's S of all heads. `paired`: alpha and beta are one array
    with, for each key head, the b of its value heads and then their alpha.
    """
    dk, dv, group = key_dim, value_dim, value_heads // key_heads
    keys, queries = scratch.at(0), scratch.at(TOKENS * dk)
    decays, rates = scratch.at(TOKENS * 2 * dk), scratch.at(TOKENS * (2 * dk + 1))
    with k.units() as unit:
        run, head = runs.at(unit // value_heads * TILE_SLOTS), unit % value_heads
        from_head = head % key_heads if tiled else head // group
        b_at = from_head * (2 * group) + head % group if paired else head
        a_at = b_at + group if paired else head
        table = pages.at(run.load(TABLE))
        first, count = run.load(FIRST), run.load(COUNT)
        own = (offset + head * (dk * dv)) * 4
        source, target = (table.load(entry) + own for entry in (STATE_FROM, STATE_TO))
        with k.range(0, count, step=TOKENS, name="block") as at:
            tokens = (count - at).min(TOKENS)
            begin = first + at
            with k.range(0, tokens, name="prepare") as t:
                row = u.at((begin + t) * u_stride + from_head * dk)
                _normed(k, row, queries.at(t * dk), dk, dk**-0.5)
                _normed(k, row.at(key_heads * dk), keys.at(t * dk), dk, 1.0)
                gates = (begin + t) * gate_stride
                step = softplus(k, alpha.load(gates + a_at) + dt.load(head))
                decays.store(t, decay(k, step * a.load(head)))
                rates.store(t, sigmoid(k, beta.load(gates + b_at)))
            here = at.eq(0).select(source, target)
            with k.range(0, dv // WIDTH, name="tile") as tile:
                values = u.at(2 * key_heads * dk + head * dv + tile * WIDTH)
                outs = out.at(head * dv + tile * WIDTH)

                def added(
                    t: Value, recalled: list[Value], values: Ptr = values, begin: Value = begin
                ) -> list[Value]:
                    row, rate = values.at((begin + t) * u_stride), rates.splat(t, lanes_of(k))
                    v = [row.load(n, lanes_of(k)) for n in columns(k)]
                    return [(x - m) * rate for x, m in zip(v, recalled, strict=True)]

                def write(
                    t: Value, found: list[Value], outs: Ptr = outs, begin: Value = begin
                ) -> None:
                    row = outs.at((begin + t) * out_stride)
                    for n, value in zip(columns(k), found, strict=True):
                        row.store(n, value)

                part = tile * (dk * WIDTH * 4)
                StateTile(k, dk, here + part, target + part).run(
                    tokens,
                    lambda t: decays.load(t),
                    lambda t: keys.at(t * dk),
                    lambda t: queries.at(t * dk),
                    added,
                    write,
                    recalls=True,
                )
            with k.range(0, tokens, name="norm") as t:
                row = out.at((begin + t) * out_stride + head * dv)
                gate = z.at((begin + t) * z_stride + head * dv)
                _gated_norm(k, row, gate, weight, dv, eps)


def _square_sum(k: Kernel, row: Ptr, width: int) -> Value:
    lanes = lanes_of(k)
    sums = [k.zeros(f32, lanes) for _ in range(4)]
    for n, at in enumerate(range(0, width, lanes)):
        x = row.load(at, lanes)
        sums[n % 4] = k.fma(x, x, sums[n % 4])
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])).hsum()


def _normed(k: Kernel, row: Ptr, to: Ptr, width: int, scale: float) -> None:
    """Compute scale * row / its length."""
    lanes = lanes_of(k)
    inverse = (scale / (_square_sum(k, row, width) + L2_EPS).sqrt()).splat(lanes)
    for at in range(0, width, lanes):
        to.store(at, row.load(at, lanes) * inverse)


def _gated_norm(k: Kernel, row: Ptr, gate: Ptr, weight: Ptr, width: int, eps: Value) -> None:
    """Compute rmsnorm(row) * weight * silu(gate), in place."""
    lanes = lanes_of(k)
    inverse = 1.0 / (_square_sum(k, row, width) * (1.0 / width) + eps).sqrt()
    wide = inverse.splat(lanes)
    for at in range(0, width, lanes):
        y = row.load(at, lanes) * wide * weight.load(at, lanes)
        row.store(at, y * silu(k, gate.load(at, lanes)))


def stored(state: np.ndarray) -> np.ndarray:
    """Flatten S [heads, d_k, d_v] into its memory layout."""
    heads, dk, dv = state.shape
    return state.reshape(heads, dk, dv // WIDTH, WIDTH).transpose(0, 2, 1, 3).ravel()


def reference(
    u: np.ndarray,
    z: np.ndarray,
    alpha: np.ndarray,
    b: np.ndarray,
    a: np.ndarray,
    dt: np.ndarray,
    weight: np.ndarray,
    state: np.ndarray,
    eps: float,
    *,
    key_heads: int,
    tiled: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute float64 y [rows, R d_v] and the next S [R, d_k, d_v]; alpha, b [rows, R], z as y."""
    heads, dk, dv = state.shape
    u, z, state = u.astype(np.float64), z.astype(np.float64), state.astype(np.float64)
    out = np.empty((len(u), heads, dv))
    chosen = np.arange(heads) % key_heads if tiled else np.arange(heads) // (heads // key_heads)
    for t, row in enumerate(u):
        q, key = (x.reshape(key_heads, dk)[chosen] for x in np.split(row[: 2 * key_heads * dk], 2))
        q, key = (x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS) for x in (q, key))
        v = row[2 * key_heads * dk :].reshape(heads, dv)
        decay = np.exp(a * np.logaddexp(0.0, alpha[t].astype(np.float64) + dt))
        rate = 1 / (1 + np.exp(-b[t].astype(np.float64)))
        state = state * decay[:, None, None]
        wrong = rate[:, None] * (v - np.einsum("hkv,hk->hv", state, key))
        state = state + key[:, :, None] * wrong[:, None, :]
        o = np.einsum("hkv,hk->hv", state, q) * dk**-0.5
        out[t] = o / np.sqrt((o * o).mean(-1, keepdims=True) + eps) * weight
    gate = z.reshape(out.shape)
    return (out * gate / (1 + np.exp(-gate))).reshape(len(u), -1), state
