"""Settings of models with recurrent layers: the kinds of layers, and their sizes."""

from __future__ import annotations

import math
from typing import Any

from .checkpoint_settings import CheckpointSettings
from .fields import refuse, refuse_set, whole
from .mixtures import SIGMOID, add_experts, add_groups, refuse_other_mixtures

FULL_ATTENTION_INTERVAL = 4


def _lfm2_ffn(c: dict[str, Any]) -> int:
    """Return the width as the model is built: two thirds, rounded up, unless switched off."""
    width = int(c.get("block_ff_dim") or whole(c, "intermediate_size"))
    if not c.get("block_auto_adjust_ff_dim", True):
        return width
    width, multiple = int(2 * width / 3), int(c.get("block_multiple_of") or 256)
    if c.get("block_ffn_dim_multiplier") is None:
        return width
    return -(-int(c["block_ffn_dim_multiplier"] * width) // multiple) * multiple


def _granite_ffn(c: dict[str, Any]) -> int:
    return whole(c, "intermediate_size" if c.get("num_experts") else "shared_intermediate_size")


def _expert_ffn(c: dict[str, Any]) -> int:
    return int(c.get("intermediate_size") or whole(c, "moe_intermediate_size"))


_FFN = {"lfm2": _lfm2_ffn, "granitehybrid": _granite_ffn, "qwen35moe": _expert_ffn}


def ffn_of(architecture: str, c: dict[str, Any]) -> int:
    """Return the width of the feed-forward halves, from the architecture's own keys."""
    own = _FFN.get(architecture)
    return own(c) if own else whole(c, "intermediate_size")


def _kv_heads_by_layer(s: CheckpointSettings) -> list[int]:
    """Return the KV heads of each layer; 0: it does not attend."""
    return [s.kv_heads if kind in ("full_attention", "attention") else 0 for kind in s.kinds]


def _add_lfm2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    attending = c.get("full_attn_idxs")
    attending = range(s.layers) if attending is None else attending
    usual = ["full_attention" if n in attending else "conv" for n in range(s.layers)]
    s.kinds = list(c.get("layer_types") or usual)
    a, m = s.architecture, s.metadata
    m[f"{a}.attention.head_count_kv"] = _kv_heads_by_layer(s)
    m[f"{a}.shortconv.l_cache"] = int(c.get("conv_L_cache") or 3)
    refuse_set(c, "conv_bias")
    if a == "lfm2":
        return
    if not c.get("norm_topk_prob", True):
        refuse(c, "norm_topk_prob", False)
    add_experts(s, c, "moe_intermediate_size")
    dense = int(c.get("num_dense_layers", 2))
    m[f"{a}.leading_dense_block_count"], m[f"{a}.expert_gating_func"] = dense, SIGMOID
    m[f"{a}.expert_weights_scale"] = float(c.get("routed_scaling_factor") or 1.0)
    s.kinds = [f"{kind}, {'dense' if n < dense else 'sparse'}" for n, kind in enumerate(s.kinds)]


def _number(value: Any) -> float:
    """Return a number of a configuration, which may be one that JSON cannot write."""
    return float(value["__float__"] if isinstance(value, dict) else value)


def add_granitehybrid(s: CheckpointSettings, c: dict[str, Any]) -> None:
    a, m = s.architecture, s.metadata
    if c.get("num_experts"):
        add_experts(s, c, "intermediate_size", "shared_intermediate_size")
    if c.get("mamba_proj_bias") or c.get("attention_bias") or not c.get("mamba_conv_bias", True):
        refuse(c, "biases", "other than of the convolution")
    low, high = map(_number, c.get("time_step_limit") or (0.0, math.inf))
    if low > 0.0 or high < math.inf:  # no engine of these files has bounds
        refuse(c, "time_step_limit", c["time_step_limit"])
    s.kinds = list(c.get("layer_types") or c["layers_block_type"])
    s.groups, heads = int(c.get("mamba_n_groups") or 1), whole(c, "mamba_n_heads")
    m[f"{a}.attention.head_count_kv"] = _kv_heads_by_layer(s)
    m[f"{a}.rope.scaling.finetuned"] = c.get("position_embedding_type") == "rope"
    m[f"{a}.ssm.conv_kernel"] = int(c.get("mamba_d_conv") or 4)
    m[f"{a}.ssm.state_size"] = whole(c, "mamba_d_state")
    m[f"{a}.ssm.group_count"] = s.groups
    m[f"{a}.ssm.time_step_rank"] = heads
    m[f"{a}.ssm.inner_size"] = int(c.get("mamba_expand") or 2) * whole(c, "hidden_size")


_NEMOTRON_KINDS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OLD_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}


