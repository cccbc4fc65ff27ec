"""Parts of a layer only in Gemma 4: experts parallel to a dense half, and embeddings.

x = x + norm(norm_1(W_down (gelu(W_gate h) * W_up h)) + norm_2(sum over T of w_e f_e(h_2)))
    h = norm(x),  h_2 = norm'(x),  T, w: softmax(W_router (r * rmsnorm(x)) / sqrt(width)), times s_e
x = x + norm(W_p (gelu(W_i x) * p)),  p the token's own part for this layer
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..forward import experts
from ..forward.experts import RoutingSpec
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, padded
from ..weights.matrix import Matrix
from .blocks import GatedFFN, Half
from .decoder import Decoder, Name
from .experts import read_routing

PER_LAYER = "per_layer"  # the buffer of what all layers add of a token's own


@dataclass(slots=True)
class PerLayer(Half):
    """A layer's third part: it adds the gated per-layer embedding of the token.

    Attributes:
        number, layers: which part of `PER_LAYER` it takes, and of how many.
        scale: what x is multiplied by at its end.
    """

    number: int
    layers: int
    gate: Matrix
    proj: Matrix
    post_norm: np.ndarray
    scale: float

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        y = g.matmul(self.gate, g.quantize(x, [self.gate], "per_layer_x"), "per_layer_gate")
        own = g.row(PER_LAYER, self.layers * y.width).part(self.number * y.width, y.width)
        g.gelu_times(y, own, "per_layer_gelu")
        out = g.matmul(self.proj, g.quantize(y, [self.proj], "per_layer_ready"), "per_layer_proj")
        g.add_norm(x, out, self.post_norm, eps, "per_layer_post", self.scale)


@dataclass(slots=True)
class GemmaExperts(Half):
    """A dense half and experts in parallel, each normed, and their sum normed again.

    Attributes:
        dense: its `post_norm` is that of the sum.
        router_norm: r / sqrt(width); expert_norm: norm'; post_norms: norm_1 and norm_2.
        expert_scales: s_e.
    """

    dense: GatedFFN
    router: Matrix
    router_norm: np.ndarray
    gate_up: Matrix
    down: Matrix
    how: RoutingSpec
    expert_scales: np.ndarray
    expert_norm: np.ndarray
    post_norms: tuple[np.ndarray, np.ndarray]

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        dense = self.dense
        y = g.matmul(dense.down, dense.inner(g, x, eps), "ffn_down")
        h = g.norm(x, self.router_norm, eps, [self.router], "router_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        to = experts.route(
            g, scores, self.how, self.gate_up, self.down, expert_scales=self.expert_scales
        )
        h = g.norm(x, self.expert_norm, eps, [self.gate_up], "experts_norm")
        z = experts.gated(g, self.gate_up, h, to, "gelu", "experts_gate_up")
        ready = g.quantize(z, [self.down], "experts_ready")
        z = experts.total(g, self.down, ready, to, "experts_down")
        both = g.rmsnorm(y, self.post_norms[0], eps, "post_ffw_1")
        g.add_norm(both, z, self.post_norms[1], eps, "post_ffw_2")
        assert dense.post_norm is not None, "every layer has it"
        g.add_norm(x, both, dense.post_norm, eps, "post_ffw", dense.scale)


def load_experts(model: Decoder, name: Name, dense: GatedFFN) -> GemmaExperts:
    """Request a layer's experts, which run in parallel with `dense`."""
    c, w, gguf = model.config, model.weights, model.gguf
    ffn = gguf.integer("gemma4.expert_feed_forward_length", low=1, high=1 << 22)
    gate_up, gate, up = (name(f"ffn_{part}_exps.weight") for part in ("gate_up", "gate", "up"))
    return GemmaExperts(
        dense,
        router=w.matrix(name("ffn_gate_inp.weight"), c.experts, c.width),
        router_norm=model.norm_weight(name("ffn_gate_inp.scale")) / math.sqrt(c.width),
        gate_up=w.halves(gate_up, ffn, c.width, c.experts)
        if gate_up in gguf.tensors
        else w.gate_up(gate, up, ffn, c.width, c.experts),
        down=w.matrix(name("ffn_down_exps.weight"), c.width, ffn, experts=c.experts),
        how=read_routing(gguf, "gemma4", c.experts_used, 1, True),
        expert_scales=w.vector(name("ffn_down_exps.scale"), c.experts, padded(c.experts)),
        expert_norm=model.norm_weight(name("pre_ffw_norm_2.weight")),
        post_norms=(
            model.norm_weight(name("post_ffw_norm_1.weight")),
            model.norm_weight(name("post_ffw_norm_2.weight")),
        ),
    )


def load_per_layer(model: Decoder, name: Name, layer: int, own: int) -> PerLayer:
    """Request a layer's weights for its per-layer embedding of `own` values a token."""
    c, w = model.config, model.weights
    return PerLayer(
        layer,
        c.layers,
        gate=w.matrix(name("inp_gate.weight"), own, c.width),
        proj=w.matrix(name("proj.weight"), c.width, own),
        post_norm=model.norm_weight(name("post_norm.weight")),
        scale=layer_scale(model, name),
    )


def layer_scale(model: Decoder, name: Name) -> float:
    """Return the factor of x at the end of a layer; 1 if the file has none."""
    tensor = name("layer_output_scale.weight")
    return float(model.weights.vector(tensor, 1)[0]) if tensor in model.gguf.tensors else 1.0
