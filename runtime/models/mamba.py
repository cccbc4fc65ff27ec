"""The first half of a layer with Mamba-2, and where files have its parts.

x = x + W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h,  h = rmsnorm(x)

`jit/kernels/conv.py` and `jit/kernels/mamba2.py` have the recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..forward.graph import GraphBuilder
from ..forward.recurrent import Mamba2, ShortConv, by_taps
from ..forward.tensors import Activation
from ..gguf.file import GGUFFile
from ..weights.loader import WeightLoader
from ..weights.matrix import Matrix
from .decoder import Name


@dataclass(slots=True)
class MambaHalf:
    """The first half of a layer with Mamba-2.

    Attributes:
        into: the matrix of z, x, B, C and dt, one after the other; out: W_out.
        eps: of the norm behind the recurrence.
    """

    kind: ClassVar[str] = "Mamba-2"

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
        return 5 * self.mamba.state_floats + 2 * self.conv.weight.size

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
    """Request the first half of a layer with Mamba-2, of a model `width` wide.

    Raises:
        GGUFError: its sizes do not fit each other.
        UnsupportedModelError: heads are of a size that no kernel is for.
    """
    key = f"{a}.ssm.".__add__
    n, groups, heads, inner = (
        gguf.integer(key(part), low=1, high=1 << 20)
        for part in ("state_size", "group_count", "time_step_rank", "inner_size")
    )
    taps = gguf.integer(key("conv_kernel"), low=2, high=16)
    if heads % groups:
        gguf.refuse(key("group_count"), f"{heads} heads cannot share {groups} groups")
    if inner % heads:
        gguf.refuse(key("inner_size"), f"{inner} channels do not make {heads} heads")
    if inner // heads % 16 or n % 16:
        why = f"makes heads of {inner // heads} by {n}: both must be multiples of 16"
        gguf.unsupported(key("inner_size"), why)
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
