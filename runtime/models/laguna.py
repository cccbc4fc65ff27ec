"""Laguna: per-layer head counts, a gate on each head, and a shared expert.

x = x + W_o (softplus(W_g h) * attend(norm(W_q h), norm(W_k h), W_v h)),   h = rmsnorm(x)
x = x + sum over T of w_e f_e(h) + shared(h),                              h = rmsnorm(x)

T are the k largest of sigmoid(W_router h) + c, w their sigmoids, normalized and scaled; the first
layers are dense. Every fourth layer, from the first on, sees everything and rotates half of a
head's dims, scaled by YaRN; the others see a window and rotate all, unscaled. A gate is for a head,
or for each of its dims.
"""

from __future__ import annotations

from .blocks import Attention
from .decoder import Name
from .experts import KEYS, Mixture


class Laguna(Mixture):
    """The architecture `laguna`."""

    architecture = "laguna"
    understands = KEYS | {
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "rope.dimension_count_swa",
    }
    qk_norm = "heads"
    period, whole = 4, 0
    near_base = 0.0
    gating = 2

    def load_attention(self, name: Name, layer: int) -> Attention:
        a, tensor = super().load_attention(name, layer), name("attn_gate.weight")
        assert isinstance(a, Attention), a
        h, info = a.rule.heads, self.gguf.tensors.get(tensor)
        assert h is not None, "every layer says its heads"
        each = info is not None and info.shape[0] == h.heads * h.head_dim
        rows = h.heads * (h.head_dim if each else 1)
        a.gate = self.weights.matrix(tensor, rows, self.config.width)
        return a
