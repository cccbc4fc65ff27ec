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

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.recurrent import DeltaRule, ShortConv, by_taps
from ..forward.tensors import Activation
from ..weights.matrix import Matrix
from .blocks import Attention, Half
from .config import Config
from .decoder import Decoder, Name


@dataclass(slots=True)
class LinearAttention:
    """The first half of a layer with a state.

    into: matrices of q k v, z, alpha and beta; or, last, one of both where they are `paired`.
    """

    kind: ClassVar[str] = "gated delta rule"

    norm: np.ndarray
    into: tuple[Matrix, ...]
    out: Matrix
    conv: ShortConv
    delta: DeltaRule

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return (*self.into, self.out)

    @property
    def state_floats(self) -> int:
        return self.conv.state_floats + self.delta.state_floats

    @property
    def state_flops(self) -> int:
        return 7 * self.delta.state_floats + 2 * self.conv.weight.size

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
        gates: matrices of alpha and beta, with so many rows of each value head.
    """

    architecture = "qwen35"
    understands = frozenset({"rope.dimension_sections"})
    drafts_from = "normed"
    gates: ClassVar[dict[str, int]] = {"ssm_alpha": 1, "ssm_beta": 1}

    def read_config(self) -> Config:
        """Set the heads of layers with a state to none."""
        c = super().read_config()
        shapes = (None if self.is_recurrent(n, c.layers) else h for n, h in enumerate(c.shapes))
        return replace(c, shapes=tuple(shapes))

    def load_attention(self, name: Name, layer: int) -> Attention:
        h, w = self.config.shapes[layer], self.weights
        assert h is not None, "else it has a state"
        rows, kv_rows, width = h.heads * h.head_dim, h.kv_heads * h.head_dim, self.config.width
        parts = {"attn_q": 2 * rows, "attn_k": kv_rows, "attn_v": kv_rows}
        q_norm, k_norm = (w.vector(name(f"attn_{p}_norm.weight"), h.head_dim) for p in "qk")
        return Attention(
            norm=self.norm_weight(name("attn_norm.weight")),
            qkv=tuple(w.matrix(name(f"{p}.weight"), n, width) for p, n in parts.items()),
            o=w.matrix(name("attn_output.weight"), width, rows),
            rule=self.rule(layer),
            qk_norms=(q_norm, k_norm),
            gated=True,
        )

    def is_recurrent(self, layer: int, layers: int) -> bool:
        """Return whether a layer has a state and not keys and values."""
        a = self.architecture
        if f"{a}.attention.recurrent_layers" in self.gguf.metadata:
            given = self.gguf.numbers(f"{a}.attention.recurrent_layers", layers)
            assert given is not None, "the key is there"
            return bool(given[layer])
        return (layer + 1) % self.gguf.integer(f"{a}.full_attention_interval", 4, low=1) != 0

    def load_recurrence(self, name: Name, layer: int) -> LinearAttention:
        c, w, d = self.config, self.weights, self.delta_sizes()
        keys, values = d["key_heads"] * d["key_dim"], d["value_heads"] * d["value_dim"]
        channels, heads = 2 * keys + values, d["value_heads"]
        rows = {"attn_qkv": channels, "attn_gate": values}
        rows |= {part: count * heads for part, count in self.gates.items()}
        taps = self.gguf.integer(f"{self.architecture}.ssm.conv_kernel", low=2, high=16)
        weight = by_taps(w.array(name("ssm_conv1d.weight"), (channels, taps)))
        conv = ShortConv(weight, activation=True)
        return LinearAttention(
            norm=self.norm_weight(name("attn_norm.weight")),
            into=tuple(w.matrix(name(f"{part}.weight"), n, c.width) for part, n in rows.items()),
            out=w.matrix(name("ssm_out.weight"), c.width, values),
            conv=conv,
            delta=DeltaRule(
                key_heads=d["key_heads"],
                value_heads=heads,
                key_dim=d["key_dim"],
                value_dim=d["value_dim"],
                a=w.vector(name("ssm_a"), heads),
                dt=w.vector(name("ssm_dt.bias"), heads),
                norm=w.vector(name("ssm_norm.weight"), d["value_dim"]),
                offset=conv.state_floats,
            ),
        )

    def delta_sizes(self) -> dict[str, int]:
        """Return the heads and dims of the delta rule, checked."""
        key = f"{self.architecture}.ssm.".__add__
        dim, keys, heads, inner = (
            self.gguf.integer(key(part), low=1, high=1 << 20)
            for part in ("state_size", "group_count", "time_step_rank", "inner_size")
        )
        if heads % keys:
            self.gguf.refuse(key("time_step_rank"), f"{heads} heads cannot share {keys} key heads")
        if inner % heads:
            self.gguf.refuse(key("inner_size"), f"{inner} channels do not make {heads} heads")
        if inner // heads % 16 or dim % 16:
            why = f"makes heads of {dim} by {inner // heads}: both must be multiples of 16"
            self.gguf.unsupported(key("inner_size"), why)
        sizes = {"key_dim": dim, "value_dim": inner // heads}
        return {**sizes, "key_heads": keys, "value_heads": heads}

    def load_ffn(self, name: Name, layer: int) -> Half:
        return super().load_ffn(_renamed(name), layer)


def _renamed(name: Name) -> Name:
    """Map the names of a layer's tensors: the second norm has an unusual one."""
    return lambda part: name(_RENAMED.get(part, part))


_RENAMED = {"ffn_norm.weight": "post_attention_norm.weight"}
