"""Mamba-2 as the first half of a layer, and the names of its tensors in files.

x = x + W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h,  h = rmsnorm(x)

`jit/kernels/conv.py` and `jit/kernels/mamba2.py` have the recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..forward.graph import GraphBuilder
from ..forward.recurrent import Mamba2, ShortConv, by_taps
from ..forward.tensors import Activation
from .blocks import Recurrence
from .config import read_recurrence, refuse_odd_heads
from .decoder import Decoder, Name


@dataclass(slots=True)
class MambaHalf(Recurrence):
    """Mamba-2, the first half of a layer without attention.

    Attributes:
        into: the matrix of z, x, B, C and dt, one after the other.
        eps: of the norm behind the recurrence.
    """

    kind: ClassVar[str] = "Mamba-2"
    work: ClassVar[int] = 5

    mamba: Mamba2
    eps: float

    @property
    def own_floats(self) -> int:
        return self.mamba.state_floats

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, self.into, "attn_norm")
        all_ = g.matmul(self.into[0], h, "ssm_in")
        inner, channels = self.mamba.heads * self.mamba.head_dim, self.conv.weight.shape[1]
        z, step = all_.part(0, inner), all_.part(inner + channels, self.mamba.heads)
        u = self.conv.apply(g, all_.part(inner, channels), "conv")
        y = self.mamba.apply(g, u, z, step, self.eps, "mamba")
        g.add_matmul(x, self.out, g.quantize(y, [self.out], "ssm_ready"), "ssm_out")


def load_mamba(model: Decoder, name: Name) -> MambaHalf:
    """Request the first half of a layer with Mamba-2.

    Raises:
        GGUFError: its sizes do not fit each other.
        UnsupportedModelError: heads are of a size that no kernel is for.
    """
    gguf, w, a, c = model.gguf, model.weights, model.architecture, model.config
    n, groups, heads, head_dim = read_recurrence(gguf, a)
    refuse_odd_heads(gguf, a, head_dim, n)
    taps = gguf.integer(f"{a}.ssm.conv_kernel", low=2, high=16)
    inner = heads * head_dim
    channels = inner + 2 * groups * n
    conv = ShortConv(
        by_taps(w.array(name("ssm_conv1d.weight"), (channels, taps))),
        w.vector(name("ssm_conv1d.bias"), channels),
        activation=True,
    )
    decay, skip = (w.array(name(part), (heads, 1)) for part in ("ssm_a", "ssm_d"))
    return MambaHalf(
        norm=model.norm_weight(name("attn_norm.weight")),
        into=(w.matrix(name("ssm_in.weight"), inner + channels + heads, c.width),),
        out=w.matrix(name("ssm_out.weight"), c.width, inner),
        conv=conv,
        mamba=Mamba2(
            heads=heads,
            head_dim=head_dim,
            groups=groups,
            state_dim=n,
            a=decay.ravel().copy(),
            dt=w.vector(name("ssm_dt.bias"), heads),
            skip=skip.ravel().copy(),
            norm=w.array(name("ssm_norm.weight"), (groups, inner // groups)).ravel().copy(),
            offset=conv.state_floats,
        ),
        eps=c.eps,
    )
