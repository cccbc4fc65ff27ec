"""Qwen3, dense: pre-norm blocks with grouped-query attention, q/k norm, and SwiGLU.

(With experts: `qwen3moe.py`.)

x = x + W_o attend(norm(W_q h), norm(W_k h), W_v h),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),              h = rmsnorm(x)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...errors import GGUFError
from ..gguf import GGUFFile
from ..graph import Graph, HeadShape, Row, padded
from ..weights import Matrix, WeightLoader


class FeedForward(Protocol):
    """The second half of a layer: its weights, and what it does with them."""

    @property
    def matrices(self) -> tuple[Matrix, ...]: ...

    def forward(self, g: Graph, x: Row, eps: float) -> None: ...


@dataclass(slots=True)
class SwiGLU:
    """The dense one."""

    norm: np.ndarray
    gate_up: Matrix
    down: Matrix

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.gate_up, self.down

    def forward(self, g: Graph, x: Row, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.gate_up], "ffn_norm")
        y = g.silu_mul(self.gate_up, h, "ffn_gate_up")
        g.add_matmul(x, self.down, g.ready(y, [self.down], "ffn_ready"), "ffn_down")


@dataclass(slots=True)
class Block:
    """Weights of one layer."""

    attn_norm: np.ndarray
    q: Matrix
    k: Matrix
    v: Matrix
    q_norm: np.ndarray
    k_norm: np.ndarray
    o: Matrix
    ffn: FeedForward


@dataclass(frozen=True, slots=True)
class Config:
    """Shape of the model, from the file's metadata."""

    layers: int
    width: int
    ffn: int
    heads: HeadShape
    n_vocab: int
    eps: float
    rope_base: float
    context: int
    experts: int = 0  # in each layer; 0 in a dense model
    experts_used: int = 0  # by each token


class Qwen3:
    """The architecture `qwen3`: asks for its weights, and lays down its pass."""

    architecture = "qwen3"

    def __init__(self, gguf: GGUFFile, weights: WeightLoader) -> None:
        self.config = c = self.read_config(gguf)
        h = c.heads
        q_rows, kv_rows = h.heads * h.head_dim, h.kv_heads * h.head_dim
        self.blocks: list[Block] = []
        for n in range(c.layers):
            name = f"blk.{n}.{{}}.weight".format
            self.blocks.append(
                Block(
                    attn_norm=weights.vector(name("attn_norm"), c.width, padded(c.width)),
                    q=weights.matrix(name("attn_q"), q_rows, c.width),
                    k=weights.matrix(name("attn_k"), kv_rows, c.width),
                    v=weights.matrix(name("attn_v"), kv_rows, c.width),
                    q_norm=weights.vector(name("attn_q_norm"), h.head_dim),
                    k_norm=weights.vector(name("attn_k_norm"), h.head_dim),
                    o=weights.matrix(name("attn_output"), c.width, q_rows),
                    ffn=self.load_feed_forward(weights, name),
                )
            )
        self.output_norm = weights.vector("output_norm.weight", c.width, padded(c.width))
        tied = "output.weight" not in gguf.tensors
        self.output = weights.matrix(
            "token_embd.weight" if tied else "output.weight", c.n_vocab, c.width
        )
        self.embedding_format = weights.format_of("token_embd.weight").name
        self.embedding = gguf.data("token_embd.weight")

    def read_config(self, gguf: GGUFFile) -> Config:
        return read_config(gguf, self.architecture)

    def load_feed_forward(self, weights: WeightLoader, name: Callable[[str], str]) -> FeedForward:
        """Ask for one layer's; `name` makes a tensor's full name."""
        c = self.config
        return SwiGLU(
            norm=weights.vector(name("ffn_norm"), c.width, padded(c.width)),
            gate_up=weights.gate_up(name("ffn_gate"), name("ffn_up"), c.ffn, c.width),
            down=weights.matrix(name("ffn_down"), c.width, c.ffn),
        )

    def forward(self, g: Graph, out: np.ndarray) -> None:
        """Lay down one pass; logits go to `out`, float32 [rows, stride]."""
        c = self.config
        x = g.embedding(self.embedding, self.embedding_format, c.width)
        for n, w in enumerate(self.blocks):
            with g.layer(n):
                self.block(g, x, w)
        g.logits(x, self.output_norm, c.eps, self.output, out)

    def block(self, g: Graph, x: Row, w: Block) -> None:
        eps = self.config.eps
        h = g.norm(x, w.attn_norm, eps, (w.q, w.k, w.v), "attn_norm")
        q = g.matmul(w.q, h, "q", last=False)
        k = g.matmul(w.k, h, "k", last=False)
        v = g.matmul(w.v, h, "v")
        a = g.attend(q, k, v, (w.q_norm, w.k_norm), eps)
        g.add_matmul(x, w.o, g.ready(a, [w.o], "attn_ready"), "attn_output")
        w.ffn.forward(g, x, eps)

    @property
    def matrices(self) -> list[Matrix]:
        """Every matrix that one decode step reads, the output head last."""
        per_layer = [(w.q, w.k, w.v, w.o, *w.ffn.matrices) for w in self.blocks]
        return [m for layer in per_layer for m in layer] + [self.output]


def read_config(gguf: GGUFFile, architecture: str) -> Config:
    """The sizes that `architecture`'s metadata give, each checked for sense.

    Raises:
        GGUFError: a key is missing or cannot be right.
    """
    a = architecture
    width = gguf.integer(f"{a}.embedding_length", low=1, high=1 << 20)
    heads = gguf.integer(f"{a}.attention.head_count", low=1, high=4096)
    kv_heads = gguf.integer(f"{a}.attention.head_count_kv", heads, low=1, high=heads)
    head_dim = gguf.integer(f"{a}.attention.key_length", width // heads, low=16, high=1024)
    value_dim = gguf.integer(f"{a}.attention.value_length", head_dim, low=16, high=1024)
    if heads % kv_heads:
        gguf.refuse(
            f"{a}.attention.head_count_kv", f"{heads} heads cannot share {kv_heads} KV heads"
        )
    if value_dim != head_dim or head_dim % 32:
        gguf.refuse(
            f"{a}.attention.key_length", f"head sizes {head_dim} and {value_dim} do not fit"
        )
    table = gguf.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise GGUFError("no embedding table", field="tensor 'token_embd.weight'", offset=0)
    return Config(
        layers=gguf.integer(f"{a}.block_count", low=1, high=4096),
        width=width,
        ffn=gguf.integer(f"{a}.feed_forward_length", low=1, high=1 << 22),
        heads=HeadShape(heads, kv_heads, head_dim),
        n_vocab=int(table.shape[0]),
        eps=gguf.number(f"{a}.attention.layer_norm_rms_epsilon", 1e-6),
        rope_base=gguf.number(f"{a}.rope.freq_base", 10000.0),
        context=gguf.integer(f"{a}.context_length", low=1),
    )
