"""A weight matrix in the form of panels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...jit.kernels.activations import ActivationFormat
from ...jit.kernels.panels import Format
from ...jit.targets import CpuTarget


@dataclass(slots=True)
class Matrix:
    """A weight matrix [rows, depth] in panels, or two that are fused half by half.

    A matrix of experts is one for each of `experts`, one after the other.

    Attributes:
        format: how it is stored; rows, depth: output and input width (of one expert).
        panels: uint8, the packed bytes; units: number of panels (of one expert).
        fused: whether a panel holds gate rows and up rows (its output is `silu(gate) * up`).
        sources: the tensors it was made from.
        by_head: whether its "experts" are heads, all of which a token takes.
        up: where gate and up have types of their own, the up matrix; this one is the gate then.
        copy: of an output head, what its rows' products are bounded by.
        before, whole: where it is some columns of what a tensor holds, those before them and all.
    """

    format: Format
    rows: int
    depth: int
    units: int
    fused: bool
    sources: tuple[str, ...]
    panels: np.ndarray
    experts: int = 0
    up: Matrix | None = None
    copy: Matrix | None = None
    by_head: bool = False
    before: int = 0
    whole: int = 0

    def activation(self, target: CpuTarget) -> ActivationFormat:
        """Return the format of its input activations."""
        return self.format.activation(target, self.depth)

    @property
    def parts(self) -> tuple[Matrix, ...]:
        """This matrix, and the up matrix if it is separate."""
        return (self,) if self.up is None else (self, self.up)

    @property
    def copies(self) -> int:
        """Number of matrices in it: one, or one for each expert."""
        return max(1, self.experts)

    @property
    def blocks(self) -> int:
        return self.depth // self.format.block

    @property
    def nbytes(self) -> int:
        return sum(part.panels.nbytes for part in self.parts)

    @property
    def parameters(self) -> int:
        one = self.copies * self.rows * self.depth
        return sum(one * len(part.sources) for part in self.parts)
