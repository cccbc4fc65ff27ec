"""A checkpoint's `config.json` as GGUF metadata, for the architectures that are supported.

Files of transformers 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`) are both read. What
would change the model's answers and cannot be said in GGUF is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from .rope import rope_settings

Value = bool | int | float | str | list[bool] | np.ndarray

ARCHITECTURES = {  # `model_type` to `general.architecture`
    "llama": "llama",
    "mistral": "llama",
    "smollm3": "smollm3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "granite": "granite",
    "qwen3_5": "qwen35",
    "qwen3_5_text": "qwen35",
    "lfm2": "lfm2",
    "granitemoehybrid": "granitehybrid",
}
# What transformers takes where a configuration says nothing: Gemma's published ones leave out much.
_GEMMA = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_GEMMA_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {
        **_GEMMA,
        "max_position_embeddings": 8192,
        "rope_theta": 10000.0,
        "vocab_size": 256000,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3": {
        **_GEMMA,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
        "vocab_size": 262208,
    },
}
_PARTIAL = {"qwen35": 0.25}  # of a head's dims that are rotated, where a configuration says nothing
FULL_ATTENTION_INTERVAL = 4
SMOLLM3_NO_ROPE = 4  # every fourth layer has none; llama.cpp's files have no key for it
GEMMA_PERIOD = {"gemma2": 2, "gemma3": 6}  # one layer of so many sees everything, without a key
GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}  # the one size with another attention scale


@dataclass(slots=True)
class CheckpointSettings:
    """What a configuration says, in GGUF's terms.

    Attributes:
        heads, kv_heads, head_dim: attention's shape; rotated: dims of a head that are rotated.
        experts: of one layer, 0 in a dense model.
        rope: rotary settings of full attention: `rope_theta` and what scales it.
        metadata: keys and values of the file, without `general.*` and the tokenizer's.
        kinds: of each layer, where they differ in what tensors they have.
        delta: heads of the gated delta rule, if there is one: of keys and of values, and the dims
            of each.
        groups: of Mamba-2, if there is one.
    """

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int
    experts: int
    rope: dict[str, Any]
    metadata: dict[str, Value] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    delta: tuple[int, int, int, int] | None = None
    groups: int = 0


def read_settings(config: dict[str, Any]) -> CheckpointSettings:
    """Everything that the file's metadata say, from `config.json`.

    Raises:
        UnsupportedModelError: of a type or with a feature that is not supported.
        ModelError: a setting is missing or makes no sense.
    """
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedModelError(f"model type {kind!r} is not supported; supported: {known}")
    architecture = ARCHITECTURES[kind]
    c = dict(config)
    if isinstance(config.get("text_config"), dict):  # a model that sees, too
        c |= config["text_config"]
    c.setdefault("num_experts", c.get("num_local_experts"))  # as transformers 5 names it
    if architecture in _GEMMA_DEFAULTS:
        c = _GEMMA_DEFAULTS[architecture] | {k: v for k, v in c.items() if v is not None}
    width, heads = _whole(c, "hidden_size"), _whole(c, "num_attention_heads")
    head_dim = int(c.get("head_dim") or width // heads)
    kv_heads = int(c.get("num_key_value_heads") or heads)
    rope = rope_settings(c, "full_attention")
    partial = float(rope.get("partial_rotary_factor", _PARTIAL.get(architecture, 1.0)) or 1.0)
    s = CheckpointSettings(
        architecture=architecture,
        layers=_whole(c, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotated=int(head_dim * partial),
        experts=_whole(c, "num_experts") if architecture == "qwen3moe" else 0,
        rope=rope,
    )
    if c.get("hidden_act", c.get("hidden_activation")) not in (None, *_ACTIVATIONS[architecture]):
        _refuse(c, "hidden_act", c.get("hidden_act", c.get("hidden_activation")))
    a = architecture
    s.metadata = {
        f"{a}.block_count": s.layers,
        f"{a}.context_length": _whole(c, "max_position_embeddings"),
        f"{a}.embedding_length": width,
        f"{a}.feed_forward_length": _FFN.get(a, _whole_ffn)(c),
        f"{a}.attention.head_count": heads,
        f"{a}.attention.head_count_kv": kv_heads,
        f"{a}.attention.key_length": head_dim,
        f"{a}.attention.value_length": head_dim,
        f"{a}.attention.layer_norm_rms_epsilon": float(
            c.get("rms_norm_eps", c.get("norm_eps", 1e-6))
        ),
        f"{a}.rope.freq_base": float(rope.get("rope_theta", 10000.0)),
        f"{a}.rope.dimension_count": s.rotated,
        f"{a}.vocab_size": _whole(c, "vocab_size"),
    }
    _add_scaling(s, c)
    _ADD.get(architecture, _add_nothing)(s, c)
    return s


_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(ARCHITECTURES.values(), ("silu", "swish")),
    "gemma2": ("gelu_pytorch_tanh",),
    "gemma3": ("gelu_pytorch_tanh",),
}


def _whole(c: dict[str, Any], key: str) -> int:
    value = c.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: {key} must be a whole number above 0, is {value!r}")
    return value


def _whole_ffn(c: dict[str, Any]) -> int:
    return _whole(c, "intermediate_size")


def _lfm2_ffn(c: dict[str, Any]) -> int:
    """Its width as the model is built: two thirds, and rounded up, unless that is switched off."""
    width = int(c.get("block_ff_dim") or _whole(c, "intermediate_size"))
    if not c.get("block_auto_adjust_ff_dim", True):
        return width
    width, multiple = int(2 * width / 3), int(c.get("block_multiple_of") or 256)
    if c.get("block_ffn_dim_multiplier") is None:
        return width
    return -(-int(c["block_ffn_dim_multiplier"] * width) // multiple) * multiple


def _shared_ffn(c: dict[str, Any]) -> int:
    return _whole(c, "shared_intermediate_size")


_FFN = {"lfm2": _lfm2_ffn, "granitehybrid": _shared_ffn}


def _refuse(c: dict[str, Any], what: str, value: object) -> NoReturn:
    raise UnsupportedModelError(f"config.json of a {c['model_type']}: {what} = {value!r} is not "
                                f"supported")  # fmt: skip


# --- rotary positions


def _add_scaling(s: CheckpointSettings, c: dict[str, Any]) -> None:
    a, rope, kind = s.architecture, s.rope, s.rope["rope_type"]
    key = f"{a}.rope.scaling.".__add__
    if kind in ("default", "llama3"):  # what llama3 does is in a tensor
        return
    if kind in ("longrope", "su") and a == "phi3":
        return  # see `_add_phi3`
    if kind not in ("linear", "yarn"):
        _refuse(c, "rope scaling", kind)
    s.metadata[key("type")] = kind
    s.metadata[key("factor")] = float(rope["factor"])
    if kind == "yarn":
        for name in ("mscale", "mscale_all_dim", "attention_factor"):
            if rope.get(name) is not None:
                _refuse(c, f"rope scaling's {name}", rope[name])
        original = rope.get("original_max_position_embeddings") or c["max_position_embeddings"]
        s.metadata[key("original_context_length")] = int(original)
        for name in ("beta_fast", "beta_slow"):
            if rope.get(name) is not None:
                s.metadata[key(f"yarn_{name}")] = float(rope[name])


# --- what only one architecture has


def _add_nothing(s: CheckpointSettings, c: dict[str, Any]) -> None:
    pass


def _add_llama(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c.get("sliding_window"):  # Mistral's first
        s.metadata["llama.attention.sliding_window"] = int(c["sliding_window"])


def _no_window(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c.get("use_sliding_window") and c.get("sliding_window"):
        _refuse(c, "use_sliding_window", True)


def _add_smollm3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _no_window(s, c)
    rule = [int((n + 1) % SMOLLM3_NO_ROPE != 0) for n in range(s.layers)]
    if (c.get("no_rope_layers") or rule) != rule:
        _refuse(c, "no_rope_layers", c["no_rope_layers"])


def _add_qwen3moe(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _no_window(s, c)
    if not c.get("norm_topk_prob"):
        _refuse(c, "norm_topk_prob", c.get("norm_topk_prob"))
    if c.get("mlp_only_layers") or c.get("decoder_sparse_step", 1) != 1:
        _refuse(c, "mlp_only_layers", c.get("mlp_only_layers"))
    s.metadata["qwen3moe.expert_count"] = _whole(c, "num_experts")
    s.metadata["qwen3moe.expert_used_count"] = _whole(c, "num_experts_per_tok")
    s.metadata["qwen3moe.expert_feed_forward_length"] = _whole(c, "moe_intermediate_size")


def _add_gemma2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _add_gemma_layers(s, c)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        s.metadata[f"gemma2.{key}"] = float(c.get(key) or 0.0)


def _add_gemma3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c.get("attn_logit_softcapping"):
        _refuse(c, "attn_logit_softcapping", c["attn_logit_softcapping"])
    if c.get("use_bidirectional_attention"):
        _refuse(c, "use_bidirectional_attention", True)
    _add_gemma_layers(s, c)
    sliding = rope_settings(c, "sliding_attention")
    s.metadata["gemma3.rope.freq_base_swa"] = float(sliding["rope_theta"])
    if sliding["rope_type"] != "default":
        _refuse(c, "rope scaling of sliding attention", sliding["rope_type"])
    if c.get("final_logit_softcapping"):
        s.metadata["gemma3.final_logit_softcapping"] = float(c["final_logit_softcapping"])


def _add_gemma_layers(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Which layers see a window, and the scale of scores where it is not the usual one."""
    m, a = s.metadata, s.architecture
    m[f"{a}.attention.sliding_window"] = _whole(c, "sliding_window")
    usual = [bool((n + 1) % GEMMA_PERIOD[a]) for n in range(s.layers)]
    period = int(c.get("sliding_window_pattern") or GEMMA_PERIOD[a])
    sliding = [bool((n + 1) % period) for n in range(s.layers)]
    if c.get("layer_types"):
        sliding = [kind == "sliding_attention" for kind in c["layer_types"]]
    if sliding != usual:
        m[f"{a}.attention.sliding_window_pattern"] = sliding
    size = s.head_dim
    if s.layers == GEMMA_27B_LAYERS[a]:
        size = _whole(c, "hidden_size") // s.heads
    if c["query_pre_attn_scalar"] != size:
        m[f"{a}.attention.scale"] = float(c["query_pre_attn_scalar"]) ** -0.5


