"""LFM2: most layers are a short convolution between two gates, the others attend.

x = x + W_out (C * conv(B * u)),  B C u = W_in h            (layers without KV heads)
x = x + W_o attend(norm(W_q h), norm(W_k h), W_v h)         (the others)
x = x + W_down (silu(W_gate h) * W_up h),  h = rmsnorm(x)

The last norm is called `token_embd_norm` in its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..forward.graph import GraphBuilder
from ..forward.recurrent import ShortConv, by_taps
from ..forward.tensors import Activation
from .blocks import Recurrence
from .decoder import Decoder, Name


@dataclass(slots=True)
class GatedConv(Recurrence):
    """The gated short convolution, the first half of a layer without attention."""

    kind: ClassVar[str] = "gated short convolution"

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, self.into, "attn_norm")
        y = self.conv.apply(g, g.matmul(self.into[0], h, "conv_in"), "conv")
        g.add_matmul(x, self.out, g.quantize(y, [self.out], "conv_ready"), "conv_out")


class LFM2(Decoder):
    """The architecture `lfm2`."""

    architecture = "lfm2"
    qk_norm = "heads"
    last_norm = "token_embd_norm.weight"

    def load_recurrence(self, name: Name, layer: int) -> GatedConv:
        width, w = self.config.width, self.weights
        taps = self.gguf.integer(f"{self.architecture}.shortconv.l_cache", low=2, high=16)
        if width % 16:
            key = f"{self.architecture}.embedding_length"
            self.gguf.unsupported(key, f"= {width} must be a multiple of 16")
        return GatedConv(
            norm=self.norm_weight(name("attn_norm.weight")),
            into=(w.matrix(name("shortconv.in_proj.weight"), 3 * width, width),),
            out=w.matrix(name("shortconv.out_proj.weight"), width, width),
            conv=ShortConv(
                by_taps(w.array(name("shortconv.conv.weight"), (width, taps))), gated=True
            ),
        )
