"""Nemotron H: blocks of one half each, Mamba-2, attention or feed-forward.

x = x + W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h          (no KV heads, no FFN width)
x = x + W_o attend(W_q h, W_k h, W_v h)   without positions            (KV heads)
x = x + W_down relu(W_up h)^2,            h = rmsnorm(x)               (an FFN width)

With experts: `nemotron_h_moe.py`; the recurrence: `jit/kernels/mamba2.py`. transformers bounds the
time step from below by `time_step_min`; files have no key for that, and it is not done here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, AttentionSpec
from ..weights.matrix import Matrix
from .blocks import Half
from .decoder import Decoder, Name
from .mamba import MambaHalf, load_mamba
from .rotary import Rotation, frequencies


@dataclass(slots=True)
class SquaredFFN(Half):
    """A feed-forward half with squared ReLU: W_down relu(W_up h)^2."""

    norm: np.ndarray
    up: Matrix
    down: Matrix

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.up], "ffn_norm")
        y = g.matmul(self.up, h, "ffn_up")
        g.square(y, "ffn_square")
        g.add_matmul(x, self.down, g.quantize(y, [self.down], "ffn_ready"), "ffn_down")


class NemotronH(Decoder):
    """The architecture `nemotron_h`, dense."""

    architecture = "nemotron_h"

    def read_rotations(self) -> list[Rotation]:
        """Return a placeholder rotation: no layer rotates, whatever `rope.dimension_count` is."""
        return [Rotation(frequencies(self.config.heads.head_dim, 10000.0))]

    def rule(self, layer: int) -> AttentionSpec:
        return replace(super().rule(layer), table=None)

    def load_recurrence(self, name: Name, layer: int) -> MambaHalf | None:
        return None if self.config.ffns[layer] else load_mamba(self, name)

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, ffn = self.config, self.weights, self.config.ffns[layer]
        return SquaredFFN(
            norm=self.norm_weight(name("attn_norm.weight")),
            up=w.matrix(name("ffn_up.weight"), ffn, c.width),
            down=w.matrix(name("ffn_down.weight"), c.width, ffn),
        )
