"""Model sizes from metadata, and metadata features that no model supports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedModelError
from ..forward.tensors import HeadShape
from ..gguf.file import GGUFFile


@dataclass(frozen=True, slots=True)
class Config:
    """The sizes of a model, from the file's metadata.

    Attributes:
        layers: without those that only draft (`nextn_predict_layers`).
        shapes: of each layer's heads; None: it has no attention.
        ffns: width of each layer's feed-forward half, or of one expert's; 0: it has none.
        sources: the layer whose keys and values each layer reads; most read their own.
        experts: of a layer that has any; 0 in a dense model. experts_used: by each token.
        dense: layers before those with experts.
    """

    layers: int
    width: int
    shapes: tuple[HeadShape | None, ...]
    ffns: tuple[int, ...]
    sources: tuple[int, ...]
    n_vocab: int
    eps: float
    context: int
    experts: int = 0
    experts_used: int = 0
    dense: int = 0

    @property
    def heads(self) -> HeadShape:
        """The largest number and width of heads of any layer, for the buffers."""
        return max((h for h in self.shapes if h), key=lambda h: (h.heads, h.head_dim))

    @property
    def cached(self) -> list[HeadShape | None]:
        """For each layer, the shape of the KV heads that it caches; None: it caches none."""
        own = enumerate(self.sources)
        return [self.shapes[n] if source == n else None for n, source in own]


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
    "rope.scaling.yarn_log_multiplier": ("YaRN with a log multiplier", (0.0,)),
}


def refuse_features(gguf: GGUFFile, architecture: str, understood: Collection[str]) -> None:
    """Raise UnsupportedModelError if metadata require one of `FEATURES` that is not `understood`.

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


def read_layers(gguf: GGUFFile, a: str) -> int:
    """Return the number of layers, without the draft layers that the file's key includes."""
    key = f"{a}.block_count"
    layers = gguf.integer(key, low=1, high=4096)
    drafting = gguf.integer(f"{a}.nextn_predict_layers", 0, high=4096)
    if drafting >= layers:
        gguf.refuse(key, f"{layers} layers, of which {drafting} only draft")
    return layers - drafting


def per_layer(
    gguf: GGUFFile,
    key: str,
    layers: int,
    default: Sequence[int] | None = None,
    *,
    low: int,
    high: int,
) -> tuple[int, ...]:
    """Return the whole number at `key` for each layer, from an array or from one number.

    Raises:
        GGUFError: it is missing and there is no default, or is out of range in a layer.
    """
    value = gguf.metadata.get(key)
    if value is None and default is not None:
        return tuple(default)
    if not isinstance(value, np.ndarray):
        return (gguf.integer(key, low=max(low, 1), high=high),) * layers
    found = gguf.numbers(key, layers)
    assert found is not None, key
    if found.dtype.kind not in "iu" or not ((found >= low) & (found <= high)).all():
        gguf.refuse(key, f"must hold whole numbers between {low} and {high}")
    return tuple(int(n) for n in found[:layers])


def read_heads(
    gguf: GGUFFile, a: str, heads: int, kv_heads: int, usual: int, suffix: str = ""
) -> HeadShape:
    """Return the shape of query and KV heads, of the metadata's head size, else of `usual` dims.

    suffix: of the keys of the sizes, for layers that have others.
    """
    key, value = (f"{a}.attention.{part}_length{suffix}" for part in ("key", "value"))
    head_dim = gguf.integer(key, usual, low=16, high=1024)
    value_dim = gguf.integer(value, head_dim, low=16, high=1024)
    if kv_heads > heads or heads % kv_heads:
        gguf.refuse(
            f"{a}.attention.head_count_kv", f"{heads} heads cannot share {kv_heads} KV heads"
        )
    if value_dim != head_dim or head_dim % 32:
        raise UnsupportedModelError(
            f"{gguf.path}: {key} = {head_dim} and {value} = {value_dim} are not supported: keys "
            f"and values must have one size, a multiple of 32"
        )
    return HeadShape(heads, kv_heads, head_dim)


