"""Qwen3 with a mixture of experts in place of the SwiGLU.

h = rmsnorm(x),  p = softmax(W_router h),  T = the k most likely experts
x = x + sum over T of p_e / (sum of p over T) * W_down,e (silu(W_gate,e h) * W_up,e h)
"""

from __future__ import annotations

from .experts import Mixture


class Qwen3MoE(Mixture):
    """The architecture `qwen3moe`."""

    architecture = "qwen3moe"
    qk_norm = "heads"
