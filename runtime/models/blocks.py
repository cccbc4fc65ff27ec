"""The halves of a layer that architectures share: attention, and the feed-forward part.

A half adds to x what it makes of it: of norm(x), or of x itself, and as it comes out or normed:

    x += f(norm(x))        x += norm(f(norm(x)))        x += norm(f(x))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from ...jit.kernels.kvcache import KeyForm, KVFormat, key_format
from ...jit.kernels.rope import slow_pairs
from ..forward.appending import append
from ..forward.graph import GraphBuilder
from ..forward.recurrent import ShortConv
from ..forward.tensors import Activation, AttentionSpec, QuantizedActivation
from ..weights.matrix import Matrix


class Part:
    """A part of a model: a dataclass of its weights."""

    __slots__ = ()

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """The part's matrices, nested parts included, in the order of the fields."""
        values = [getattr(self, one.name) for one in fields(self)]  # pyright: ignore[reportArgumentType]
        return tuple(_matrices_of(values))


def _matrices_of(values: Iterable[object]) -> Iterator[Matrix]:
    for value in values:
        if isinstance(value, Matrix):
            yield value
        elif isinstance(value, Part):
            yield from value.matrices
        elif isinstance(value, tuple):
            yield from _matrices_of(value)


class Half(Part):
    """A half of a layer, token mixer or feed-forward: its weights and equations."""

    __slots__ = ()

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        """Build the ops of the half, which add its output to x."""
        raise NotImplementedError


@dataclass(slots=True)
class Recurrence(Half):
    """A token mixer with a recurrent state instead of keys and values; subclasses add equations.

    Attributes:
        kind: what it is called.
        work: operations of a token with each of its `own_floats`.
        norm: weights of the norm of x.
        into, out: matrices that read norm(x), and the one whose output is added to x.
        conv: its short convolution, whose inputs are a part of the state.
    """

    kind: ClassVar[str]
    work: ClassVar[int] = 0

    norm: np.ndarray
    into: tuple[Matrix, ...]
    out: Matrix
    conv: ShortConv

    @property
    def state_floats(self) -> int:
        """Size of a sequence's state in float32 values, convolution included."""
        return self.conv.state_floats + self.own_floats

    @property
    def state_flops(self) -> int:
        """Floating-point operations per token on the state."""
        return self.work * self.own_floats + 2 * self.conv.weight.size

    @property
    def own_floats(self) -> int:
        """Size of the recurrence's own state in float32 values, without the convolution's."""
        return 0


