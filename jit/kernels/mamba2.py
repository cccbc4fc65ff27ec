"""Mamba-2: a head's state S [N, P], which decays and adds each token.

    D' = softplus(dt' + dt),   S = e^(D' A) S + B (D' x)^T,   y = S^T C + D x
    out = rmsnorm over each group of (y silu(z)) * w

x, B, C are the rows of a convolution: x of all heads (P values each), B and C of all groups (N
values each); head r reads group r div (heads / groups). A and D are one number for each head.
How S lies and how tokens pass through it: `state_tile.py`. Source: Dao and Gu, arXiv:2405.21060.
"""

from __future__ import annotations

import numpy as np

from ..simd import F32, I64, F32s, I64s, Kernel, Ptr, Value, f32, kernel
from .batch import COUNT, FIRST, STATE_FROM, STATE_TO, TABLE, TILE_SLOTS
from .mathlib import silu, softplus
from .state_tile import TOKENS, WIDTH, StateTile, columns, decay, lanes_of


def scratch_bytes() -> int:
    """Return the bytes of scratch that one thread needs."""
    return 4 * 2 * TOKENS


@kernel
def mamba2(
    k: Kernel,
    u: F32s,
    step: F32s,
    a: F32s,
    dt: F32s,
    skip: F32s,
    out: F32s,
    u_stride: I64,
    step_stride: I64,
    out_stride: I64,
    pages: I64s,
    offset: I64,
    runs: I64s,
    scratch: F32s,
    *,
    heads: int,
    head_dim: int,
    groups: int,
    state_dim: int,
) -> None:
    """Run Mamba-2; unit = (run, head), head fastest. runs: as in `batch.py`.

    u float32 [rows, u_stride]: x, B, C; step [rows, step_stride]: dt' of each head; a, dt, skip
    [heads]: A, dt, D; out [rows, out_stride]: y, not gated yet; offset: float32 values of a state
    before this layer's S of all heads.
    """
    n, p = state_dim, head_dim
    decays, steps = scratch.at(0), scratch.at(TOKENS)
    lanes = lanes_of(k)
    with k.units() as unit:
        run, head = runs.at(unit // heads * TILE_SLOTS), unit % heads
        group = head // (heads // groups)
        table = pages.at(run.load(TABLE))
        first, count = run.load(FIRST), run.load(COUNT)
        own = (offset + head * (n * p)) * 4
        source, target = (table.load(entry) + own for entry in (STATE_FROM, STATE_TO))
        through = skip.load(head).splat(lanes)
        with k.range(0, count, step=TOKENS, name="block") as at:
            tokens = (count - at).min(TOKENS)
            begin = first + at
            with k.range(0, tokens, name="prepare") as t:
                size = softplus(k, step.load((begin + t) * step_stride + head) + dt.load(head))
                steps.store(t, size)
                decays.store(t, decay(k, size * a.load(head)))
            here = at.eq(0).select(source, target)
            inputs = u.at(heads * p + group * n)
            with k.range(0, p // WIDTH, name="tile") as tile:
                values = u.at(head * p + tile * WIDTH)
                outs = out.at(head * p + tile * WIDTH)

                def added(
                    t: Value, _: list[Value], values: Ptr = values, begin: Value = begin
                ) -> list[Value]:
                    row, size = values.at((begin + t) * u_stride), steps.splat(t, lanes)
                    return [row.load(c, lanes) * size for c in columns(k)]

                def write(
                    t: Value,
                    found: list[Value],
                    values: Ptr = values,
                    outs: Ptr = outs,
                    begin: Value = begin,
                ) -> None:
                    row, x = outs.at((begin + t) * out_stride), values.at((begin + t) * u_stride)
                    for c, y in zip(columns(k), found, strict=True):
                        row.store(c, k.fma(x.load(c, lanes), through, y))

                part = tile * (n * WIDTH * 4)
                StateTile(k, n, here + part, target + part).run(
                    tokens,
                    lambda t: decays.load(t),
                    lambda t, begin=begin: inputs.at((begin + t) * u_stride),
                    lambda t, begin=begin: inputs.at((begin + t) * u_stride + groups * n),
                    added,
                    write,
                    recalls=False,
                )


@kernel
def gated_group_norm(
    k: Kernel,
    y: F32s,
    z: F32s,
    weight: F32s,
    y_stride: I64,
    z_stride: I64,
    eps: F32,
    *,
    groups: int,
    width: int,
) -> None:
    """Normalize groups of `width` values: y = rmsnorm(y silu(z)) * weight; unit = (row, group)."""
    lanes = lanes_of(k)
    with k.units() as unit:
        row, group = unit // groups, unit % groups
        target = y.at(row * y_stride + group * width)
        gate, scale = z.at(row * z_stride + group * width), weight.at(group * width)
        total = k.var(k.zeros(f32, lanes))
        with k.range(0, width, step=lanes) as i:
            value = target.load(i, lanes) * silu(k, gate.load(i, lanes))
            total.set(k.fma(value, value, total.value))
            target.store(i, value)
        wide = (1.0 / (total.value.hsum() * (1.0 / width) + eps).sqrt()).splat(lanes)
        with k.range(0, width, step=lanes) as i:
            target.store(i, target.load(i, lanes) * wide * scale.load(i, lanes))


def reference(
    u: np.ndarray,
    step: np.ndarray,
    a: np.ndarray,
    dt: np.ndarray,
    skip: np.ndarray,
    state: np.ndarray,
    *,
    groups: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute float64 y [rows, heads P], not gated, and the next S [heads, N, P]."""
    heads, n, p = state.shape
    u, state = u.astype(np.float64), state.astype(np.float64)
    out, group = np.empty((len(u), heads, p)), np.arange(heads) // (heads // groups)
    for t, row in enumerate(u):
        x = row[: heads * p].reshape(heads, p)
        b, c = (y.reshape(groups, n)[group] for y in np.split(row[heads * p :], 2))
        size = np.logaddexp(0.0, step[t].astype(np.float64) + dt)
        state = (
            np.exp(size * a)[:, None, None] * state + b[:, :, None] * (size[:, None] * x)[:, None]
        )
        out[t] = np.einsum("hnp,hn->hp", state, c) + skip[:, None] * x
    return out.reshape(len(u), -1), state


def gated_group_norm_reference(
    y: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float, groups: int
) -> np.ndarray:
    """Normalize by group: y, z [rows, width] -> float64 of the same shape."""
    y, z = y.astype(np.float64), z.astype(np.float64)
    parts = (y * z / (1 + np.exp(-z))).reshape(len(y), groups, -1)
    normed = parts / np.sqrt((parts * parts).mean(-1, keepdims=True) + eps)
    return normed.reshape(y.shape) * weight
