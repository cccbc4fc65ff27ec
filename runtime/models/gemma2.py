"""Gemma 2: a window in every other layer; soft-capped scores and logits.

x = sqrt(width) E[token]
x = x + rmsnorm(W_o attend(W_q h, W_k h, W_v h)),      h = rmsnorm(x),  scores c tanh(q k / c)
x = x + rmsnorm(W_down (gelu(W_gate h) * W_up h)),     h = rmsnorm(x)
logits = C tanh(W_out rmsnorm(x) / C)
"""

from __future__ import annotations

from dataclasses import replace

from ..forward.tensors import AttentionSpec
from .gemma3 import Gemma3


class Gemma2(Gemma3):
    """The architecture `gemma2`."""

    architecture = "gemma2"
    understands = Gemma3.understands | {"attn_logit_softcapping"}
    qk_norm = None
    period = 2
    near_base = None
    layers_27b = 46
    usual_window = 4096  # the first files have no key for it, nor for the bounds

    def read_scales(self) -> None:
        super().read_scales()
        self.cap = self.gguf.number("gemma2.final_logit_softcapping", 30.0)

    def rule(self, layer: int) -> AttentionSpec:
        cap = self.gguf.number("gemma2.attn_logit_softcapping", 50.0)
        return replace(super().rule(layer), cap=cap)
