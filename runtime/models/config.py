"""The sizes that a model's metadata give, and what they ask for that no model here has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedModelError
from ..forward.tensors import HeadShape
from ..gguf.file import GGUFFile


@dataclass(frozen=True, slots=True)
class Config:
    """Shape of a model, from the file's metadata."""

    layers: int
    width: int
    ffn: int
    heads: HeadShape
    n_vocab: int
    eps: float
    context: int
    experts: int = 0  # in each layer; 0 in a dense model
    experts_used: int = 0  # by each token


# Keys that change what a model computes: what they ask for, and values that ask for nothing.
FEATURES: dict[str, tuple[str, tuple[object, ...]]] = {
    "attention.sliding_window": ("a sliding window", (0,)),
    "attention.sliding_window_pattern": ("windows in some layers", (0, 1)),
    "attention.scale": ("an attention scale", ()),
    "attention.clamp_kqv": ("clamped queries, keys and values", (0.0,)),
    "attention.max_alibi_bias": ("ALiBi positions", (0.0,)),
    "attention.causal": ("attention that sees the future", (True,)),
    "attention.temperature_scale": ("an attention temperature", (0.0,)),
    "attention.kv_lora_rank": ("multi-head latent attention", (0,)),
    "attention.key_length_swa": ("other head sizes in sliding layers", ()),
    "attention.shared_kv_layers": ("a KV cache shared between layers", (0,)),
    "attn_logit_softcapping": ("bounded attention scores", (0.0,)),
    "final_logit_softcapping": ("bounded logits", (0.0,)),
    "embedding_scale": ("an embedding scale", (0.0, 1.0)),
    "residual_scale": ("a residual scale", (0.0, 1.0)),
    "logit_scale": ("a logit scale", (0.0, 1.0)),
    "use_parallel_residual": ("parallel residuals", (False,)),
    "expert_count": ("a mixture of experts", (0,)),
    "expert_shared_count": ("shared experts", (0,)),
    "expert_shared_feed_forward_length": ("shared experts", (0,)),
    "leading_dense_block_count": ("dense layers before those with experts", (0,)),
    "expert_gating_func": ("experts chosen by something else than softmax", (0, 1)),
    "expert_weights_norm": ("experts whose weights are not normalized", (True,)),
    "expert_weights_scale": ("a scale of the experts' weights", (0.0, 1.0)),
    "expert_group_count": ("groups of experts", (0, 1)),
    "rope.dimension_sections": ("rotary sections", ()),
    "rope.dimension_count_swa": ("other rotary dims in sliding layers", ()),
    "rope.scaling.yarn_ext_factor": ("YaRN with a mix of its own", (-1.0, 1.0)),
    "rope.scaling.yarn_attn_factor": ("YaRN with a magnitude of its own", (1.0,)),
    "rope.scaling.yarn_log_multiplier": ("YaRN with a log multiplier", (0.0,)),
}


def refuse_features(gguf: GGUFFile, architecture: str, understood: Collection[str]) -> None:
    """Refuse a file whose metadata ask for one of `FEATURES` that is not `understood`.

    Raises:
        UnsupportedModelError: it names the key.
    """
    for key, (meaning, nothing) in FEATURES.items():
        name = f"{architecture}.{key}"
        value = gguf.metadata.get(name)
        if key in understood or value is None:
            continue
        if isinstance(value, bool | int | float):
            seen = gguf.integer(f"{architecture}.context_length", low=1)
            if value in nothing or (key == "attention.sliding_window" and value >= seen):
                continue
        raise UnsupportedModelError(
            f"{gguf.path}: {name} asks for {meaning}, which is not supported for {architecture}"
        )


def read_config(gguf: GGUFFile, architecture: str) -> Config:
    """The sizes that `architecture`'s metadata give, each checked for sense.

    Raises:
        GGUFError: a key is missing or cannot be right.
    """
    a = architecture
    width = gguf.integer(f"{a}.embedding_length", low=1, high=1 << 20)
    heads = gguf.integer(f"{a}.attention.head_count", low=1, high=4096)
    kv_heads = gguf.metadata.get(f"{a}.attention.head_count_kv")
    if isinstance(kv_heads, np.ndarray):
        layers = gguf.integer(f"{a}.block_count", low=1, high=4096)
        kv_heads = _one_number(gguf, a, kv_heads_of(gguf, a, layers), heads)
    else:
        kv_heads = gguf.integer(f"{a}.attention.head_count_kv", heads, low=1, high=heads)
    head_dim = gguf.integer(f"{a}.attention.key_length", width // heads, low=16, high=1024)
    value_dim = gguf.integer(f"{a}.attention.value_length", head_dim, low=16, high=1024)
    if heads % kv_heads:
        gguf.refuse(
            f"{a}.attention.head_count_kv", f"{heads} heads cannot share {kv_heads} KV heads"
        )
    if value_dim != head_dim or head_dim % 32:
        gguf.refuse(
            f"{a}.attention.key_length",
            f"head sizes {head_dim} and {value_dim} do not fit: keys and values need one, "
            f"a multiple of 32",
        )
    table = gguf.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        gguf.refuse_tensor("token_embd.weight", "no embedding table", "shape")
    eps = gguf.number(f"{a}.attention.layer_norm_rms_epsilon")
    if eps <= 0:  # the root of a negative number is none
        gguf.refuse(f"{a}.attention.layer_norm_rms_epsilon", f"must be above 0, is {eps:g}")
    return Config(
        layers=gguf.integer(f"{a}.block_count", low=1, high=4096),
        width=width,
        ffn=gguf.integer(f"{a}.feed_forward_length", low=1, high=1 << 22),
        heads=HeadShape(heads, kv_heads, head_dim),
        n_vocab=int(table.shape[0]),
        eps=eps,
        context=gguf.integer(f"{a}.context_length", low=1),
    )


def kv_heads_of(gguf: GGUFFile, architecture: str, layers: int) -> list[int]:
    """KV heads of each layer; 0: it does not attend."""
    key = f"{architecture}.attention.head_count_kv"
    if isinstance(gguf.metadata.get(key), np.ndarray):
        given = gguf.numbers(key, layers)
        assert given is not None, "the key is there"
        return [int(n) for n in given[:layers]]
    return [gguf.integer(key, low=1)] * layers


def _one_number(gguf: GGUFFile, architecture: str, kv_heads: list[int], heads: int) -> int:
    """The KV heads of layers that attend, which have to be alike."""
    found = {n for n in kv_heads if n}
    if len(found) != 1 or not 0 < min(found) <= heads:
        said = f"KV heads {sorted(found)} for {heads} heads: layers that attend need one number"
        gguf.refuse(f"{architecture}.attention.head_count_kv", said)
    return found.pop()
