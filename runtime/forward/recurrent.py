"""Layers with a recurrence on the tape: a short convolution, the gated delta rule, Mamba-2.

Their kernels take the rows of each sequence one after the other, and a pass's sequences, channels
and heads are shared out among the threads. Where a layer has a convolution and a recurrence, its
part of a state begins with the convolution's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import conv, delta_rule, mamba2
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, STATIC
from .descriptor import TOKENS
from .graph import GraphBuilder
from .kv import BASE
from .tensors import Activation


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A short causal convolution of each channel."""

    weight: np.ndarray
    """float32 [taps, channels]."""
    bias: np.ndarray | None = None
    """float32 [channels], if there is one."""
    activation: bool = False
    gated: bool = False
    """Whether its input has the parts B, C and x of LFM2."""

    @property
    def state_floats(self) -> int:
        """Number of float32 values of its state."""
        taps, channels = self.weight.shape
        return (taps - 1) * channels

    def apply(self, g: GraphBuilder, x: Activation, name: str) -> Activation:
        """Return the convolved rows of x."""
        taps, channels = self.weight.shape
        out = g.row(name, channels)
        kernel = spec(
            conv.short_conv,
            channels=channels,
            taps=taps,
            activation=self.activation,
            has_bias=self.bias is not None,
            gated=self.gated,
        )
        args = [x.data, self.weight, self.weight if self.bias is None else self.bias, out.data,
                x.stride, out.stride, BASE, g.state_offset, g.runs]  # fmt: skip
        _op(g, name, kernel, args, conv.units_of(channels))
        return out


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """The gated delta rule of a layer, behind its convolution: see `jit/kernels/delta_rule.py`."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    a: np.ndarray
    dt: np.ndarray
    """`a` and `dt`: float32 [value_heads] each."""
    norm: np.ndarray
    """Weights of the output norm: float32 [value_dim]."""
    offset: int
    """Offset of S in the layer's state, in float32 values."""
    tiled: bool = True
    paired: bool = False

    @property
    def state_floats(self) -> int:
        """Number of float32 values of its state."""
        return self.value_heads * self.key_dim * self.value_dim

    def apply(
        self,
        g: GraphBuilder,
        u: Activation,
        z: Activation,
        alpha: Activation,
        beta: Activation,
        eps: float,
        name: str,
    ) -> Activation:
        """Run rows u, convolved, through the recurrence; norm them and gate them by z."""
        out = g.row(name, self.value_heads * self.value_dim)
        sizes = {name: getattr(self, name) for name in _DELTA_SIZES}
        assert alpha.stride == beta.stride, "both are as wide as there are heads"
        args = [u.data, z.data, alpha.data, beta.data, self.a, self.dt, self.norm, out.data,
                u.stride, z.stride, alpha.stride, out.stride, BASE, g.state_offset + self.offset,
                g.runs, g.scratch("delta", delta_rule.scratch_bytes(self.key_dim)),
                float(eps)]  # fmt: skip
        _op(g, name, spec(delta_rule.delta_rule, **sizes), args, self.value_heads)
        return out


_DELTA_SIZES = ("key_heads", "value_heads", "key_dim", "value_dim", "tiled", "paired")


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2 of one layer, behind its convolution: see `jit/kernels/mamba2.py`."""

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    a: np.ndarray
    dt: np.ndarray
    skip: np.ndarray
    """A, dt and D: float32 [heads] each."""
    norm: np.ndarray
    """Weights of the output norm: float32 [heads * head_dim]."""
    offset: int
    """Offset of S in the layer's state, in float32 values."""

    @property
    def state_floats(self) -> int:
        """Number of float32 values of its state."""
        return self.heads * self.head_dim * self.state_dim

    def apply(
        self, g: GraphBuilder, u: Activation, z: Activation, step: Activation, eps: float, name: str
    ) -> Activation:
        """Run rows u, convolved, through the recurrence; gate them by z and norm them."""
        inner = self.heads * self.head_dim
        out = g.row(name, inner)
        sizes = {name: getattr(self, name) for name in ("heads", "head_dim", "groups", "state_dim")}
        args = [u.data, step.data, self.a, self.dt, self.skip, out.data, u.stride, step.stride,
                out.stride, BASE, g.state_offset + self.offset, g.runs,
                g.scratch("mamba", mamba2.scratch_bytes())]  # fmt: skip
        _op(g, name, spec(mamba2.mamba2, **sizes), args, self.heads)
        kernel = spec(mamba2.gated_group_norm, groups=self.groups, width=inner // self.groups)
        args = [out.data, z.data, self.norm, out.stride, z.stride, float(eps)]
        g.tape.op(f"{name}_norm", kernel, args, g.units(TOKENS, self.groups))
        return out


def _op(g: GraphBuilder, name: str, kernel: object, args: list[object], each: int) -> None:
    mode = STATIC if g.decode else DYNAMIC
    g.tape.op(name, kernel, args, g.units_of_runs(each), mode=mode)  # pyright: ignore


def by_taps(weight: np.ndarray) -> np.ndarray:
    """Transpose convolution weights [channels, taps] of a file to the kernels' order."""
    out = aligned(weight.T.shape, np.float32)
    out[:] = weight.T
    return out
