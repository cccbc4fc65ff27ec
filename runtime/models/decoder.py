"""What all architectures are: pre-norm layers between an embedding table and an output head.

x = x + W_o attend(W_q h, W_k h, W_v h),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),  h = rmsnorm(x)

An architecture is a subclass that says in what it differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ...errors import UnsupportedModelError
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, AttentionSpec, padded
from ..gguf.file import GGUFFile
from ..weights.loader import Matrix, WeightLoader
from .blocks import Attention, Block, FeedForward, GatedFFN, Recurrence
from .config import Config, read_config, refuse_features
from .rotary import Rotation, read_rotation

# Tensors that some files hold and nobody needs.
SUPERFLUOUS = re.compile(r".*(rope_freqs|attn_rot_embd|inv_freq).*")
Name = Callable[[str], str]


class Decoder:
    """One model: asks for its weights, and builds its pass.

    Attributes:
        architecture: as `general.architecture` names it.
        understands: keys of `config.FEATURES` that it honours.
        adjacent: whether its files have the pairs that are rotated side by side.
        qk_norm: whether queries and keys are normed, head by head.
        last_norm: the tensor that norms what the output head gets.
        config, blocks: sizes and weights.
        rotations: ways of rotating that the layers' rules name by number.
        embedding_scale: what the embedding's rows are multiplied by.
        eps: of the norms of x; cap: bound of the logits, 0 for none.
    """

    architecture: ClassVar[str]
    understands: ClassVar[frozenset[str]] = frozenset()
    adjacent: ClassVar[bool] = False
    qk_norm: ClassVar[bool] = False
    last_norm: ClassVar[str] = "output_norm.weight"
    embedding_scale = 1.0
    cap = 0.0

    def __init__(self, gguf: GGUFFile, weights: WeightLoader) -> None:
        self.gguf, self.weights = gguf, weights
        refuse_features(gguf, self.architecture, self.understands)
        self.config = c = self.read_config()
        weights.width = c.width
        self.eps = c.eps
        self.rotations = self.read_rotations()
        self.embedding_format = weights.format_of("token_embd.weight").name
        self.embedding = weights.table("token_embd.weight")
        self.read_scales()
        self.blocks: list[Block] = []
        for n in range(c.layers):
            name = f"blk.{n}.{{}}".format
            self.blocks.append(Block(self.load_attention(name, n), self.load_feed_forward(name)))
        self.output_norm = self.norm_weight(self.last_norm)
        tied = "output.weight" not in gguf.tensors
        self.output = weights.matrix(
            "token_embd.weight" if tied else "output.weight", c.n_vocab, c.width
        )
        self._refuse_unknown_tensors()

    # --- what architectures replace

    def read_config(self) -> Config:
        return read_config(self.gguf, self.architecture)

    def read_rotations(self) -> list[Rotation]:
        """Ways of rotating; `rule` names one by its number."""
        head_dim = self.config.heads.head_dim
        return [read_rotation(self.gguf, self.weights, self.architecture, head_dim)]

    def read_scales(self) -> None:
        """Read what multiplies this or that, if there is anything."""

    def rule(self, layer: int) -> AttentionSpec:
        """How layer `layer` attends."""
        return AttentionSpec(self.config.heads.head_dim**-0.5, adjacent=self.adjacent)

    def load_feed_forward(self, name: Name) -> FeedForward:
        """Ask for one layer's; `name` makes a tensor's full name."""
        c, w = self.config, self.weights
        return GatedFFN(
            norm=self.norm_weight(name("ffn_norm.weight")),
            gate_up=w.gate_up(name("ffn_gate.weight"), name("ffn_up.weight"), c.ffn, c.width),
            down=w.matrix(name("ffn_down.weight"), c.width, c.ffn),
        )

    def tables(self, positions: int, context: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rotary tables of `rotations`, cos and sin of each, for sessions of `context` tokens."""
        return [rotation.tables(positions) for rotation in self.rotations]

    def block(self, g: GraphBuilder, x: Activation, w: Block) -> None:
        """Build one layer."""
        w.attention.add(g, x, self.eps)
        w.ffn.add(g, x, self.eps)

    # --- what they share

    def load_attention(self, name: Name, layer: int) -> Attention | Recurrence:
        """Ask for the first half of a layer."""
        c, w, h = self.config, self.weights, self.config.heads
        rows, kv_rows = h.heads * h.head_dim, h.kv_heads * h.head_dim
        norm = self.norm_weight(name("attn_norm.weight"))
        if name("attn_qkv.weight") in self.gguf.tensors:
            parts = {"attn_qkv": rows + 2 * kv_rows}
        else:
            parts = {"attn_q": rows, "attn_k": kv_rows, "attn_v": kv_rows}
        biases = None
        if any(name(f"{part}.bias") in self.gguf.tensors for part in parts):
            biases = np.concatenate([w.vector(name(f"{p}.bias"), n) for p, n in parts.items()])
        norms = None
        if self.qk_norm:
            q_norm, k_norm = (w.vector(name(f"attn_{p}_norm.weight"), h.head_dim) for p in "qk")
            norms = q_norm, k_norm
        return Attention(
            norm=norm,
            qkv=tuple(w.matrix(name(f"{p}.weight"), n, c.width) for p, n in parts.items()),
            o=w.matrix(name("attn_output.weight"), c.width, rows),
            rule=self.rule(layer),
            qk_norms=norms,
            biases=biases,
        )

    def norm_weight(self, name: str) -> np.ndarray:
        """The weights of a norm of x."""
        return self.weights.vector(name, self.config.width, padded(self.config.width))

    def embed(self, g: GraphBuilder, *, replicated: bool = False) -> Activation:
        """x of the pass's tokens."""
        c, form = self.config, self.embedding_format
        return g.embedding(
            self.embedding, form, c.width, self.embedding_scale, replicated=replicated
        )

    def forward(self, g: GraphBuilder, out: np.ndarray) -> None:
        """Build one pass; logits go to `out`, float32 [rows, stride]."""
        x = self.embed(g)
        for n, w in enumerate(self.blocks):
            with g.layer(n):
                self.block(g, x, w)
        g.logits(x, self.output_norm, self.eps, self.output, out, self.cap)

    @property
    def matrices(self) -> list[Matrix]:
        """Every matrix that one decode step reads, the output head last."""
        return [m for w in self.blocks for m in w.matrices] + [self.output]

    @property
    def windows(self) -> list[int]:
        """For each layer with keys and values, how many positions a token sees; 0: all."""
        halves = (w.attention for w in self.blocks)
        return [half.rule.window for half in halves if isinstance(half, Attention)]

    @property
    def cached(self) -> tuple[int, ...]:
        """Numbers of the layers that have keys and values."""
        return tuple(n for n, w in enumerate(self.blocks) if isinstance(w.attention, Attention))

    @property
    def recurrent(self) -> dict[int, Recurrence]:
        """The layers that have a state instead, by number."""
        halves = ((n, w.attention) for n, w in enumerate(self.blocks))
        return {n: half for n, half in halves if not isinstance(half, Attention)}

    def _refuse_unknown_tensors(self) -> None:
        """A tensor that nobody asked for would mean something that is not computed."""
        unknown = [
            name
            for name in self.gguf.tensors
            if name not in self.weights.asked and not SUPERFLUOUS.fullmatch(name)
        ]
        if unknown:
            raise UnsupportedModelError(
                f"{self.gguf.path}: {len(unknown)} tensors, such as {unknown[0]!r}, have no place "
                f"in {self.architecture} as it is supported here"
            )
