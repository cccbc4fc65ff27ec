"""Qwen3-VL with a mixture of experts, without its eyes: see `qwen3vl.py` and `qwen3moe.py`."""

from __future__ import annotations

from .qwen3moe import Qwen3MoE
from .qwen3vl import Qwen3VL


class Qwen3VLMoE(Qwen3MoE):
    """The architecture `qwen3vlmoe`."""

    architecture = "qwen3vlmoe"
    understands = Qwen3MoE.understands | Qwen3VL.understands
