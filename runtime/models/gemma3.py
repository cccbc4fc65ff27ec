"""Gemma 3: most layers see a window only; what leaves a half of a layer is normed, too.

x = sqrt(width) E[token]
x = x + rmsnorm(W_o attend(norm(W_q h), norm(W_k h), W_v h)),   h = rmsnorm(x)
x = x + rmsnorm(W_down (gelu(W_gate h) * W_up h)),              h = rmsnorm(x)

Five of six layers see the last `sliding_window` positions and rotate by a base of their own, every
sixth sees everything. The files' norm weights have the 1 that Gemma adds to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, AttentionSpec
from .blocks import Attention, Block, GatedFFN
from .decoder import Decoder, Name
from .rotary import Rotation, plain_rotation, read_rotation

GLOBAL, LOCAL = range(2)  # numbers of the rotations


@dataclass(slots=True, kw_only=True)
class GemmaFFN(GatedFFN):
    """The feed-forward half, and the norms of what leaves both halves."""

    post_attention: np.ndarray
    post_ffn: np.ndarray


class Gemma3(Decoder):
    """The architecture `gemma3`, without its eyes.

    Attributes:
        period: one layer of so many sees everything, unless a key says otherwise.
        layers_27b: of the size whose attention scale comes from its width; no key says so.
    """

    architecture = "gemma3"
    understands = frozenset(
        {
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attention.scale",
            "final_logit_softcapping",
        }
    )
    qk_norm = True
    period = 6
    layers_27b = 62

    def read_rotations(self) -> list[Rotation]:
        head_dim = self.config.heads.head_dim
        return [
            read_rotation(self.gguf, self.weights, "gemma3", head_dim),
            plain_rotation(self.gguf, "gemma3", head_dim, "freq_base_swa", 10000.0),
        ]

    def read_scales(self) -> None:
        self.embedding_scale = float(np.sqrt(np.float32(self.config.width)))
        self.cap = self._number("final_logit_softcapping")

    def rule(self, layer: int) -> AttentionSpec:
        c = self.config
        size = c.width // c.heads.heads if c.layers == self.layers_27b else c.heads.head_dim
        scale = self._number("attention.scale") or size**-0.5
        window = self.gguf.integer(f"{self.architecture}.attention.sliding_window", 0)
        if not window or not self._slides(layer):
            return AttentionSpec(scale, table=GLOBAL)
        return AttentionSpec(scale, table=LOCAL, window=window)

    def _slides(self, layer: int) -> bool:
        """Whether a layer sees a window only, by a period or layer by layer."""
        key = f"{self.architecture}.attention.sliding_window_pattern"
        value = self.gguf.metadata.get(key)
        if isinstance(value, np.ndarray):
            return bool(self.gguf.numbers(key, self.config.layers)[layer])  # pyright: ignore
        return (layer + 1) % self.gguf.integer(key, self.period, low=1) != 0

    def _number(self, key: str) -> float:
        """The number at a key; 0 stands for none."""
        return self.gguf.number(f"{self.architecture}.{key}", 0.0)

    def load_feed_forward(self, name: Name) -> GemmaFFN:
        plain = super().load_feed_forward(name)
        assert isinstance(plain, GatedFFN)
        return GemmaFFN(
            plain.norm,
            plain.gate_up,
            plain.down,
            "gelu",
            post_attention=self.norm_weight(name("post_attention_norm.weight")),
            post_ffn=self.norm_weight(name("post_ffw_norm.weight")),
        )

    def embed(self, g: GraphBuilder, *, replicated: bool = False) -> Activation:
        # Nothing but norms is added to x, and each thread can do that for itself.
        return super().embed(g, replicated=True)

    def block(self, g: GraphBuilder, x: Activation, w: Block) -> None:
        a, f, eps = w.attention, w.ffn, self.eps
        assert isinstance(a, Attention)
        assert isinstance(f, GemmaFFN)
        h = a.heads(g, x, eps)
        y = g.matmul(a.o, g.quantize(h, [a.o], "attn_ready"), "attn_output")
        g.add_norm(x, y, f.post_attention, eps, "post_attention")
        h = f.inner(g, x, eps)
        y = g.matmul(f.down, g.quantize(h, [f.down], "ffn_ready"), "ffn_down")
        g.add_norm(x, y, f.post_ffn, eps, "post_ffw")
