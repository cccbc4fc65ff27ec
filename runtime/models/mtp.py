"""The draft layer after the last one: multi-token prediction (MTP), a "next n" block.

For the token t at position p, behind the hidden state h of position p - 1:

    x  = W_eh [rmsnorm(E t); rmsnorm(h)],  x = layer(x),  h' = rmsnorm(x),  logits = head(h')

which say what comes at p + 1. The next draft takes that token and h'. h is what the output head
gets (`normed`, Qwen3.5 and 3.6), or the same before its norm, and then h' likewise (DeepSeek, GLM).

The layer attends to the positions from 1 on: keys and values of p are of t and of h before it, so
they depend on no token behind p, as those of all other layers. Every pass of the model appends them
(`fill`), and a draft computes one row of the layer and of the head (`draft`). Source: DeepSeek-V3,
arXiv:2412.19437, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import activations
from ...jit.pool import aligned
from ..forward.appending import row_before
from ..forward.descriptor import OUTPUTS
from ..forward.graph import GraphBuilder
from ..forward.logits import ROWS
from ..forward.recurrent import ShortConv
from ..forward.tensors import Activation, AttentionSpec, HeadShape, padded
from ..weights.matrix import Matrix
from .blocks import Block


@runtime_checkable
class Appends(Protocol):
    """Attention that can append keys and values without attending."""

    rule: AttentionSpec

    @property
    def appending(self) -> tuple[Matrix, ...]:
        """The matrices that `append` reads."""
        ...

    def append(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        """Build the ops that append keys and values of x's rows to the KV cache."""
        ...


@dataclass(slots=True)
class MTP:
    """The MTP draft layer: its weights, and the passes built from them.

    Attributes:
        layer: its number, behind those of the model.
        table, table_format: rows of the embedding as the file has them; scale: what they are
            multiplied by.
        from_embedding, from_hidden: the halves of W_eh.
        norms: of the embedding, of h, and of what the head gets.
        before_head: the norm in front of the model's own head; None: h is not `normed`.
        output: the head.
        heads: of the layer.
        wanted: float32 [ROWS, padded width], h of the rows whose logits a pass gave.
    """

    layer: int
    width: int
    eps: float
    table: np.ndarray
    table_format: str
    scale: float
    from_embedding: Matrix
    from_hidden: Matrix
    norms: tuple[np.ndarray, np.ndarray, np.ndarray]
    before_head: np.ndarray | None
    block: Block
    output: Matrix
    heads: HeadShape
    wanted: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = aligned((ROWS, padded(self.width)), np.float32)

    @property
    def filling(self) -> tuple[Matrix, ...]:
        """Matrices that every pass of the model reads."""
        assert isinstance(self.block.mixer, Appends), "it was loaded so"
        return self.from_embedding, self.from_hidden, *self.block.mixer.appending

    @property
    def drafting(self) -> tuple[Matrix, ...]:
        """Matrices that a draft reads, the head last."""
        return self.from_embedding, self.from_hidden, *self.block.matrices, self.output

    def fill(self, g: GraphBuilder, x: Activation) -> None:
        """Build the ops that append keys and values to the layer's cache, from the pass's last x.

        h of the position before a pass is in the sequence's state, or in its pages where it has no
        state.
        """
        with g.layer(self.layer):
            h = x
            if self.before_head is not None:
                h = g.rmsnorm(x, self.before_head, self.eps, "mtp_hidden")
            kernel = spec(activations.prepare, norm=False, kind="float", group=1, gather=True)
            args = [h.data, self.norms[0], self.wanted.view(np.uint8), h.stride, self.width,
                    padded(self.width), 0.0, 0, 0, g.wanted]  # fmt: skip
            g.tape.op("mtp_wanted", kernel, args, g.units(OUTPUTS), barrier=False)
            if g.kv.states is not None:
                previous = _before(self.width).apply(g, h, "mtp_previous")
            else:
                previous = row_before(g, h, "mtp_previous")
            assert isinstance(self.block.mixer, Appends), "it was loaded so"
            self.block.mixer.append(g, self._enter(g, previous), self.eps)

    def draft(self, g: GraphBuilder, hidden: np.ndarray, out: np.ndarray) -> Activation:
        """Build a draft pass of one row from h, float32 [1, padded width]; return its h'."""
        with g.layer(self.layer):
            x = self._enter(g, Activation(hidden, self.width))
            for half in self.block.halves:
                half.add(g, x, self.eps)
            after = x
            if self.before_head is not None:
                after = g.rmsnorm(x, self.norms[2], self.eps, "mtp_hidden")
        g.logits(x, self.norms[2], self.eps, self.output, out)
        return after

    def _enter(self, g: GraphBuilder, h: Activation) -> Activation:
        """Return x of the layer, from the pass's tokens and the hidden states before them."""
        e = g.embedding(self.table, self.table_format, self.width, self.scale, name="mtp_embed")
        e = g.norm(e, self.norms[0], self.eps, [self.from_embedding], "mtp_enorm")
        x = g.matmul(self.from_embedding, e, "mtp_x")
        h_ready = g.norm(h, self.norms[1], self.eps, [self.from_hidden], "mtp_hnorm")
        g.add_matmul(x, self.from_hidden, h_ready, "mtp_from_hidden")
        return x


def _before(width: int) -> ShortConv:
    """Return a convolution that gives the row before, with the last row's h as its state."""
    weight = aligned((2, width), np.float32)
    weight[0], weight[1] = 1.0, 0.0
    return ShortConv(weight)


def state_floats(width: int) -> int:
    """Return the size of the state for the last row's h, in float32 values."""
    return _before(width).state_floats
