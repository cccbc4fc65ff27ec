"""Qwen3.5 and 3.6 with a mixture of experts and a shared one: `qwen35.py`, `experts.py`."""

from __future__ import annotations

from .experts import Mixture
from .qwen35 import Qwen35


class Qwen35MoE(Qwen35, Mixture):
    """The architecture `qwen35moe`."""

    architecture = "qwen35moe"
    understands = Qwen35.understands | Mixture.understands
