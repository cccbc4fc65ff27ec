"""Architectures by the name that `general.architecture` gives."""

from __future__ import annotations

from ...errors import UnsupportedModelError
from ..gguf import GGUFFile
from ..weights import WeightLoader
from .qwen3 import Qwen3
from .qwen3moe import Qwen3MoE

ARCHITECTURES = {cls.architecture: cls for cls in (Qwen3, Qwen3MoE)}


def architecture_of(gguf: GGUFFile) -> str:
    """The architecture of a file, if it can be run.

    Raises:
        UnsupportedModelError: it cannot, and which can.
    """
    name = gguf.string("general.architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModelError(
            f"{gguf.path}: architecture {name!r} is not supported; supported: {known}"
        )
    return name


def build(gguf: GGUFFile, weights: WeightLoader) -> Qwen3:
    """The model of `gguf`, with its weights asked for but not yet packed."""
    return ARCHITECTURES[architecture_of(gguf)](gguf, weights)
