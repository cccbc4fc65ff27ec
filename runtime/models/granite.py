"""Granite 3: Llama's equations with four scales.

x = e E[token]
x = x + r W_o attend(…),  scores a q k
x = x + r W_down (…)
logits = W_out rmsnorm(x) / s

The stream is kept as y = x / r: what is added to it needs no scale then, and since
rmsnorm(x) = y / sqrt(mean(y^2) + eps / r^2), the norms differ in their eps only. The logits' scale
is in the weights of the last norm.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..forward.tensors import AttentionSpec
from .decoder import Decoder


class Granite(Decoder):
    """The architecture `granite`."""

    architecture = "granite"
    understands = frozenset({"attention.scale", "embedding_scale", "residual_scale", "logit_scale"})
    adjacent = True

    def read_scales(self) -> None:
        residual = self._scale("residual_scale")
        self.embedding_scale = self._scale("embedding_scale") / residual
        self.eps = self.config.eps / residual**2
        self.logit_scale = self._scale("logit_scale")

    def norm_weight(self, name: str) -> np.ndarray:
        weight = super().norm_weight(name)
        return weight / self.logit_scale if name == self.last_norm else weight

    def rule(self, layer: int) -> AttentionSpec:
        plain = super().rule(layer)
        scale = self.gguf.number(f"{self.architecture}.attention.scale", 0.0)
        rotates = self.gguf.boolean(f"{self.architecture}.rope.scaling.finetuned", True)
        return replace(plain, scale=scale or plain.scale, table=0 if rotates else None)

    def _scale(self, key: str) -> float:
        """Return a scale; 0 means none, as in other engines."""
        value = self.gguf.number(f"{self.architecture}.{key}", 0.0) or 1.0
        if value < 0:
            self.gguf.refuse(f"{self.architecture}.{key}", f"{value} is not a scale")
        return value
