"""Mixtures of experts: their metadata, and their feed-forward half.

h = rmsnorm(x),  p = softmax(W_router h) or sigmoid(W_router h),  T = the k largest of p + c
x = x + sum over T of w_e * W_down,e (silu(W_gate,e h) * W_up,e h) + g * shared(h)

w_e = p_e, or p_e / (sum of p over T), times a scale. c corrects the choice alone, where a file has
it. Shared experts are for every token; g is 1, or sigmoid(w_g h) where a file has w_g.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...jit.kernels.moe import Gating
from ..forward import experts
from ..forward.experts import Routing, RoutingSpec
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, HeadShape, QuantizedActivation, padded
from ..gguf.file import GGUFFile
from ..weights.matrix import Matrix
from .blocks import Half, Part
from .config import Config, read_config
from .decoder import Decoder, Name

KEYS = frozenset(
    {
        "expert_count",
        "expert_shared_count",
        "expert_shared_feed_forward_length",
        "expert_gating_func",
        "expert_weights_norm",
        "expert_weights_scale",
        "expert_group_count",
        "leading_dense_block_count",
    }
)
"""Keys of `config.FEATURES` that a mixture honors."""

GATINGS: dict[int, Gating] = {1: "softmax", 2: "sigmoid", 3: "softmax"}
"""Gating functions by number; 3: softmax over the chosen, equal to softmax over all, normalized."""


@dataclass(slots=True)
class Shared(Part):
    """Shared experts, merged into one; gate: matrix [1, width], if their weight varies."""

    gate_up: Matrix
    down: Matrix
    gate: Matrix | None = None


@dataclass(slots=True)
class Experts(Half):
    """A layer's mixture of experts; gate_up and down hold all; corrections: c, if present."""

    norm: np.ndarray
    router: Matrix
    gate_up: Matrix
    down: Matrix
    how: RoutingSpec
    corrections: np.ndarray | None = None
    shared: Shared | None = None

    @property
    def _readers(self) -> list[Matrix]:
        """The matrices that read h."""
        shared = self.shared
        both = [shared.gate_up, shared.gate] if shared else []
        return [self.router, self.gate_up, *(matrix for matrix in both if matrix)]

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, self._readers, "ffn_norm")
        scores = g.matmul(self.router, h, "ffn_router")
        to = experts.route(
            g, scores, self.how, self.gate_up, self.down, corrections=self.corrections
        )
        y = self.inner(g, h, to)
        experts.add(g, x, self.down, g.quantize(y, [self.down], "ffn_ready"), to, "ffn_down")
        if self.shared:
            s = self.shared
            y = self.shared_inner(g, s.gate_up, h)
            ready = g.quantize(y, [s.down], "shared_ready")
            if s.gate is None:
                g.add_matmul(x, s.down, ready, "shared_down")
            else:
                score = g.matmul(s.gate, h, "shared_score", last=False)
                out = g.matmul(s.down, ready, "shared_down")
                experts.add_gated(g, x, out, score, "shared")

    def inner(self, g: GraphBuilder, h: QuantizedActivation, to: Routing) -> Activation:
        """Build the experts up to the inputs of W_down,e, and return these."""
        return experts.gated(g, self.gate_up, h, to, "silu", "ffn_gate_up")

    def shared_inner(self, g: GraphBuilder, w: Matrix, h: QuantizedActivation) -> Activation:
        """Build the shared experts up to the input of W_down, and return it."""
        return g.silu_mul(w, h, "shared_gate_up")


