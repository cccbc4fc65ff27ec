"""Llama 2 and 3, Mistral, SmolLM2 and other models with the same equations.

x = x + W_o attend(W_q h, W_k h, W_v h),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),  h = rmsnorm(x)

Its files have the rows of W_q and W_k rearranged, so that the dims that are rotated together lie
side by side; `rope_freqs.weight` stretches the slow rotations of Llama 3. Mistral's first models
see the last 4,096 positions only.
"""

from __future__ import annotations

from .decoder import Decoder


class Llama(Decoder):
    """The architecture `llama`."""

    architecture = "llama"
    understands = frozenset({"attention.sliding_window"})
    adjacent = True
    windowed = True
