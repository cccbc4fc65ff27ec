"""Values passed between steps of a graph: activations, and their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...jit.kernels.activations import ActivationFormat
from ...jit.pool import aligned
from ...jit.tape import PerThread

ALIGN = 64  # float32 rows are padded to this many values, so that no kernel has a tail


def padded(width: int) -> int:
    return -(-width // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class Activation:
    """A float32 activation [max_tokens * each, stride], of which `width` values count.

    `each` is the number of rows of one token: more than one where experts have one each. A row that
    every thread computes for itself is `PerThread`.
    """

    data: np.ndarray | PerThread
    width: int
    each: int = 1

    @property
    def stride(self) -> int:
        data = self.data.buffers[0] if isinstance(self.data, PerThread) else self.data
        return data.strides[0] // data.itemsize

    def rows_of(self, heads: int, step: int, width: int) -> Activation:
        """Return a view with a row for each of `heads` heads: `width` values each, `step` apart."""
        assert isinstance(self.data, np.ndarray), "rows of what each thread has"
        assert self.stride == heads * step, (self.stride, heads, step)
        return Activation(self.data.reshape(-1, step), width, self.each * heads)

    def joined(self, heads: int) -> Activation:
        """Return a view with the contiguous rows of `heads` heads joined to one."""
        assert isinstance(self.data, np.ndarray), "rows of what each thread has"
        assert self.stride == self.width, (self.stride, self.width)
        width = heads * self.width
        return Activation(self.data.reshape(-1, width), width, self.each // heads)

    def part(self, first: int, width: int) -> Activation:
        """Return a view of columns first … first + width - 1."""
        assert isinstance(self.data, np.ndarray), "a part of what each thread has"
        return Activation(self.data[:, first : first + width], width, self.each)


@dataclass(frozen=True, slots=True)
class QuantizedActivation:
    """An activation ready for GEMMs, in every form that its matrices require."""

    forms: dict[ActivationFormat, QuantizedRows]


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """int8 blocks or float32 rows, shared or one for each thread.

    tiles: the same blocks as `jit/kernels/gemm_amx.py` has them, where GEMMs want that.
    """

    data: np.ndarray | PerThread
    stride: int
    tiles: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of the attention heads of a layer; value_dim: of values that are first dims of keys.

    Such values are stored with the keys alone; 0: values are as wide as keys, and stored apart.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0

    @property
    def out_dim(self) -> int:
        """Width of a head's output."""
        return self.value_dim or self.head_dim

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads


class Temperature(NamedTuple):
    """A factor of queries by their position p: 1 + rate ln(1 + floor(p / step))."""

    rate: float
    step: int

    def factors(self, positions: int) -> np.ndarray:
        """Return the factors of the first `positions` positions: float32 [positions]."""
        steps = np.arange(positions, dtype=np.int64) // self.step
        return (1.0 + self.rate * np.log1p(steps)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The attention parameters of a layer."""

    scale: float
    """Factor of scores q k."""
    table: int | None = 0
    """Index of the rotary table in the layout; None: no rotary embedding."""
    adjacent: bool = False
    """Whether pairs are the dims (2 i, 2 i + 1), as in llama's files, or halves apart."""
    window: int = 0
    """Sliding window: positions that a token sees, itself among them; 0: all."""
    cap: float = 0.0
    """Soft cap of scores: the c in c tanh(score / c); 0: none."""
    heads: HeadShape | None = None
    """Head shape; None: the model's usual."""
    source: int | None = None
    """The layer whose keys and values it reads in place of its own; None: its own."""
    norm_values: bool = False
    """Whether values are normed, head by head, without weights."""
    temperature: Temperature | None = None
    """Factor of queries by position; None: none."""
    first: int = 0
    """First position that any token attends to."""


class Workspace:
    """Named scratch arrays that all passes of an engine share (one pass runs at a time)."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int], np.ndarray] = {}

    def get(self, name: str, rows: int, width: int, dtype: type = np.float32) -> np.ndarray:
        """Return an array of at least `rows` rows of exactly `width` values."""
        have = self._arrays.get((name, width))
        if have is None or len(have) < rows:
            have = self._arrays[name, width] = aligned((rows, width), dtype)
        return have
