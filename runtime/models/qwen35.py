"""Qwen3.5 and 3.6, dense: three of four layers are a gated delta rule, the fourth attends.

x = x + W_o (attend(norm(q), norm(k), W_v h) * sigmoid(g)),  q g = W_q h     (every fourth layer)
x = x + W_out delta(conv(W_qkv h), W_z h, W_alpha h, W_beta h)               (the others)
x = x + W_down (silu(W_gate h) * W_up h),                                    h = rmsnorm(x)

`jit/kernels/conv.py` and `jit/kernels/delta_rule.py` have the recurrence. Files have the 1 that the
norms of x, q and k add to their weights, and value heads in such an order that head r reads key
head r mod G. Rotary sections make no difference to positions of text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..forward.graph import GraphBuilder
from ..forward.recurrent import DeltaRule, ShortConv, by_taps
from ..forward.tensors import Activation
from .blocks import Recurrence
from .config import Config, read_recurrence, refuse_odd_heads
from .decoder import Decoder, Name


@dataclass(slots=True)
class LinearAttention(Recurrence):
    """Linear attention by the gated delta rule, the first half of a layer.

    into: matrices of q k v, z, alpha and beta; or, last, one of both where they are `paired`.
    """

    kind: ClassVar[str] = "gated delta rule"
    work: ClassVar[int] = 7

    delta: DeltaRule

    @property
    def own_floats(self) -> int:
        return self.delta.state_floats

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, self.into, "attn_norm")
        names = ("linear_qkv", "linear_z", "linear_alpha", "linear_beta")
        named = zip(self.into, names, strict=False)
        qkv, z, alpha, *beta = (g.matmul(w, h, n, last=w is self.into[-1]) for w, n in named)
        u = self.conv.apply(g, qkv, "conv")
        y = self.delta.apply(g, u, z, alpha, beta[0] if beta else alpha, eps, "delta")
        g.add_matmul(x, self.out, g.quantize(y, [self.out], "linear_ready"), "linear_out")


class Qwen35(Decoder):
    """The architecture `qwen35`.

    Attributes:
        gates: matrices of alpha and beta, and the number of their rows for each value head.
    """

    architecture = "qwen35"
    understands = frozenset({"rope.dimension_sections"})
    qk_norm = "heads"
    gated = True
    ffn_norm = "post_attention_norm.weight"
    drafts_from = "normed"
    gates: ClassVar[dict[str, int]] = {"ssm_alpha": 1, "ssm_beta": 1}

    def read_config(self) -> Config:
        """Read the configuration; layers with a recurrent state have no head shape."""
        c = super().read_config()
        shapes = (None if self.is_recurrent(n, c.layers) else h for n, h in enumerate(c.shapes))
        return replace(c, shapes=tuple(shapes))

    def is_recurrent(self, layer: int, layers: int) -> bool:
        """Return whether a layer has a recurrent state instead of keys and values."""
        a = self.architecture
        given = self.gguf.numbers(f"{a}.attention.recurrent_layers", layers)
        if given is not None:
            return bool(given[layer])
        return (layer + 1) % self.gguf.integer(f"{a}.full_attention_interval", 4, low=1) != 0

    def load_recurrence(self, name: Name, layer: int) -> LinearAttention:
        c, w, gguf, a = self.config, self.weights, self.gguf, self.architecture
        key_dim, key_heads, heads, value_dim = read_recurrence(gguf, a)
        refuse_odd_heads(gguf, a, key_dim, value_dim)
        values = heads * value_dim
        channels = 2 * key_heads * key_dim + values
        rows = {"attn_qkv": channels, "attn_gate": values}
        rows |= {part: count * heads for part, count in self.gates.items()}
        taps = gguf.integer(f"{a}.ssm.conv_kernel", low=2, high=16)
        weight = by_taps(w.array(name("ssm_conv1d.weight"), (channels, taps)))
        conv = ShortConv(weight, activation=True)
        return LinearAttention(
            norm=self.norm_weight(name("attn_norm.weight")),
            into=tuple(w.matrix(name(f"{part}.weight"), n, c.width) for part, n in rows.items()),
            out=w.matrix(name("ssm_out.weight"), c.width, values),
            conv=conv,
            delta=DeltaRule(
                key_heads=key_heads,
                value_heads=heads,
                key_dim=key_dim,
                value_dim=value_dim,
                a=w.vector(name("ssm_a"), heads),
                dt=w.vector(name("ssm_dt.bias"), heads),
                norm=w.vector(name("ssm_norm.weight"), value_dim),
                offset=conv.state_floats,
            ),
        )
