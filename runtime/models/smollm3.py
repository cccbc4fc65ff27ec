"""SmolLM3: Llama's equations, but every fourth layer does not rotate queries and keys.

The step of four is no metadata: every engine that runs these files has it built in.
"""

from __future__ import annotations

from dataclasses import replace

from ..forward.tensors import AttentionSpec
from .decoder import Decoder

NO_ROPE_STEP = 4


class SmolLM3(Decoder):
    """The architecture `smollm3`."""

    architecture = "smollm3"
    adjacent = True

    def rule(self, layer: int) -> AttentionSpec:
        rotates = (layer + 1) % NO_ROPE_STEP != 0
        return replace(super().rule(layer), table=0 if rotates else None)
