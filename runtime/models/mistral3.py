"""Ministral 3: Llama's equations, with queries scaled up with their position.

q = (1 + a ln(1 + floor(p / c))) rope(W_q h),  c the context that it was trained with first

Its YaRN has a log multiplier, which takes back what YaRN multiplies cos and sin by.
"""

from __future__ import annotations

from dataclasses import replace

from ..forward.tensors import AttentionSpec, Temperature
from .llama import Llama


class Mistral3(Llama):
    """The architecture `mistral3`, text only."""

    architecture = "mistral3"
    understands = Llama.understands | {
        "attention.temperature_scale",
        "rope.scaling.yarn_log_multiplier",
    }

    def rule(self, layer: int) -> AttentionSpec:
        rate = self.gguf.number("mistral3.attention.temperature_scale", 0.0)
        if not rate:
            return super().rule(layer)
        step = self.gguf.integer("mistral3.rope.scaling.original_context_length", low=1)
        return replace(super().rule(layer), temperature=Temperature(rate, step))
