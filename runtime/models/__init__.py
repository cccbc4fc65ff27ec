"""Architectures by the name that `general.architecture` gives."""

from __future__ import annotations

from ...errors import UnsupportedModelError
from ..gguf.file import GGUFFile
from ..gguf.header import shown
from ..weights.loader import WeightLoader
from .decoder import Decoder
from .gemma2 import Gemma2
from .gemma3 import Gemma3
from .granite import Granite
from .llama import Llama
from .phi3 import Phi3
from .qwen2 import Qwen2
from .qwen3 import Qwen3
from .qwen3moe import Qwen3MoE
from .smollm3 import SmolLM3

ARCHITECTURES: dict[str, type[Decoder]] = {
    cls.architecture: cls
    for cls in (Qwen3, Qwen3MoE, Qwen2, Llama, SmolLM3, Gemma2, Gemma3, Phi3, Granite)
}


def architecture_of(gguf: GGUFFile) -> str:
    """The architecture of a file, if it can be run.

    Raises:
        UnsupportedModelError: it cannot, and which can.
    """
    name = gguf.string("general.architecture")
    kind = gguf.string("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{gguf.path}: it holds no model, but what GGUF calls {shown(kind)}"
        )
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{gguf.path}: architecture {shown(name)} is not supported; supported: {known}"
        )
    return name


def build(gguf: GGUFFile, weights: WeightLoader) -> Decoder:
    """The model of `gguf`, with its weights asked for but not yet packed."""
    return ARCHITECTURES[architecture_of(gguf)](gguf, weights)
