"""Qwen3 with a mixture of experts in place of the SwiGLU.

h = rmsnorm(x),  p = softmax(W_router h),  T = the k most likely experts
x = x + sum over T of p_e / (sum over T of p) * W_down,e (silu(W_gate,e h) * W_up,e h)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..forward import experts
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation
from ..weights.loader import Matrix
from .config import Config
from .decoder import Name
from .qwen3 import Qwen3


@dataclass(slots=True)
class Experts:
    """One layer's experts, of which each token takes `used`; gate_up and down hold all of them."""

    norm: np.ndarray
    router: Matrix
    gate_up: Matrix
    down: Matrix
    used: int

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.router, self.gate_up, self.down

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, (self.router, self.gate_up), "ffn_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        chosen = experts.route(g, scores, self.used, self.gate_up, self.down)
        y = experts.silu_mul(g, self.gate_up, h, chosen, "ffn_gate_up")
        experts.add(g, x, self.down, g.quantize(y, [self.down], "ffn_ready"), chosen, "ffn_down")


class Qwen3MoE(Qwen3):
    """The architecture `qwen3moe`."""

    architecture = "qwen3moe"
    understands = frozenset({"expert_count"})

    def read_config(self) -> Config:
        """Adds how many experts there are, how many a token takes, and their width (as `ffn`)."""
        a = self.architecture
        count = self.gguf.integer(f"{a}.expert_count", low=1, high=4096)
        used = self.gguf.integer(f"{a}.expert_used_count", low=1, high=min(64, count))
        ffn = self.gguf.integer(f"{a}.expert_feed_forward_length", low=1, high=1 << 22)
        return replace(super().read_config(), ffn=ffn, experts=count, experts_used=used)

    def load_feed_forward(self, name: Name) -> Experts:
        c, n, w = self.config, self.config.experts, self.weights
        gate, up = name("ffn_gate_exps.weight"), name("ffn_up_exps.weight")
        return Experts(
            norm=self.norm_weight(name("ffn_norm.weight")),
            router=w.matrix(name("ffn_gate_inp.weight"), n, c.width),
            gate_up=w.gate_up(gate, up, c.ffn, c.width, experts=n),
            down=w.matrix(name("ffn_down_exps.weight"), c.width, c.ffn, experts=n),
            used=c.experts_used,
        )
