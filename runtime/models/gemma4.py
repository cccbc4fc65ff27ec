"""Gemma 4: heads of two shapes, layers that share keys and values, embeddings for each layer.

x = sqrt(width) E[token]
x = x + norm(W_o attend(norm(W_q h), norm(W_k h), norm(v))),  h = norm(x);  v = W_v h or W_k h
x = x + norm(W_down (gelu(W_gate h) * W_up h)),               h = norm(x)
x = s (x + norm(W_p (gelu(W_i x) * p)))
p = (sqrt(P) E_p[token] + norm(W x_0 / sqrt(width))) / sqrt(2)

Scores are not scaled, and values are normed without weights. Layers that see everything have wider
heads, of which the first quarter of the pairs is rotated (`rope_freqs` has 1e30 for the others).
The last layers have queries only, and read what the last one of their kind before them has stored.
p has P values for each layer, in the small models; the one with experts: `gemma4_parts.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..forward.graph import GraphBuilder
from ..forward.tensors import ALIGN, Activation, AttentionSpec
from ..weights.matrix import Matrix
from .blocks import Half
from .config import Config, read_config, read_heads, windowed_layers
from .decoder import Name
from .gemma3 import Gemma3
from .gemma4_parts import PER_LAYER, layer_scale, load_experts, load_per_layer
from .rotary import Rotation, plain_rotation, read_rotation


class Gemma4(Gemma3):
    """The architecture `gemma4`, text only.

    Attributes:
        own: P; 0 where layers have no embeddings of their own.
    """

    architecture = "gemma4"
    understands = Gemma3.understands - {"attention.scale"} | {
        "attention.key_length_swa",
        "attention.shared_kv_layers",
        "rope.dimension_count_swa",
        "expert_count",
        "expert_gating_func",
        "expert_weights_norm",
        "expert_weights_scale",
    }

    def read_config(self) -> Config:
        """Read the configuration: narrower heads of windowed layers, shared keys, and experts."""
        gguf, plain = self.gguf, read_config(self.gguf, "gemma4")
        slides = windowed_layers(gguf, "gemma4", plain.layers, self.period)
        usual = plain.heads.head_dim
        shapes = tuple(
            h and read_heads(gguf, "gemma4", h.heads, h.kv_heads, usual, "_swa" if near else "")
            for h, near in zip(plain.shapes, slides, strict=True)
        )
        shared = gguf.integer("gemma4.attention.shared_kv_layers", 0, high=plain.layers)
        first = plain.layers - shared
        last = {slides[n]: n for n in range(first)}  # of each kind, the last that stores its own
        sources = (*range(first), *(last.get(near, -1) for near in slides[first:]))
        if any(shapes[n] != shapes[source] or source < 0 for n, source in enumerate(sources)):
            gguf.refuse("gemma4.attention.shared_kv_layers", "no such layer could share its keys")
        experts = gguf.integer("gemma4.expert_count", 0, high=4096)
        used = gguf.integer("gemma4.expert_used_count", 0, high=min(64, experts)) if experts else 0
        return replace(plain, shapes=shapes, sources=sources, experts=experts, experts_used=used)

    def read_rotations(self) -> list[Rotation]:
        """Return one rotation for the heads of global layers, one for those with a window."""
        size = {
            near: h.head_dim for h, near in zip(self.config.shapes, self.slides, strict=True) if h
        }
        wide, near = (size.get(slides, self.config.heads.head_dim) for slides in (False, True))
        return [
            read_rotation(self.gguf, self.weights, "gemma4", wide),
            plain_rotation(self.gguf, "gemma4", near, 10000.0, "_swa"),
        ]

    def read_scales(self) -> None:
        super().read_scales()
        c, w = self.config, self.weights
        self.own = self.gguf.integer("gemma4.embedding_length_per_layer_input", 0, high=1 << 16)
        if self.own % ALIGN:
            key = "gemma4.embedding_length_per_layer_input"
            self.gguf.unsupported(key, f"= {self.own} must be a multiple of {ALIGN}")
        if self.own:
            name, rows = "per_layer_token_embd.weight", self.own * c.layers
            self.own_table = w.table(name, c.n_vocab, rows)
            self.own_format = w.format_of(name).name
            self.own_proj = w.matrix("per_layer_model_proj.weight", rows, c.width)
            self.own_norm = w.vector("per_layer_proj_norm.weight", self.own)

    def rule(self, layer: int) -> AttentionSpec:
        return replace(super().rule(layer), scale=1.0, norm_values=True)

    def values_are_keys(self, layer: int) -> bool:
        return f"blk.{layer}.attn_v.weight" not in self.gguf.tensors

    def load_ffn(self, name: Name, layer: int) -> Half:
        dense = self.load_gated(name, self.config.ffns[layer])
        dense.scale = 1.0 if self.own else layer_scale(self, name)
        return load_experts(self, name, dense) if self.config.experts else dense

    def load_last(self, name: Name, layer: int) -> Half | None:
        return load_per_layer(self, name, layer, self.own) if self.own else None

    def embed(self, g: GraphBuilder) -> Activation:
        x, c = super().embed(g), self.config
        if self.own:
            rows, root = self.own * c.layers, math.sqrt(self.own)
            g.embedding(self.own_table, self.own_format, rows, root, name=PER_LAYER)
            ready = g.quantize(x, [self.own_proj], "per_layer_in")
            y = g.matmul(self.own_proj, ready, "per_layer_model_proj")
            p = g.row(PER_LAYER, rows)
            # The norm of y / sqrt(width) is that of y with another eps.
            g.add_norms(p, y, self.own_norm, self.eps * c.width, "per_layer_inputs", 0.5**0.5)
        return x

    @property
    def matrices(self) -> list[Matrix]:
        return [*([self.own_proj] if self.own else []), *super().matrices]
