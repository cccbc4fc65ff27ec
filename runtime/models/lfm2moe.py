"""LFM2 with a mixture of experts after its first layers: `lfm2.py`, `experts.py`."""

from __future__ import annotations

from .experts import Mixture
from .lfm2 import LFM2


class LFM2MoE(LFM2, Mixture):
    """The architecture `lfm2moe`."""

    architecture = "lfm2moe"
    understands = Mixture.understands
    gating = 2
