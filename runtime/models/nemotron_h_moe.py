"""Nemotron 3 Nano: `nemotron_h.py` with experts in place of the feed-forward blocks.

x = x + sum over T of w_e W_down,e relu(W_up,e h)^2 + shared(h),  h = rmsnorm(x)

How experts are chosen: `experts.py`.
"""

from __future__ import annotations

from dataclasses import replace

from ..forward import experts
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, QuantizedActivation
from ..weights.matrix import Matrix
from .blocks import Half
from .config import Config, read_config
from .decoder import Name
from .experts import Experts, Mixture, Shared
from .nemotron_h import NemotronH


class SquaredExperts(Experts):
    """Experts with squared ReLU: W_up alone in place of gate and up."""

    def inner(self, g: GraphBuilder, h: QuantizedActivation, to: experts.Routing) -> Activation:
        return experts.squared(g, self.gate_up, h, to, "ffn_up")

    def shared_inner(self, g: GraphBuilder, w: Matrix, h: QuantizedActivation) -> Activation:
        y = g.matmul(w, h, "shared_up")
        g.square(y, "shared_square")
        return y


class NemotronHMoE(NemotronH, Mixture):
    """The architecture `nemotron_h_moe`."""

    architecture = "nemotron_h_moe"
    understands = Mixture.understands
    gating = 2

    def read_config(self) -> Config:
        """Read the configuration, with experts in the blocks that have a feed-forward width."""
        plain, sparse = read_config(self.gguf, self.architecture), super().read_config()
        pairs = zip(plain.ffns, sparse.ffns, strict=True)
        ffns = tuple(width if has else 0 for has, width in pairs)
        return replace(sparse, ffns=ffns, dense=sum(not width for width in ffns))

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, ffn = self.config, self.weights, self.config.ffns[layer]
        shared = None
        if name("ffn_up_shexp.weight") in self.gguf.tensors:
            key = f"{self.architecture}.expert_shared_feed_forward_length"
            rows = self.gguf.integer(key, low=1, high=1 << 22)
            shared = Shared(
                w.matrix(name("ffn_up_shexp.weight"), rows, c.width),
                w.matrix(name("ffn_down_shexp.weight"), c.width, rows),
            )
        return SquaredExperts(
            norm=self.norm_weight(name("attn_norm.weight")),
            router=w.matrix(name("ffn_gate_inp.weight"), c.experts, c.width),
            gate_up=w.matrix(name("ffn_up_exps.weight"), ffn, c.width, experts=c.experts),
            down=w.matrix(name("ffn_down_exps.weight"), c.width, ffn, experts=c.experts),
            how=self.how,
            corrections=self.load_corrections(name),
            shared=shared,
        )
