"""Qwen3, dense: queries and keys are normed head by head before they are rotated.

x = x + W_o attend(norm(W_q h), norm(W_k h), W_v h),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),              h = rmsnorm(x)

(With experts: `qwen3moe.py`.)
"""

from __future__ import annotations

from .decoder import Decoder


class Qwen3(Decoder):
    """The architecture `qwen3`."""

    architecture = "qwen3"
    qk_norm = "heads"
