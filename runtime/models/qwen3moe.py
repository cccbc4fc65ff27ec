"""Qwen3 with a mixture of experts in place of the SwiGLU.

h = rmsnorm(x),  p = softmax(W_router h),  T = the k most likely experts
x = x + sum over T of p_e / (sum over T of p) * W_down,e (silu(W_gate,e h) * W_up,e h)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .. import experts
from ..gguf import GGUFFile
from ..graph import Graph, Row, padded
from ..weights import Matrix, WeightLoader
from .qwen3 import Config, Qwen3, read_config


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

    def forward(self, g: Graph, x: Row, eps: float) -> None:
        h = g.norm(x, self.norm, eps, (self.router, self.gate_up), "ffn_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        chosen = experts.route(g, scores, self.used, self.gate_up, self.down)
        y = experts.silu_mul(g, self.gate_up, h, chosen, "ffn_gate_up")
        experts.add(g, x, self.down, g.ready(y, [self.down], "ffn_ready"), chosen, "ffn_down")


class Qwen3MoE(Qwen3):
    """The architecture `qwen3moe`."""

    architecture = "qwen3moe"

    def read_config(self, gguf: GGUFFile) -> Config:
        """Adds how many experts there are, how many a token takes, and their width (as `ffn`)."""
        a = self.architecture
        count = gguf.integer(f"{a}.expert_count", low=1, high=4096)
        used = gguf.integer(f"{a}.expert_used_count", low=1, high=min(64, count))
        ffn = gguf.integer(f"{a}.expert_feed_forward_length", low=1, high=1 << 22)
        return replace(read_config(gguf, a), ffn=ffn, experts=count, experts_used=used)

    def load_feed_forward(self, weights: WeightLoader, name: Callable[[str], str]) -> Experts:
        c, n = self.config, self.config.experts
        return Experts(
            norm=weights.vector(name("ffn_norm"), c.width, padded(c.width)),
            router=weights.matrix(name("ffn_gate_inp"), n, c.width),
            gate_up=weights.gate_up(
                name("ffn_gate_exps"), name("ffn_up_exps"), c.ffn, c.width, experts=n
            ),
            down=weights.matrix(name("ffn_down_exps"), c.width, c.ffn, experts=n),
            used=c.experts_used,
        )