@dataclass(slots=True)
class Attention(Half):
    """Attention, the token mixer of most layers.

    Attributes:
        norm: weights of the norm of x; None: it takes x as it is.
        qkv: matrices of queries, keys and values; or one of all three (`fused`); or of queries and
            keys, which are the values, too; or of queries alone, for another layer's keys.
        qk_norms: weights of the norms of q and k, head by head, if they have any; row_norms: of
            norms of all heads together.
        biases: of q, k and v, one after the other, if there are any; o_bias: of what is added.
        sinks: of the heads, if they have any.
        post_norm: weights of the norm of what is added, if there is one.
        gated: whether queries bring a gate of what becomes of them, head by head.
        gate: matrix of gates of what the heads make, one a head or one a dim; see `gate_heads`.
        key_norms: norms of the rows of the keys' matrix, where cached keys are equalized.
    """

    norm: np.ndarray | None
    qkv: tuple[Matrix, ...]
    o: Matrix
    rule: AttentionSpec
    qk_norms: tuple[np.ndarray, np.ndarray] | None = None
    biases: np.ndarray | None = None
    fused: bool = False
    row_norms: tuple[np.ndarray, np.ndarray] | None = None
    o_bias: np.ndarray | None = None
    sinks: np.ndarray | None = None
    post_norm: np.ndarray | None = None
    gated: bool = False
    gate: Matrix | None = None
    key_norms: np.ndarray | None = None

    def key_forms(
        self, kv: KVFormat, tables: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> tuple[KeyForm, ...]:
        """Return what keys are when a cache of this format stores them: see `rope.py`.

        A float32 cache loses nothing by biases, and a cap bounds whole scores.

        tables: rotary tables of two positions or more.
        """
        rule = self.rule
        if self.biases is None or self.qk_norms or rule.source is not None or rule.table is None:
            return ()
        forms: dict[KeyForm, object] = {
            "centered": kv != "f32" and not rule.cap and slow_pairs(*tables[rule.table]).any(),
            "equalized": key_format(kv) == "q8" and len(self.qkv) == 3,
        }
        return tuple(form for form, chosen in forms.items() if chosen)

    @property
    def appending(self) -> tuple[Matrix, ...]:
        return self.qkv[1:]

    def append(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        _, key, value = self.qkv
        assert self.qk_norms is not None, "of the heads of a layer that drafts"
        h = enter(g, x, self.norm, eps, (key, value), "attn_norm")
        append(g, h, (key, value), self.rule, self.qk_norms[1], eps)

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        readers = (*self.qkv, self.gate) if self.gate else self.qkv
        h = enter(g, x, self.norm, eps, readers, "attn_norm")
        gates = g.matmul(self.gate, h, "attn_gate", last=False) if self.gate else None
        q, k, v = self._project(g, h)
        if self.row_norms and k:
            q = g.rmsnorm(q, self.row_norms[0], eps, "q_norm")
            k = g.rmsnorm(k, self.row_norms[1], eps, "k_norm")
        if self.o_bias is not None:
            # Here nobody reads x, and before the product that adds to it all have met anyhow.
            g.add_bias(x, self.o_bias, "attn_output_bias")
        a = g.attend(
            q, k, v, self.rule,
            norms=self.qk_norms, biases=self.biases, sinks=self.sinks, eps=eps, gated=self.gated,
            key_forms=self.key_forms(g.kv.format, g.kv.tables), key_norms=self.key_norms,
        )  # fmt: skip
        if gates:
            g.gate_heads(a, gates, (self.rule.heads or g.heads).head_dim, "attn_gated")
        ready = g.quantize(a, [self.o], "attn_ready")
        leave(g, x, self.o, ready, "attn_output", self.post_norm, eps, "post_attention")

    def _project(
        self, g: GraphBuilder, h: QuantizedActivation
    ) -> tuple[Activation, Activation | None, Activation | None]:
        if self.fused:
            all_, heads = g.matmul(self.qkv[0], h, "qkv"), self.rule.heads or g.heads
            rows, kv_rows = (n * heads.head_dim for n in (heads.heads, heads.kv_heads))
            columns = ((0, rows), (rows, kv_rows), (rows + kv_rows, kv_rows))
            q, k, v = (all_.part(*part) for part in columns)
            return q, k, v
        named = list(zip("qkv", self.qkv, strict=False))
        q, *others = (g.matmul(w, h, name, last=w is self.qkv[-1]) for name, w in named)
        return (q, others[0], others[-1]) if others else (q, None, None)


@dataclass(slots=True)
class GatedFFN(Half):
    """The dense gated feed-forward: W_down (gate(W_gate h) * W_up h), gate: silu or gelu.

    scale: what x is multiplied by at its end, where it has a `post_norm`.
    """

    norm: np.ndarray | None
    gate_up: Matrix
    down: Matrix
    gate: Literal["silu", "gelu"] = "silu"
    post_norm: np.ndarray | None = None
    scale: float = 1.0

    def inner(self, g: GraphBuilder, x: Activation, eps: float) -> QuantizedActivation:
        """Build the ops up to the input of W_down, and return it."""
        h = enter(g, x, self.norm, eps, [self.gate_up], "ffn_norm")
        multiply = g.silu_mul if self.gate == "silu" else g.gelu_mul
        return g.quantize(multiply(self.gate_up, h, "ffn_gate_up"), [self.down], "ffn_ready")

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        y = self.inner(g, x, eps)
        leave(g, x, self.down, y, "ffn_down", self.post_norm, eps, "post_ffw", self.scale)


@dataclass(slots=True)
class Block(Part):
    """Weights of one layer. A missing half is None; `last`: a third one, in few models."""

    mixer: Half | None
    ffn: Half | None
    last: Half | None = None

    @property
    def halves(self) -> list[Half]:
        return [half for half in (self.mixer, self.ffn, self.last) if half is not None]

    @property
    def window(self) -> int:
        """Positions that a token attends to; 0: all."""
        return self.mixer.rule.window if isinstance(self.mixer, Attention) else 0


def enter(
    g: GraphBuilder,
    x: Activation,
    norm: np.ndarray | None,
    eps: float,
    into: list[Matrix] | tuple[Matrix, ...],
    name: str,
) -> QuantizedActivation:
    """Build a half's input, norm(x) or, without a norm, x, quantized for the matrices `into`."""
    return g.quantize(x, into, name) if norm is None else g.norm(x, norm, eps, into, name)


def leave(
    g: GraphBuilder,
    x: Activation,
    w: Matrix,
    y: QuantizedActivation,
    name: str,
    norm: np.ndarray | None,
    eps: float,
    norm_name: str,
    scale: float = 1.0,
) -> None:
    """Build the output of a half: x += w y; or, given a norm, x = scale (x + norm(w y))."""
    if norm is None:
        g.add_matmul(x, w, y, name)
    else:
        g.add_norm(x, g.matmul(w, y, name), norm, eps, norm_name, scale)
