"""gpt-oss: attention sinks, windows in every other layer, experts with clamps and biases.

x = x + W_o attend(W_q h + b_q, W_k h + b_k, W_v h + b_v) + b_o,   h = rmsnorm(x)
x = x + sum over T of w_e (W_down,e y_e + b_down,e),               h = rmsnorm(x)
y = g sigmoid(1.702 g) (u + 1),  g = min(W_gate h + b, 7),  u = W_up h + b between -7 and 7

T are the k experts with the largest W_router h + b, w the softmax over those. A head's sink is a
score without a value. YaRN's range is not rounded to whole pairs, as the model's own code and
transformers have it; llama.cpp rounds, and no key says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..forward import experts
from ..forward.experts import RoutingSpec
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, padded
from ..weights.matrix import Matrix
from .blocks import Half
from .decoder import Name
from .experts import KEYS, Mixture

ALPHA, LIMIT = 1.702, 7.0


@dataclass(slots=True)
class BoundedExperts(Half):
    """A layer's clamped experts; router_bias: float32 [experts]; biases: a row per expert."""

    norm: np.ndarray
    router: Matrix
    gate: Matrix
    up: Matrix
    down: Matrix
    how: RoutingSpec
    router_bias: np.ndarray
    biases: tuple[np.ndarray, np.ndarray]
    down_biases: np.ndarray

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.router, self.gate, self.up], "ffn_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        to = experts.route(g, scores, self.how, self.gate, self.down, biases=self.router_bias)
        both = self.gate, self.up
        y = experts.clamped(g, both, self.biases, h, to, ALPHA, LIMIT, "ffn_gate_up")
        ready = g.quantize(y, [self.down], "ffn_ready")
        experts.add(g, x, self.down, ready, to, "ffn_down", self.down_biases)


class GptOss(Mixture):
    """The architecture `gpt-oss`."""

    architecture = "gpt-oss"
    understands = KEYS | {"attention.sliding_window", "attention.sliding_window_pattern"}
    ffn_norm = "post_attention_norm.weight"
    yarn_pairs = False
    period = 2

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, n, f = self.config, self.weights, self.config.experts, self.config.ffns[layer]

        def matrix(part: str, rows: int, depth: int) -> Matrix:
            return w.matrix(name(f"ffn_{part}_exps.weight"), rows, depth, experts=n)

        def biases(part: str, width: int) -> np.ndarray:
            return w.array(name(f"ffn_{part}_exps.bias"), (n, width), padded(width))

        return BoundedExperts(
            norm=self.norm_weight(name(self.ffn_norm)),
            router=w.matrix(name("ffn_gate_inp.weight"), n, c.width),
            gate=matrix("gate", f, c.width),
            up=matrix("up", f, c.width),
            down=matrix("down", c.width, f),
            how=self.how,
            router_bias=w.vector(name("ffn_gate_inp.bias"), n, padded(n)),
            biases=(biases("gate", f), biases("up", f)),
            down_biases=biases("down", c.width),
        )