def nemotron_blocks(c: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the architecture of a Nemotron H, dense or MoE, and its config with block kinds."""
    kinds = c.get("layers_block_type") or c.get("layer_types")
    kinds = kinds or [
        _NEMOTRON_KINDS.get(letter, letter) for letter in c["hybrid_override_pattern"]
    ]
    kinds = [_OLD_KINDS.get(kind, kind) for kind in map(str, kinds)]
    sparse = "moe" in kinds
    if unknown := set(kinds) - set(_NEMOTRON_KINDS.values()):
        refuse(c, "block type", unknown.pop())
    if sparse and "mlp" in kinds:
        refuse(c, "dense blocks beside those with experts", "mlp")
    c |= {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    # Not the width over the heads, and older checkpoints have another name for it.
    c["head_dim"] = c.get("head_dim") or c.get("attention_head_dim") or 128
    if sparse:
        c |= {"num_experts": c.get("n_routed_experts")}
    return ("nemotron_h_moe" if sparse else "nemotron_h"), c


def _add_nemotron(s: CheckpointSettings, c: dict[str, Any]) -> None:
    a, m = s.architecture, s.metadata
    refuse_set(c, "attention_bias", "mlp_bias", "use_bias", "moe_latent_size")
    if c.get("mlp_hidden_act", "relu2") != "relu2" or not c.get("use_conv_bias", True):
        refuse(c, "mlp_hidden_act, use_conv_bias", (c.get("mlp_hidden_act"), False))
    s.kinds, width = c["layer_types"], whole(c, "intermediate_size")
    m[f"{a}.attention.head_count_kv"] = _kv_heads_by_layer(s)
    m[f"{a}.attention.layer_norm_rms_epsilon"] = float(c.get("layer_norm_epsilon", 1e-5))
    heads, dim = whole(c, "mamba_num_heads"), whole(c, "mamba_head_dim")
    s.groups = whole(c, "n_groups")
    m[f"{a}.ssm.conv_kernel"] = int(c.get("conv_kernel") or 4)
    m[f"{a}.ssm.state_size"] = whole(c, "ssm_state_size")
    m[f"{a}.ssm.group_count"] = s.groups
    m[f"{a}.ssm.time_step_rank"] = heads
    m[f"{a}.ssm.inner_size"] = heads * dim
    if a == "nemotron_h_moe":
        add_experts(s, c, "moe_intermediate_size", "moe_shared_expert_intermediate_size")
        width = whole(c, "moe_intermediate_size")
        m[f"{a}.expert_shared_count"] = int(c.get("n_shared_experts", 1))
        m[f"{a}.expert_gating_func"] = SIGMOID
        m[f"{a}.expert_weights_norm"] = bool(c.get("norm_topk_prob", True))
        m[f"{a}.expert_weights_scale"] = float(c.get("routed_scaling_factor") or 1.0)
        add_groups(s, c)
    m[f"{a}.feed_forward_length"] = [width * (kind in ("mlp", "moe")) for kind in s.kinds]


def _add_qwen35(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add the sizes of the gated delta rule, and which layers attend."""
    a, m = s.architecture, s.metadata
    keys, values = whole(c, "linear_num_key_heads"), whole(c, "linear_num_value_heads")
    key_dim, value_dim = whole(c, "linear_key_head_dim"), whole(c, "linear_value_head_dim")
    s.delta = keys, values, key_dim, value_dim
    m[f"{a}.ssm.conv_kernel"] = whole(c, "linear_conv_kernel_dim")
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
    if a != "qwen3next":
        sections = s.rope.get("mrope_section") or [11, 11, 10]
        m[f"{a}.rope.dimension_sections"] = [*sections, 0][:4]
    refuse_set(c, "attention_bias")
    if a == "qwen35":
        return
    add_experts(s, c, "moe_intermediate_size", "shared_expert_intermediate_size")
    refuse_other_mixtures(c, normed=True)


ADD = {
    "qwen35": _add_qwen35,
    "qwen35moe": _add_qwen35,
    "qwen3next": _add_qwen35,
    "lfm2": _add_lfm2,
    "lfm2moe": _add_lfm2,
    "nemotron_h": _add_nemotron,
    "nemotron_h_moe": _add_nemotron,
}
"""Functions that add an architecture's own settings, by architecture."""
