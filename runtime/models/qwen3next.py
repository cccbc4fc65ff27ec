"""Qwen3-Next: `qwen35moe.py`, with value heads in another order.

Value heads that share a key head lie side by side: head r reads key head r div (R / G). One matrix
makes b and alpha, of each key head first the b of its value heads, then their alpha.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from .decoder import Name
from .qwen35 import LinearAttention
from .qwen35moe import Qwen35MoE


class Qwen3Next(Qwen35MoE):
    """The architecture `qwen3next`."""

    architecture = "qwen3next"
    drafts_from = None  # `convert` leaves its MTP layer out: none was tried
    gates: ClassVar[dict[str, int]] = {"ssm_ba": 2}

    def load_recurrence(self, name: Name, layer: int) -> LinearAttention:
        half = super().load_recurrence(name, layer)
        half.delta = replace(half.delta, tiled=False, paired=True)
        return half
