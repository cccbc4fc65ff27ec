"""Architectures by their value of `general.architecture`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import UnsupportedModelError
from ..gguf.file import GGUFFile
from ..gguf.header import shown
from ..weights.loader import WeightLoader

if TYPE_CHECKING:
    from .decoder import Decoder

ARCHITECTURES = {
    "qwen3": "Qwen3",
    "qwen3moe": "Qwen3MoE",
    "qwen2": "Qwen2",
    "llama": "Llama",
    "smollm3": "SmolLM3",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
    "phi3": "Phi3",
    "granite": "Granite",
    "qwen3vl": "Qwen3VL",
    "qwen3vlmoe": "Qwen3VLMoE",
    "mistral3": "Mistral3",
    "olmo2": "Olmo2",
    "gpt-oss": "GptOss",
    "gemma4": "Gemma4",
    "qwen35": "Qwen35",
    "qwen35moe": "Qwen35MoE",
    "qwen3next": "Qwen3Next",
    "lfm2": "LFM2",
    "lfm2moe": "LFM2MoE",
    "granitehybrid": "GraniteHybrid",
    "nemotron_h": "NemotronH",
    "nemotron_h_moe": "NemotronHMoE",
    "laguna": "Laguna",
    "deepseek2": "DeepSeek2",
}
"""Class by architecture; the module named after an architecture is imported when it is used."""

_DRAFTS = (
    "holds no model but one that drafts for another, with its keys and hidden states, which is not "
    "supported; load that other model itself: it drafts from its context"
)
REFUSED: dict[str, str] = dict.fromkeys(("gemma4-assistant", "eagle3", "dflash"), _DRAFTS)
"""Known architectures that are not supported: why, and what to do instead."""


def architecture_of(gguf: GGUFFile) -> str:
    """Return the architecture of a file; raise an error if it cannot run.

    Raises:
        UnsupportedModelError: it cannot; the message names those that can.
    """
    name = gguf.string("general.architecture")
    kind = gguf.string("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{gguf.path}: it holds no model, but what GGUF calls {shown(kind)}"
        )
    if why := why_unsupported(name):
        raise UnsupportedModelError(f"{gguf.path}: {why}")
    return name


def why_unsupported(name: str) -> str | None:
    """Explain why models of this architecture cannot run; None if they can."""
    if name in ARCHITECTURES:
        return None
    known = ", ".join(sorted(ARCHITECTURES))
    why = REFUSED.get(name, f"is not supported; supported: {known}")
    return f"architecture {shown(name)} {why}"


def drafts(architecture: str) -> bool:
    """Return whether an architecture's draft layers (`mtp.py`) are supported."""
    return architecture in ARCHITECTURES and class_of(architecture).drafts_from is not None


def build(
    gguf: GGUFFile, weights: WeightLoader, *, mtp: bool = False, head_bound: bool = True
) -> Decoder:
    """Build the model of `gguf`, with its weights requested but not yet packed.

    mtp: with the layer that drafts (`mtp.py`), if the file has one that is understood. head_bound:
    with what bounds the logits, if that is worth it.
    """
    model = class_of(architecture_of(gguf))(gguf, weights)
    if mtp and model.drafts_from is not None:
        from .mtp_weights import load_mtp

        model.mtp = load_mtp(model)
    if head_bound and not model.cap:  # capped logits may be equal where others are not
        weights.add_head_copy(model.output)
    return model


def class_of(architecture: str) -> type[Decoder]:
    """Return the class of an architecture in `ARCHITECTURES`."""
    module = import_module(f".{architecture.replace('-', '_')}", __name__)
    return getattr(module, ARCHITECTURES[architecture])
