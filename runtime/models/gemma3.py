"""Gemma 3: sliding-window attention in most layers; norms also after each half of a layer.

x = sqrt(width) E[token]
x = x + rmsnorm(W_o attend(norm(W_q h), norm(W_k h), W_v h)),   h = rmsnorm(x)
x = x + rmsnorm(W_down (gelu(W_gate h) * W_up h)),              h = rmsnorm(x)

Five of six layers see the last `sliding_window` positions and rotate by a base of their own, every
sixth sees everything. The files' norm weights have the 1 that Gemma adds to them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..forward.tensors import AttentionSpec
from .decoder import Decoder


class Gemma3(Decoder):
    """The architecture `gemma3`, text only.

    Attributes:
        layers_27b: of the size whose attention scale comes from its width; no key says so.
    """

    architecture = "gemma3"
    understands = frozenset(
        {
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attention.scale",
            "final_logit_softcapping",
        }
    )
    qk_norm = "heads"
    post_norm = True
    gate = "gelu"
    period = 6
    near_base = 10000.0
    layers_27b = 62

    def read_scales(self) -> None:
        self.embedding_scale = float(np.sqrt(np.float32(self.config.width)))
        self.cap = self.number("final_logit_softcapping")

    def rule(self, layer: int) -> AttentionSpec:
        c = self.config
        size = c.width // c.heads.heads if c.layers == self.layers_27b else c.heads.head_dim
        return replace(super().rule(layer), scale=self.number("attention.scale") or size**-0.5)

    def number(self, key: str) -> float:
        """Return the number at a key; 0 for none."""
        return self.gguf.number(f"{self.architecture}.{key}", 0.0)
