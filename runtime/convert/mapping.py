"""Hugging Face checkpoints in GGUF's terms: which tensor becomes which, and how its rows lie.

    mapping = map_checkpoint(json.load(open("config.json")), names_in_the_checkpoint)
    mapping.architecture        what `general.architecture` must say
    mapping.metadata            the model's keys and values, `llama.block_count` and so on
    for tensor in mapping.tensors:                       in the file's order
        array = tensor.make([load(name) for name in tensor.sources])

Nothing is read here: sources are opened by the caller when it comes to them, so that a checkpoint
of any size passes through one tensor at a time. Neither torch nor transformers is needed.

Tokenizer and `general.*` keys are the caller's. Names and rules: llama.cpp's GGUF files, which any
engine must be able to read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from .recurrent import IN_RECURRENT_LAYER, Change, changes_of, parts_of
from .rope import frequency_factors
from .settings import CheckpointSettings, Value, read_settings


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """One tensor of the GGUF file.

    Attributes:
        name: in the GGUF file.
        sources: in the checkpoint; several are stacked (experts); none for a constant.
        heads: if not 0, the rows of so many heads are rearranged: see `adjacent_pairs`.
        plus_one: whether 1 is added (weights of Gemma's norms are stored as what differs from 1).
        change: what else is done to the values, whole; see `recurrent.py`.
        constant: float32 values that come from the configuration.
    """

    name: str
    sources: tuple[str, ...]
    heads: int = 0
    plus_one: bool = False
    change: Change | None = None
    constant: np.ndarray | None = None

    @property
    def is_vector(self) -> bool:
        """Whether it stays in float32: norms, biases, rotary factors, short convolutions."""
        short = self.name.endswith(
            (".bias", "ssm_a", "ssm_d", "conv1d.weight", "shortconv.conv.weight")
        )
        return self.constant is not None or "norm" in self.name or short

    @property
    def needs_floats(self) -> bool:
        """Whether its values are computed, not only moved."""
        return self.plus_one or (self.change is not None and self.change.computes)

    def shape(self, sources: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Its shape (rows first), from those of its sources."""
        if self.constant is not None:
            return self.constant.shape
        one = tuple(int(n) for n in sources[0])
        if self.change is not None:
            one = self.change.shape(one)
        return (len(sources), *one) if self._stacked else one

    def make(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Its values from those of its sources, in their dtype.

        Any dtype will do, raw bits of bfloat16 as uint16 too; only where `needs_floats` says so
        they must be floats.
        """
        if self.constant is not None:
            return self.constant
        if self._stacked:
            return np.stack(arrays)
        (array,) = arrays
        if self.heads:
            return adjacent_pairs(array, self.heads)
        if self.change is not None:
            return self.change.make(array)
        return array + 1 if self.plus_one else array

    @property
    def _stacked(self) -> bool:
        return self.name.endswith("_exps.weight")


@dataclass(frozen=True, slots=True)
class CheckpointMapping:
    """What `map_checkpoint` found.

    Attributes:
        unused: names of the checkpoint that have no place in the file: vision towers, a copy of
            tied weights, buffers that follow from the configuration.
    """

    architecture: str
    metadata: dict[str, Value]
    tensors: list[MappedTensor]
    unused: list[str] = field(default_factory=list)


def map_checkpoint(config: dict[str, Any], names: Collection[str]) -> CheckpointMapping:
    """The GGUF side of a checkpoint with this `config.json` and tensors of these names.

    Raises:
        UnsupportedModelError: the model type, or something that its configuration asks for, is not
            supported; the message names it.
        ModelError: a setting or a tensor is missing, or a tensor has an unknown name.
    """
    settings = read_settings(config)
    sources: dict[str, dict[int, str]] = {}
    unused = []
    tied = bool(config.get("tie_word_embeddings", False))
    for name in names:
        target = _target(name, settings.architecture)
        if target is None or (target[0] == "output.weight" and tied):
            unused.append(name)
            continue
        place, expert = target
        for part in parts_of(place):
            if expert in sources.setdefault(part, {}):
                raise ModelError(f"two tensors for {part}: {sources[part][expert]} and {name}")
            sources[part][expert] = name
    tensors = [_tensor(place, found, settings) for place, found in sources.items()]
    for name, values in frequency_factors(settings).items():
        tensors.append(MappedTensor(name, (), constant=values))
    _check_complete({tensor.name for tensor in tensors}, settings)
    tensors.sort(key=lambda tensor: _order(tensor.name))
    return CheckpointMapping(settings.architecture, settings.metadata, tensors, sorted(unused))


def adjacent_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in the order that llama's GGUF files have them.

    Checkpoints rotate dim i of a head with dim i + head_dim / 2, those files dim 2 i with 2 i + 1:
    of each head the rows 0, h/2, 1, h/2 + 1, … are taken. weight: [heads * head_dim, …].
    """
    halves = weight.reshape(heads, 2, -1, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


# --- names

ADJACENT = (
    "llama",
    "smollm3",
    "granite",
    "granitehybrid",
)  # architectures whose files hold adjacent pairs

_OUTSIDE = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "embedding_norm.weight": "token_embd_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
# Gemma norms what leaves a part, too; there "post attention" means just that.
_IN_GEMMA_LAYER = _IN_LAYER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}

_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")
_NAMELESS = re.compile(r"layers\.(\d+)\.(.+)")  # numbers that are neither weight nor bias
_EXPERT_NAME = re.compile(r"mlp\.experts\.(\d+)\.(\w+)")
_PREFIX = re.compile(r"^(language_model\.model\.|model\.language_model\.|language_model\.|model\.)")
_IGNORED = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|multi_modal_projector|mtp)\.|\.inv_freq$"
)


