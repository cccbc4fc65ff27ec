"""Phi-3, Phi-3.5 and Phi-4: one matrix for queries, keys and values, one for gate and up.

x = x + W_o attend(q, k, v),         q k v = W_qkv rmsnorm(x)
x = x + W_down (silu(gate) * up),  gate up = W_up rmsnorm(x)

Models for long contexts have two sets of rotary factors: one where the context that a model is
loaded with is no longer than the original one, one where it is. Of a head only the first
`rope.dimension_count` dims may be rotated.
"""

from __future__ import annotations

import numpy as np

from ..weights.matrix import Matrix
from .decoder import Decoder, Name
from .rotary import Rotation, long_and_short, read_rotation


class Phi3(Decoder):
    """The architecture `phi3`."""

    architecture = "phi3"
    understands = frozenset({"attention.sliding_window"})
    windowed = True

    def read_rotations(self) -> list[Rotation]:
        """Return one rotation for contexts longer than the original one, one for the others."""
        rotation = read_rotation(self.gguf, self.weights, "phi3", self.config.heads.head_dim)
        return list(long_and_short(self.gguf, self.weights, "phi3", rotation))

    def tables(self, positions: int, context: int) -> list[tuple[np.ndarray, np.ndarray]]:
        key = "phi3.rope.scaling.original_context_length"
        original = self.gguf.integer(key, self.config.context, low=1)
        long, short = self.rotations
        return [(long if context > original else short).tables(positions)]

    def gate_and_up(self, name: Name, rows: int) -> Matrix:
        return self.weights.halves(name("ffn_up.weight"), rows, self.config.width)