def _add_phi3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    context = _whole(c, "max_position_embeddings")
    original = int(s.rope.get("original_max_position_embeddings") or context)
    s.metadata["phi3.rope.scaling.original_context_length"] = original
    s.metadata["phi3.attention.sliding_window"] = int(c.get("sliding_window") or 0)
    if s.rope["rope_type"] in ("longrope", "su"):
        longer = context / original
        given = s.rope.get("attention_factor")
        factor = math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 else 1.0
        s.metadata["phi3.rope.scaling.attn_factor"] = float(given or factor)


def _kv_heads_by_layer(s: CheckpointSettings) -> np.ndarray:
    """KV heads of each layer; 0: it does not attend."""
    heads = [s.kv_heads if kind in ("full_attention", "attention") else 0 for kind in s.kinds]
    return np.array(heads, np.int32)


def _add_lfm2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    attending = c.get("full_attn_idxs")
    attending = range(s.layers) if attending is None else attending
    usual = ["full_attention" if n in attending else "conv" for n in range(s.layers)]
    s.kinds = list(c.get("layer_types") or usual)
    s.metadata["lfm2.attention.head_count_kv"] = _kv_heads_by_layer(s)
    s.metadata["lfm2.shortconv.l_cache"] = int(c.get("conv_L_cache") or 3)
    if c.get("conv_bias"):
        _refuse(c, "conv_bias", True)


