"""Qwen2 and Qwen2.5: queries, keys and values have biases.

x = x + W_o attend(W_q h + b_q, W_k h + b_k, W_v h + b_v),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),                    h = rmsnorm(x)
"""

from __future__ import annotations

from .decoder import Decoder


class Qwen2(Decoder):
    """The architecture `qwen2`; its biases are read wherever a file has them."""

    architecture = "qwen2"