def read_recurrence(gguf: GGUFFile, a: str) -> tuple[int, int, int, int]:
    """Return the sizes of a recurrence: of a head's state, groups, heads, dims of a head.

    Raises:
        GGUFError: they do not fit each other.
    """
    key = f"{a}.ssm.".__add__
    state, groups, heads, inner = (
        gguf.integer(key(part), low=1, high=1 << 20)
        for part in ("state_size", "group_count", "time_step_rank", "inner_size")
    )
    if heads % groups:
        gguf.refuse(key("group_count"), f"{heads} heads cannot share {groups} groups")
    if inner % heads:
        gguf.refuse(key("inner_size"), f"{inner} channels do not make {heads} heads")
    return state, groups, heads, inner // heads


def refuse_odd_heads(gguf: GGUFFile, a: str, first: int, second: int) -> None:
    """Raise UnsupportedModelError if no kernel supports the sizes of a recurrence's heads."""
    if first % 16 or second % 16:
        why = f"makes heads of {first} by {second}: both must be multiples of 16"
        gguf.unsupported(f"{a}.ssm.inner_size", why)


def windowed_layers(
    gguf: GGUFFile, a: str, layers: int, period: int, whole: int = -1
) -> list[bool]:
    """Return which layers have a sliding window: all but one in `period`, unless a key lists them.

    whole: which one, counted from the first of them, or from the last.
    """
    key = f"{a}.attention.sliding_window_pattern"
    if isinstance(gguf.metadata.get(key), np.ndarray):
        found = gguf.numbers(key, layers)
        assert found is not None, key
        return [bool(n) for n in found[:layers]]
    period = gguf.integer(key, period, low=1)
    return [(n - whole) % period != 0 for n in range(layers)]


def read_config(gguf: GGUFFile, architecture: str, shape: HeadShape | None = None) -> Config:
    """Read the sizes in `architecture`'s metadata, and check each.

    shape: of all layers' heads, where it is not what the usual keys say.

    Raises:
        GGUFError: a key is missing or cannot be right.
        UnsupportedModelError: heads are of a size that no kernel is for.
    """
    a = architecture
    width = gguf.integer(f"{a}.embedding_length", low=1, high=1 << 20)
    layers = read_layers(gguf, a)
    heads = per_layer(gguf, f"{a}.attention.head_count", layers, low=1, high=4096)
    kv_heads = per_layer(gguf, f"{a}.attention.head_count_kv", layers, heads, low=0, high=4096)
    shapes = [
        shape or (read_heads(gguf, a, n, k, width // n) if k else None)
        for n, k in zip(heads, kv_heads, strict=True)
    ]
    if not any(shapes):
        gguf.refuse(f"{a}.attention.head_count_kv", "no layer has attention")
    table = gguf.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        gguf.refuse_tensor("token_embd.weight", "no embedding table", "shape")
    eps_key = f"{a}.attention.layer_norm_rms_epsilon"
    if a.startswith("nemotron_h") and eps_key not in gguf.metadata:
        eps_key = f"{a}.attention.layer_norm_epsilon"
    eps = gguf.number(eps_key)
    if eps <= 0:  # the root of a negative number is none
        gguf.refuse(eps_key, f"must be above 0, is {eps:g}")
    return Config(
        layers=layers,
        width=width,
        shapes=tuple(shapes),
        ffns=per_layer(
            gguf,
            f"{a}.feed_forward_length",
            layers,
            (0,) * layers if f"{a}.expert_feed_forward_length" in gguf.metadata else None,
            low=0,
            high=1 << 22,
        ),
        sources=tuple(range(layers)),
        n_vocab=int(table.shape[0]),
        eps=eps,
        context=gguf.integer(f"{a}.context_length", low=1),
    )
