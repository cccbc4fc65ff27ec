"""The halves of a layer that architectures share: attention's projections, and SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, AttentionSpec
from ..weights.loader import Matrix


@dataclass(slots=True)
class Attention:
    """The first half of a layer.

    Attributes:
        qkv: matrices of queries, keys and values, or one of all three.
        qk_norms: weights of the norms of q and k, if they have any.
        biases: of q, k and v, one after the other, if there are any.
    """

    norm: np.ndarray
    qkv: tuple[Matrix, ...]
    o: Matrix
    rule: AttentionSpec
    qk_norms: tuple[np.ndarray, np.ndarray] | None = None
    biases: np.ndarray | None = None

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return (*self.qkv, self.o)

    def heads(self, g: GraphBuilder, x: Activation, eps: float) -> Activation:
        """What the heads make of norm(x): the input of W_o."""
        h = g.norm(x, self.norm, eps, self.qkv, "attn_norm")
        q, k, v = self._project(g, h)
        return g.attend(q, k, v, self.rule, norms=self.qk_norms, biases=self.biases, eps=eps)

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        """x += W_o heads(x)."""
        a = self.heads(g, x, eps)
        g.add_matmul(x, self.o, g.quantize(a, [self.o], "attn_ready"), "attn_output")

    def _project(self, g: GraphBuilder, h) -> tuple[Activation, Activation, Activation]:
        if len(self.qkv) == 1:
            all_ = g.matmul(self.qkv[0], h, "qkv")
            rows, kv_rows = (n * g.heads.head_dim for n in (g.heads.heads, g.heads.kv_heads))
            places = ((0, rows), (rows, kv_rows), (rows + kv_rows, kv_rows))
            q, k, v = (all_.part(*place) for place in places)
            return q, k, v
        w_q, w_k, w_v = self.qkv
        q = g.matmul(w_q, h, "q", last=False)
        k = g.matmul(w_k, h, "k", last=False)
        return q, k, g.matmul(w_v, h, "v")


@runtime_checkable
class Recurrence(Protocol):
    """A first half whose past is a state, and not keys and values.

    Attributes:
        state_floats: float32 values of a sequence's state.
        state_flops: operations of a token with it.
    """

    @property
    def matrices(self) -> tuple[Matrix, ...]: ...

    @property
    def state_floats(self) -> int: ...

    @property
    def state_flops(self) -> int: ...

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        """x += what it makes of norm(x)."""
        ...


class FeedForward(Protocol):
    """The second half of a layer: its weights, and what it does with them."""

    @property
    def matrices(self) -> tuple[Matrix, ...]: ...

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        """x += what it makes of norm(x)."""
        ...


@dataclass(slots=True)
class GatedFFN:
    """The dense one: W_down (gate(W_gate h) * W_up h), the gate being silu or gelu."""

    norm: np.ndarray
    gate_up: Matrix
    down: Matrix
    gate: Literal["silu", "gelu"] = "silu"

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.gate_up, self.down

    def inner(self, g: GraphBuilder, x: Activation, eps: float) -> Activation:
        """The input of W_down."""
        h = g.norm(x, self.norm, eps, [self.gate_up], "ffn_norm")
        multiply = g.silu_mul if self.gate == "silu" else g.gelu_mul
        return multiply(self.gate_up, h, "ffn_gate_up")

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        y = self.inner(g, x, eps)
        g.add_matmul(x, self.down, g.quantize(y, [self.down], "ffn_ready"), "ffn_down")


@dataclass(slots=True)
class Block:
    """Weights of one layer."""

    attention: Attention | Recurrence
    ffn: FeedForward

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return (*self.attention.matrices, *self.ffn.matrices)
