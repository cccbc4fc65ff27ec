"""Qwen3-VL's text tower with a mixture of experts: see `qwen3vl.py` and `qwen3moe.py`."""

from __future__ import annotations

from .qwen3moe import Qwen3MoE
from .qwen3vl import Qwen3VL


class Qwen3VLMoE(Qwen3MoE):
    """The architecture `qwen3vlmoe`."""

    architecture = "qwen3vlmoe"
    understands = Qwen3MoE.understands | Qwen3VL.understands
