"""Granite 4 H: most layers are Mamba-2, the others attend without positions; Granite's four scales.

x = x + r W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h      (layers without KV heads)
x = x + r W_o attend(W_q h, W_k h, W_v h),  scores a q k             (the others)
x = x + r W_down (silu(W_gate h) * W_up h),                          h = rmsnorm(x)

`jit/kernels/mamba2.py` has the recurrence, `granite.py` the scales. Some have a mixture of experts
and one that is shared in place of the last line: `experts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.recurrent import Mamba2, ShortConv, by_taps
from ..forward.tensors import Activation
from ..gguf.file import GGUFFile
from ..weights.loader import Matrix, WeightLoader
from .blocks import Half
from .config import Config, read_config
from .decoder import Name
from .experts import Mixture
from .granite import Granite


@dataclass(slots=True)
class MambaHalf:
    """The first half of a layer with Mamba-2.

    Attributes:
        into: the matrix of z, x, B, C and dt, one after the other; out: W_out.
        eps: of the norm behind the recurrence.
    """

    norm: np.ndarray
    into: Matrix
    out: Matrix
    conv: ShortConv
    mamba: Mamba2
    eps: float

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return self.into, self.out

    @property
    def state_floats(self) -> int:
        return self.conv.state_floats + self.mamba.state_floats

    @property
    def state_flops(self) -> int:
        return 5 * self.mamba.state_floats

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = g.norm(x, self.norm, eps, [self.into], "attn_norm")
        all_ = g.matmul(self.into, h, "ssm_in")
        inner, channels = self.mamba.heads * self.mamba.head_dim, self.conv.weight.shape[1]
        z, step = all_.part(0, inner), all_.part(inner + channels, self.mamba.heads)
        u = self.conv.apply(g, all_.part(inner, channels), "conv")
        y = self.mamba.apply(g, u, z, step, self.eps, "mamba")
        g.add_matmul(x, self.out, g.quantize(y, [self.out], "ssm_ready"), "ssm_out")


def load_mamba(
    gguf: GGUFFile, w: WeightLoader, a: str, name: Name, norm: np.ndarray, width: int, eps: float
) -> MambaHalf:
    """Ask for the first half of a layer with Mamba-2, of a model `width` wide.

    Raises:
        GGUFError: its sizes make no sense.
    """
    key = f"{a}.ssm.".__add__
    n, groups, heads, inner = (
        gguf.integer(key(part), low=1, high=1 << 20)
        for part in ("state_size", "group_count", "time_step_rank", "inner_size")
    )
    taps = gguf.integer(key("conv_kernel"), low=2, high=16)
    if heads % groups:
        gguf.refuse(key("group_count"), f"{heads} heads cannot share {groups} groups")
    if inner % (16 * heads) or n % 16:
        said = f"heads of {inner / heads:g} by {n} do not fit: both must be multiples of 16"
        gguf.refuse(key("inner_size"), said)
    channels = inner + 2 * groups * n
    conv = ShortConv(
        by_taps(w.array(name("ssm_conv1d.weight"), (channels, taps))),
        w.vector(name("ssm_conv1d.bias"), channels),
        activation=True,
    )
    decay, skip = (w.array(name(part), (heads, 1)) for part in ("ssm_a", "ssm_d"))
    return MambaHalf(
        norm=norm,
        into=w.matrix(name("ssm_in.weight"), inner + channels + heads, width),
        out=w.matrix(name("ssm_out.weight"), width, inner),
        conv=conv,
        mamba=Mamba2(
            heads=heads,
            head_dim=inner // heads,
            groups=groups,
            state_dim=n,
            a=decay.ravel().copy(),
            dt=w.vector(name("ssm_dt.bias"), heads),
            skip=skip.ravel().copy(),
            norm=w.array(name("ssm_norm.weight"), (groups, inner // groups)).ravel().copy(),
            offset=conv.state_floats,
        ),
        eps=eps,
    )


class GraniteHybrid(Granite, Mixture):
    """The architecture `granitehybrid`."""

    architecture = "granitehybrid"
    understands = Granite.understands | Mixture.understands

    def read_config(self) -> Config:
        sparse = self.gguf.integer(f"{self.architecture}.expert_count", 0)
        return super().read_config() if sparse else read_config(self.gguf, self.architecture)

    def load_ffn(self, name: Name, layer: int) -> Half:
        c = self.config
        if not c.experts:
            return self.load_gated(name, c.ffns[layer])
        return super().load_ffn(name, layer)

    def load_recurrence(self, name: Name, layer: int) -> MambaHalf:
        c, a = self.config, self.architecture
        norm = self.norm_weight(name("attn_norm.weight"))
        return load_mamba(self.gguf, self.weights, a, name, norm, c.width, c.eps)
