"""A short causal convolution of each channel; its last inputs are the state of a sequence.

    y[t] = f(b + sum over j < n of w[j] u[t - n + 1 + j])

f is silu or nothing, b a bias or nothing. What came before a sequence's first token counts as 0.
With `gated`, a row holds three parts B, C and x of all channels each, and

    u = B x,  y[t] = C[t] (sum over j of w[j] u[t - n + 1 + j])                     (LFM2)

The state is u of the last n - 1 tokens: float32 [n - 1, channels], the oldest first.
"""

from __future__ import annotations

import math

import numpy as np

from ..simd import I64, F32s, I64s, Kernel, Value, f32, kernel
from .batch import COUNT, FIRST, STATE_FROM, STATE_TO, TABLE, TILE_SLOTS
from .mathlib import silu

MAX_CHANNELS = 64  # channels of a unit: their last inputs and weights stay in registers


def block_of(channels: int) -> int:
    """Return the number of channels of a work unit; `channels` must be a multiple of 16."""
    block = math.gcd(channels, MAX_CHANNELS)
    assert block % 16 == 0, f"{channels} channels are not a multiple of 16"
    return block


def units_of(channels: int) -> int:
    """Return the number of work units of each sequence in a pass."""
    return channels // block_of(channels)


@kernel
def short_conv(
    k: Kernel,
    x: F32s,
    weight: F32s,
    bias: F32s,
    out: F32s,
    x_stride: I64,
    out_stride: I64,
    pages: I64s,
    offset: I64,
    runs: I64s,
    *,
    channels: int,
    taps: int,
    activation: bool = False,
    has_bias: bool = False,
    gated: bool = False,
) -> None:
    """Convolve channels; unit = (run, block of channels), block fastest. runs: as in `batch.py`.

    x float32 [rows, x_stride], weight [taps, channels], bias [channels], out [rows, out_stride];
    offset: float32 values of a state before this layer's part.
    """
    block = block_of(channels)
    lanes = min(k.lanes, block)
    blocks = channels // block
    with k.units() as unit:
        run = runs.at(unit // blocks * TILE_SLOTS)
        table = pages.at(run.load(TABLE))
        first, count = run.load(FIRST), run.load(COUNT)
        before, after = (
            k.pointer(table.load(entry), f32).at(offset) for entry in (STATE_FROM, STATE_TO)
        )
        for part in range(0, block, lanes):
            at = unit % blocks * block + part
            weights = [weight.load(at + j * channels, lanes) for j in range(taps)]
            start = bias.load(at, lanes) if has_bias else k.zeros(f32, lanes)
            past = [k.var(before.load(at + j * channels, lanes)) for j in range(taps - 1)]
            with k.range(first, first + count, name="row") as row:
                source = x.at(row * x_stride)
                new = source.load(at, lanes)
                if gated:
                    new = new * source.load(at + 2 * channels, lanes)
                inputs = [*(value.value for value in past), new]
                total: Value = start
                for value, w in zip(inputs, weights, strict=True):
                    total = k.fma(value, w, total)
                if activation:
                    total = silu(k, total)
                if gated:
                    total = total * source.load(at + channels, lanes)
                out.store(row * out_stride + at, total)
                for value, later in zip(past, inputs[1:], strict=True):
                    value.set(later)
            for j, value in enumerate(past):
                after.store(at + j * channels, value.value)


def reference(
    x: np.ndarray,
    weight: np.ndarray,
    state: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    activation: bool = False,
    gated: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Convolve x [rows, channels], thrice as wide if gated; weight [taps, channels]; state [taps -
    1, channels] -> float64 out [rows, channels] and the next state."""
    x = x.astype(np.float64)
    b, c, u = np.split(x, 3, axis=1) if gated else (1.0, 1.0, x)
    u = np.concatenate([state.astype(np.float64), b * u])
    taps, rows = len(weight), len(x)
    windows = np.stack([u[j : j + rows] for j in range(taps)])
    y = np.einsum("jrc,jc->rc", windows, weight.astype(np.float64))
    y = y + (0.0 if bias is None else bias)
    if activation:
        y = y / (1 + np.exp(-y))
    return c * y, u[rows:]
