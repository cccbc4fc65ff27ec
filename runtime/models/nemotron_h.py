"""Nemotron H and Nemotron 3 Nano: blocks of one half each, Mamba-2, attention or feed-forward.

x = x + W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h          (no KV heads, no FFN width)
x = x + W_o attend(W_q h, W_k h, W_v h)   without positions            (KV heads)
x = x + W_down relu(W_up h)^2                                          (an FFN width)
x = x + sum over T of w_e W_down,e relu(W_up,e h)^2 + shared(h),  h = rmsnorm(x)   (with experts)

How experts are chosen: `experts.py`; the recurrence: `jit/kernels/mamba2.py`. transformers bounds
the time step from below by `time_step_min`; files have no key for that, and it is not done here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..forward import experts
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, AttentionSpec, padded
from ..weights.matrix import Matrix
from .blocks import Half
from .config import Config, read_config
from .decoder import Decoder, Name
from .experts import Mixture
from .mamba import MambaHalf, load_mamba
from .rotary import Rotation, frequencies


@dataclass(slots=True)
class SquaredFFN:
    """W_down relu(W_up h)^2."""

    norm: np.ndarray
    up: Matrix
    down: Matrix

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.up, self.down

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.up], "ffn_norm")
        y = g.matmul(self.up, h, "ffn_up")
        g.square(y, "ffn_square")
        g.add_matmul(x, self.down, g.quantize(y, [self.down], "ffn_ready"), "ffn_down")


@dataclass(slots=True)
class SquaredExperts:
    """Squared-ReLU experts, and one shared expert; up and down hold all of them."""

    norm: np.ndarray
    router: Matrix
    up: Matrix
    down: Matrix
    how: experts.RoutingSpec
    corrections: np.ndarray | None
    shared: tuple[Matrix, Matrix] | None

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return (self.router, self.up, self.down, *(self.shared or ()))

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.router, self.up, *(self.shared or ())[:1]], "ffn_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        to = experts.route(g, scores, self.how, self.up, self.down, corrections=self.corrections)
        y = experts.squared(g, self.up, h, to, "ffn_up")
        experts.add(g, x, self.down, g.quantize(y, [self.down], "ffn_ready"), to, "ffn_down")
        if self.shared:
            up, down = self.shared
            s = g.matmul(up, h, "shared_up")
            g.square(s, "shared_square")
            g.add_matmul(x, down, g.quantize(s, [down], "shared_ready"), "shared_down")


class NemotronH(Decoder):
    """The architecture `nemotron_h`, dense."""

    architecture = "nemotron_h"

    def read_rotations(self) -> list[Rotation]:
        """Return unused rotations: `rope.dimension_count` (84 of 128 in files) has no effect."""
        return [Rotation(frequencies(self.config.heads.head_dim, 10000.0))]

    def rule(self, layer: int) -> AttentionSpec:
        return replace(super().rule(layer), table=None)

    def load_recurrence(self, name: Name, layer: int) -> MambaHalf | None:
        c = self.config
        if c.ffns[layer]:
            return None
        norm = self.norm_weight(name("attn_norm.weight"))
        return load_mamba(self.gguf, self.weights, self.architecture, name, norm, c.width, c.eps)

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, ffn = self.config, self.weights, self.config.ffns[layer]
        return SquaredFFN(
            norm=self.norm_weight(name("attn_norm.weight")),
            up=w.matrix(name("ffn_up.weight"), ffn, c.width),
            down=w.matrix(name("ffn_down.weight"), c.width, ffn),
        )


class NemotronHMoE(NemotronH, Mixture):
    """The architecture `nemotron_h_moe`."""

    architecture = "nemotron_h_moe"
    understands = Mixture.understands
    gating = 2

    def read_config(self) -> Config:
        """Add experts, in the blocks that have a feed-forward width."""
        plain, sparse = read_config(self.gguf, self.architecture), super().read_config()
        pairs = zip(plain.ffns, sparse.ffns, strict=True)
        ffns = tuple(width if has else 0 for has, width in pairs)
        return replace(sparse, ffns=ffns, dense=sum(not width for width in ffns))

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, ffn = self.config, self.weights, self.config.ffns[layer]
        corrections = None
        if name("exp_probs_b.bias") in self.gguf.tensors:
            corrections = w.vector(name("exp_probs_b.bias"), c.experts, padded(c.experts))
        shared = None
        if name("ffn_up_shexp.weight") in self.gguf.tensors:
            key = f"{self.architecture}.expert_shared_feed_forward_length"
            rows = self.gguf.integer(key, low=1, high=1 << 22)
            shared = (
                w.matrix(name("ffn_up_shexp.weight"), rows, c.width),
                w.matrix(name("ffn_down_shexp.weight"), c.width, rows),
            )
        return SquaredExperts(
            norm=self.norm_weight(name("attn_norm.weight")),
            router=w.matrix(name("ffn_gate_inp.weight"), c.experts, c.width),
            up=w.matrix(name("ffn_up_exps.weight"), ffn, c.width, experts=c.experts),
            down=w.matrix(name("ffn_down_exps.weight"), c.width, ffn, experts=c.experts),
            how=self.how,
            corrections=corrections,
            shared=shared,
        )