def _add_granitehybrid(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _add_granite(s, c)
    a, m = s.architecture, s.metadata
    if c.get("num_local_experts"):
        _refuse(c, "num_local_experts", c["num_local_experts"])
    if c.get("mamba_proj_bias") or c.get("attention_bias") or not c.get("mamba_conv_bias", True):
        _refuse(c, "biases", "other than of the convolution")
    low, high = c.get("time_step_limit") or (0.0, math.inf)
    if low > 0.0 or high < math.inf:  # no engine of these files has bounds
        _refuse(c, "time_step_limit", c["time_step_limit"])
    s.kinds = list(c.get("layer_types") or c["layers_block_type"])
    s.groups, heads = int(c.get("mamba_n_groups") or 1), _whole(c, "mamba_n_heads")
    m[f"{a}.attention.head_count_kv"] = _kv_heads_by_layer(s)
    m[f"{a}.rope.scaling.finetuned"] = c.get("position_embedding_type") == "rope"
    m[f"{a}.ssm.conv_kernel"] = int(c.get("mamba_d_conv") or 4)
    m[f"{a}.ssm.state_size"] = _whole(c, "mamba_d_state")
    m[f"{a}.ssm.group_count"] = s.groups
    m[f"{a}.ssm.time_step_rank"] = heads
    m[f"{a}.ssm.inner_size"] = int(c.get("mamba_expand") or 2) * _whole(c, "hidden_size")


def _add_granite(s: CheckpointSettings, c: dict[str, Any]) -> None:
    for key, name in {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }.items():
        s.metadata[f"{s.architecture}.{name}"] = float(c.get(key) or 1.0)


def _add_qwen35(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Sizes of the gated delta rule, and which layers attend."""
    a, m = s.architecture, s.metadata
    keys, values = _whole(c, "linear_num_key_heads"), _whole(c, "linear_num_value_heads")
    key_dim, value_dim = _whole(c, "linear_key_head_dim"), _whole(c, "linear_value_head_dim")
    s.delta = keys, values, key_dim, value_dim
    m[f"{a}.ssm.conv_kernel"] = _whole(c, "linear_conv_kernel_dim")
    m[f"{a}.ssm.state_size"] = key_dim
    m[f"{a}.ssm.group_count"] = keys
    m[f"{a}.ssm.time_step_rank"] = values
    m[f"{a}.ssm.inner_size"] = values * value_dim
    every = int(c.get("full_attention_interval") or FULL_ATTENTION_INTERVAL)
    usual = ["full_attention" if (n + 1) % every == 0 else "linear_attention"
             for n in range(s.layers)]  # fmt: skip
    s.kinds = list(c.get("layer_types") or usual)
    m[f"{a}.full_attention_interval"] = every
    if s.kinds != usual:
        m[f"{a}.attention.recurrent_layers"] = [kind == "linear_attention" for kind in s.kinds]
    sections = s.rope.get("mrope_section") or [11, 11, 10]
    m[f"{a}.rope.dimension_sections"] = np.array([*sections, 0][:4], np.int32)
    if c.get("attention_bias"):
        _refuse(c, "attention_bias", True)


_ADD = {
    "qwen35": _add_qwen35,
    "lfm2": _add_lfm2,
    "granitehybrid": _add_granitehybrid,
    "llama": _add_llama,
    "smollm3": _add_smollm3,
    "qwen2": _no_window,
    "qwen3": _no_window,
    "qwen3moe": _add_qwen3moe,
    "gemma2": _add_gemma2,
    "gemma3": _add_gemma3,
    "phi3": _add_phi3,
    "granite": _add_granite,
}