def read_routing(gguf: GGUFFile, a: str, used: int, gating: int, norm: bool) -> RoutingSpec:
    """Read how tokens are routed to experts; gating and norm: defaults where no key gives them.

    Raises:
        GGUFError: a key cannot be right.
        UnsupportedModelError: experts are chosen in a way that no kernel is for.
    """
    kind = gguf.integer(f"{a}.expert_gating_func", gating)
    if kind == 0:
        kind = gating
    if kind not in GATINGS:
        gguf.unsupported(f"{a}.expert_gating_func", f"= {kind} is not supported; supported: 1 to 3")
    count = gguf.integer(f"{a}.expert_count", low=1, high=4096)
    groups = max(1, gguf.integer(f"{a}.expert_group_count", 1, high=count))
    picked = gguf.integer(f"{a}.expert_group_used_count", groups, low=0, high=groups) or groups
    if count % groups:
        gguf.refuse(f"{a}.expert_group_count", f"{count} experts do not make {groups} groups")
    if used > count // groups * picked:
        gguf.refuse(
            f"{a}.expert_used_count", f"{picked} of {groups} groups have not {used} experts"
        )
    return RoutingSpec(
        used,
        GATINGS[kind],
        kind == 3 or gguf.boolean(f"{a}.expert_weights_norm", norm),
        gguf.number(f"{a}.expert_weights_scale", 0.0) or 1.0,
        groups,
        picked,
    )


class Mixture(Decoder):
    """The base of architectures with experts.

    Attributes:
        gating, normalized: the routing where no key gives it.
        how: the routing of this model.
    """

    understands = KEYS
    gating = 1
    normalized = True

    def read_config(self) -> Config:
        """Read the configuration, with number and width of experts and how many a token uses."""
        a, gguf = self.architecture, self.gguf
        plain = read_config(gguf, a, self.head_shape())
        count = gguf.integer(f"{a}.expert_count", low=1, high=4096)
        used = gguf.integer(f"{a}.expert_used_count", low=1, high=min(64, count))
        usual = plain.ffns[-1] or None
        width = gguf.integer(f"{a}.expert_feed_forward_length", usual, low=1, high=1 << 22)
        dense = gguf.integer(f"{a}.leading_dense_block_count", 0, high=plain.layers - 1)
        self.how = read_routing(gguf, a, used, self.gating, self.normalized)
        ffns = (*plain.ffns[:dense], *[width] * (plain.layers - dense))
        return replace(plain, ffns=ffns, experts=count, experts_used=used, dense=dense)

    def head_shape(self) -> HeadShape | None:
        """Return the head shape of all layers if the usual keys do not give it, else None."""
        return None

    def load_ffn(self, name: Name, layer: int) -> Half:
        c, w, ffn = self.config, self.weights, self.config.ffns[layer]
        if layer < c.dense:
            return self.load_gated(name, ffn)
        gate, up = name("ffn_gate_exps.weight"), name("ffn_up_exps.weight")
        return Experts(
            norm=self.norm_weight(name(self.ffn_norm)),
            router=w.matrix(name("ffn_gate_inp.weight"), c.experts, c.width),
            gate_up=w.gate_up(gate, up, ffn, c.width, experts=c.experts),
            down=w.matrix(name("ffn_down_exps.weight"), c.width, ffn, experts=c.experts),
            how=self.how,
            corrections=self.load_corrections(name),
            shared=self._load_shared(name, ffn),
        )

    def load_corrections(self, name: Name) -> np.ndarray | None:
        """Request the router's selection bias c, if the file has it: float32 [padded(experts)]."""
        n, tensor = self.config.experts, name("exp_probs_b.bias")
        return self.weights.vector(tensor, n, padded(n)) if tensor in self.gguf.tensors else None

    def _load_shared(self, name: Name, ffn: int) -> Shared | None:
        a, c, w = self.architecture, self.config, self.weights
        if name("ffn_up_shexp.weight") not in self.gguf.tensors:
            return None
        count = self.gguf.integer(f"{a}.expert_shared_count", 1, high=4096) or 1
        key = f"{a}.expert_shared_feed_forward_length"
        rows = self.gguf.integer(key, count * ffn, high=1 << 22) or count * ffn
        gate, up = (name(f"ffn_{part}_shexp.weight") for part in ("gate", "up"))
        varies = name("ffn_gate_inp_shexp.weight")
        return Shared(
            w.gate_up(gate, up, rows, c.width),
            w.matrix(name("ffn_down_shexp.weight"), c.width, rows),
            w.matrix(varies, 1, c.width) if varies in self.gguf.tensors else None,
        )
