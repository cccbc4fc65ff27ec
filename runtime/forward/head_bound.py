"""Greedy passes of one row that read a part of the output head: see `jit/kernels/head_bound.py`.

They read the head's copy in four bits, and of the head the panels whose bounds reach the largest
logit. The token is the one that all logits give; other logits are not computed.

How many panels that are depends on model and text: 1 % after most tokens of English text or code,
nearly all where the model is at a loss. So each pass counts them, and after one that cost more than
the whole head such passes pause: for one pass, and twice as many after each further one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import head_bound
from ...jit.pool import aligned

if TYPE_CHECKING:
    from ..weights.matrix import Matrix
    from .gemms import GemmBuilder
    from .logits import OutputBuffers
    from .tensors import QuantizedActivation

PAUSE = 16  # passes without, at most


class HeadBound:
    """The ops of bounded passes in one plan, and what they cost.

    Attributes:
        copy: the head's copy in four bits.
        found: int64 [1], the panels that it took.
    """

    def __init__(self, head: Matrix, copy: Matrix) -> None:
        self.head, self.copy = head, copy
        self.bounds = aligned(head.units, np.float32)
        self.panels = aligned(head.units + 1, np.int32)
        self.found = aligned(8, np.int64)[:1]
        self._pause = self._left = 0  # passes: of the last pause, left of it

    def pays(self) -> bool:
        """Return whether the next greedy pass should be such a one."""
        self._left -= 1
        return self._left < 0

    def observe(self) -> float:
        """Count what a bounded pass read, as a share of the head's bytes; return it."""
        share = self.copy.nbytes / self.head.nbytes + int(self.found[0]) / self.head.units
        self._pause = min(max(1, 2 * self._pause), PAUSE) if share > 1.0 else 0
        self._left = self._pause
        return share

    def add_ops(self, g: GemmBuilder, ready: QuantizedActivation, choice: OutputBuffers) -> None:
        """Add the ops that bound all logits and list the panels to compute."""
        head, copy = self.head, self.copy
        x, own = (ready.forms[m.activation(g.target)].data for m in (head, copy))
        mask = [choice.masks, choice.use_mask]

        def begin(*_: object) -> int:
            self.found[0] = 0
            return int(g.bounded)

        count = g.counted(begin)
        g.tape.op(
            "output.bounds",
            spec(head_bound.gemm_bounds, blocks=copy.blocks),
            [copy.panels, own, *mask, self.bounds],
            g.units(count, head.units),
            unit_bytes=copy.nbytes // copy.units,
        )
        g.tape.op(
            "output.select",
            spec(head_bound.select_panels, blocks=head.blocks),
            [head.panels, x, self.bounds, *mask, self.panels, self.found, head.units, head.rows],
            g.units(count),
        )