def _target(name: str, architecture: str) -> tuple[str, int] | None:
    """The GGUF name of a tensor and, if it is one expert's, which; None if it is not needed."""
    if _IGNORED.search(name):
        return None
    short = _PREFIX.sub("", name)
    if short in _OUTSIDE:
        return _OUTSIDE[short], 0
    found = _LAYER_NAME.fullmatch(short)
    if found:
        layer, part, kind = found.groups()
        expert = _EXPERT_NAME.fullmatch(part)
        if expert and expert[2] in _EXPERT:
            return f"blk.{layer}.{_EXPERT[expert[2]]}.{kind}", int(expert[1])
        known = _IN_GEMMA_LAYER if architecture.startswith("gemma") else _IN_LAYER
        known = known | IN_RECURRENT_LAYER.get(architecture, {})
        if part in known:
            return f"blk.{layer}.{known[part]}.{kind}", 0
    found = _NAMELESS.fullmatch(short)
    if found and (place := IN_RECURRENT_LAYER.get(architecture, {}).get(found[2])):
        return f"blk.{found[1]}.{place}", 0
    raise UnsupportedModelError(
        f"the checkpoint has a tensor {name!r}, which {architecture} has no place for"
    )


def _tensor(place: str, found: dict[int, str], settings: CheckpointSettings) -> MappedTensor:
    ordered = tuple(found[n] for n in sorted(found))
    wanted = settings.experts if place.endswith("_exps.weight") else 1
    if sorted(found) != list(range(wanted)):
        raise ModelError(f"{place} needs {wanted} tensors, the checkpoint has {len(found)} of them")
    heads = 0
    if settings.architecture in ADJACENT:
        part = place.split(".")[-2]
        heads = {"attn_q": settings.heads, "attn_k": settings.kv_heads}.get(part, 0)
    adds = settings.architecture.startswith("gemma") or settings.delta is not None
    plus_one = adds and place.endswith("norm.weight") and not place.endswith("ssm_norm.weight")
    return MappedTensor(place, ordered, heads, plus_one, changes_of(place, settings))


def _check_complete(have: set[str], settings: CheckpointSettings) -> None:
    """Whether every layer has what the first one of its kind has, and the rest is there."""
    first: dict[object, set[str]] = {}
    last_norm = "token_embd_norm" if settings.architecture == "lfm2" else "output_norm"
    wanted = {"token_embd.weight", f"{last_norm}.weight"}
    for n in range(settings.layers):
        kind, prefix = settings.kinds[n] if settings.kinds else "", f"blk.{n}."
        own = {name[len(prefix) :] for name in have if name.startswith(prefix)}
        wanted |= {prefix + part for part in first.setdefault(kind, own)}
    missing = sorted(wanted - have)
    if missing or not all(first.values()):
        names = ", ".join(missing[:5]) or "blk.0"
        raise ModelError(f"the checkpoint lacks what {names} would be made from")
    layers = {int(name.split(".")[1]) for name in have if name.startswith("blk.")}
    if max(layers) >= settings.layers:
        raise ModelError(f"the checkpoint has layer {max(layers)} of {settings.layers}")


def _order(name: str) -> tuple[int, int]:
    """Embedding, constants, layers, output: as they are read."""
    if name.startswith("blk."):
        return 2, int(name.split(".")[1])
    last = {"output_norm.weight": 3, "token_embd_norm.weight": 3, "output.weight": 4}
    return ({"token_embd.weight": 0} | last).get(name, 1), 0
