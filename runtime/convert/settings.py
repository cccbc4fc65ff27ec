"""A checkpoint's `config.json` as GGUF metadata, for the architectures that are supported.

Files of transformers 4 (`rope_theta`, `rope_scaling`) and 5 (`rope_parameters`) are both read. What
would change the model's answers and cannot be said in GGUF is refused by name.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import UnsupportedModelError
from ..models import REFUSED
from ..models.gemma2 import Gemma2
from ..models.gemma3 import Gemma3
from ..models.smollm3 import NO_ROPE_STEP
from . import recurrent_settings as recurrent
from .checkpoint_settings import CheckpointSettings
from .defaults import norm_epsilon, with_defaults
from .fields import refuse, refuse_set, whole
from .limits import check_limits
from .mixtures import SIGMOID, add_dense_layers, add_experts, add_groups, refuse_other_mixtures
from .rope import add_scaling, rope_settings

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
    "qwen3_vl": "qwen3vl",
    "qwen3_vl_text": "qwen3vl",
    "qwen3_vl_moe": "qwen3vlmoe",
    "qwen3_vl_moe_text": "qwen3vlmoe",
    "mistral3": "mistral3",
    "ministral3": "mistral3",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "gpt_oss": "gpt-oss",
    "laguna": "laguna",
    "glm4_moe_lite": "deepseek2",
    "deepseek_v2": "deepseek2",
    "gemma4": "gemma4",
    "gemma4_text": "gemma4",
    "qwen3_5": "qwen35",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe": "qwen35moe",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_next": "qwen3next",
    "lfm2_moe": "lfm2moe",
    "nemotron_h": "nemotron_h",
    "lfm2": "lfm2",
    "granitemoehybrid": "granitehybrid",
}
# Of a head's dims, those that are rotated where a configuration says nothing. transformers reads
# `partial_rotary_factor` for these architectures only.
_PARTIAL: dict[str, float] = {
    **dict.fromkeys(("phi3", "laguna", "deepseek2", "gemma4"), 1.0),
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next"), 0.25),
}
MISTRAL_WINDOW = 4096  # of a `mistral` whose configuration lacks the key; null is none
_GEMMA = {"gemma2": Gemma2, "gemma3": Gemma3}


def read_settings(config: dict[str, Any]) -> CheckpointSettings:
    """Return all metadata of the file, from `config.json`.

    Raises:
        UnsupportedModelError: of a type or with a feature that is not supported.
        ModelError: a setting is missing or makes no sense.
    """
    kind = config.get("model_type")
    if kind not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        if str(kind) in ("gemma4_assistant", "gemma4_unified_assistant"):
            raise UnsupportedModelError(f"model type {kind!r} {REFUSED['gemma4-assistant']}")
        raise UnsupportedModelError(f"model type {kind!r} is not supported; supported: {known}")
    architecture = ARCHITECTURES[kind]
    c = dict(config)
    if architecture == "nemotron_h":
        architecture, c = recurrent.nemotron_blocks(c)
    if isinstance(config.get("text_config"), dict):  # a model that sees, too
        c |= config["text_config"]
    c.setdefault("num_experts", c.get("num_local_experts") or c.get("n_routed_experts"))
    c = with_defaults(c, architecture)
    width, heads = whole(c, "hidden_size"), whole(c, "num_attention_heads")
    head_dim = int(c.get("head_dim") or width // heads)
    kv_heads = int(c.get("num_key_value_heads") or heads)
    rope = rope_settings(c, "full_attention")
    partial = float(rope.get("partial_rotary_factor", _PARTIAL.get(architecture, 1.0)) or 1.0)
    if architecture not in _PARTIAL:
        if partial != 1.0 and rope["rope_type"] != "default":
            refuse(c, "partial_rotary_factor with rope scaling", partial)
        partial = 1.0
    if rope["rope_type"] == "proportional":  # see `frequency_factors`
        partial = 1.0
    s = CheckpointSettings(
        architecture=architecture,
        layers=whole(c, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotated=int(head_dim * partial),
        rope=rope,
    )
    if c.get("hidden_act", c.get("hidden_activation")) not in (None, *_ACTIVATIONS[architecture]):
        refuse(c, "hidden_act", c.get("hidden_act", c.get("hidden_activation")))
    a = architecture
    s.metadata = {
        f"{a}.block_count": s.layers,
        f"{a}.context_length": whole(c, "max_position_embeddings"),
        f"{a}.embedding_length": width,
        f"{a}.feed_forward_length": recurrent.ffn_of(a, c),
        f"{a}.attention.head_count": heads,
        f"{a}.attention.head_count_kv": kv_heads,
        f"{a}.attention.key_length": head_dim,
        f"{a}.attention.value_length": head_dim,
        f"{a}.attention.layer_norm_rms_epsilon": norm_epsilon(c, a),
        f"{a}.rope.freq_base": float(rope.get("rope_theta", 10000.0)),
        f"{a}.rope.dimension_count": s.rotated,
        f"{a}.vocab_size": whole(c, "vocab_size"),
    }
    add_scaling(s, c)
    if add := _ADD.get(architecture):
        add(s, c)
    check_limits(s, c)
    return s


_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*ARCHITECTURES.values(), "nemotron_h_moe"), ("silu", "swish")),
    "gemma2": ("gelu_pytorch_tanh",),
    "gemma3": ("gelu_pytorch_tanh",),
    "gemma4": ("gelu_pytorch_tanh",),
}


# --- what only one architecture has


def _add_mistral_window(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add the window as transformers does: a Llama has none, whatever its configuration has."""
    usual = MISTRAL_WINDOW if c["model_type"] == "mistral" else None
    window = None if c["model_type"] == "llama" else c.get("sliding_window", usual)
    if window:
        s.metadata[f"{s.architecture}.attention.sliding_window"] = int(window)


def _no_window(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c.get("use_sliding_window") and c.get("sliding_window"):
        refuse(c, "use_sliding_window", True)


def _no_late_window(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Refuse windows of the layers from `max_window_layers` on, if not given by layer.

    The usual number of layers without is that of transformers.
    """
    kinds = c.get("layer_types")
    if "sliding_attention" in kinds if kinds else int(c.get("max_window_layers", 28)) < s.layers:
        _no_window(s, c)


def _add_smollm3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _no_window(s, c)
    rule = [int((n + 1) % NO_ROPE_STEP != 0) for n in range(s.layers)]
    if given := c.get("no_rope_layers"):  # then nothing reads the interval
        if given != rule:
            refuse(c, "no_rope_layers", given)
    elif c.get("no_rope_layer_interval", NO_ROPE_STEP) != NO_ROPE_STEP:
        refuse(c, "no_rope_layer_interval", c["no_rope_layer_interval"])


def _add_qwen3moe(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _no_window(s, c)
    refuse_other_mixtures(c, normed=s.architecture == "qwen3vlmoe")
    add_experts(s, c, "moe_intermediate_size")


def _add_qwen3vl(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if s.architecture == "qwen3vlmoe":
        _add_qwen3moe(s, c)
    sections = [int(n) for n in s.rope.get("mrope_section") or []]
    s.metadata[f"{s.architecture}.rope.dimension_sections"] = (sections + [0] * 4)[:4]
    seen = (c.get("vision_config") or {}).get("deepstack_visual_indexes") or []
    s.metadata[f"{s.architecture}.n_deepstack_layers"] = len(seen)


def _add_mistral3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _add_mistral_window(s, c)
    if s.rope.get("llama_4_scaling_beta"):
        rate = float(s.rope["llama_4_scaling_beta"])
        s.metadata["mistral3.attention.temperature_scale"] = rate
        first = s.rope.get("original_max_position_embeddings") or c["max_position_embeddings"]
        s.metadata["mistral3.rope.scaling.original_context_length"] = int(first)


def _add_olmo2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c["model_type"] != "olmo3" or not c.get("sliding_window"):
        return
    _near_rope(c)
    s.metadata["olmo2.attention.sliding_window"] = int(c["sliding_window"])
    s.metadata["olmo2.attention.sliding_window_pattern"] = _slides(s, c, 4)


def _add_gpt_oss(s: CheckpointSettings, c: dict[str, Any]) -> None:
    for key, usual in (("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)):
        if c.get(key, usual) != usual:
            refuse(c, key, c[key])
    m = s.metadata
    m["gpt-oss.attention.sliding_window"] = whole(c, "sliding_window")
    m["gpt-oss.attention.sliding_window_pattern"] = _slides(s, c, 2)
    add_experts(s, c, "intermediate_size")


def _add_laguna(s: CheckpointSettings, c: dict[str, Any]) -> None:
    refuse_set(c, "moe_router_logit_softcapping", "moe_apply_router_weight_on_input")
    m, slides = s.metadata, [kind == "sliding_attention" for kind in c.get("layer_types") or []]
    heads = c.get("num_attention_heads_per_layer") or [s.heads] * s.layers
    m["laguna.attention.head_count"] = [int(n) for n in heads]
    add_dense_layers(s, c, usual=1)
    if any(slides):
        near = _near_rope(c)
        m["laguna.attention.sliding_window"] = whole(c, "sliding_window")
        m["laguna.attention.sliding_window_pattern"] = slides
        m["laguna.rope.freq_base_swa"] = float(near["rope_theta"])
        rotated = s.head_dim * float(near.get("partial_rotary_factor", 1.0))
        m["laguna.rope.dimension_count_swa"] = int(rotated)
    add_experts(s, c, "moe_intermediate_size", "shared_expert_intermediate_size")
    m["laguna.expert_gating_func"], m["laguna.expert_weights_norm"] = SIGMOID, True
    m["laguna.expert_weights_scale"] = float(c.get("moe_routed_scaling_factor") or 1.0)


def _add_deepseek2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add the settings of GLM-4.7-Flash and DeepSeek-V2: see `models/deepseek2.py`."""
    glm = c["model_type"] == "glm4_moe_lite"
    if not c.get("rope_interleave", True):
        refuse(c, "rope_interleave", c.get("rope_interleave"))
    if not glm and (c.get("topk_method") or "greedy") != "greedy":
        refuse(c, "topk_method", c["topk_method"])  # its groups count by their best alone
    if not glm:
        refuse_set(c, "norm_topk_prob")  # DeepSeek's own code does it, transformers does not
    m, a = s.metadata, "deepseek2.attention."
    rank, rotated = whole(c, "kv_lora_rank"), whole(c, "qk_rope_head_dim")
    nope, values = whole(c, "qk_nope_head_dim"), whole(c, "v_head_dim")
    add_dense_layers(s, c, usual=int(c.get("first_k_dense_replace", 1 if glm else 0)))
    m[f"{a}head_count_kv"], m[f"{a}kv_lora_rank"] = 1, rank
    if c.get("q_lora_rank"):
        m[f"{a}q_lora_rank"] = whole(c, "q_lora_rank")
    m[f"{a}key_length"], m[f"{a}value_length"] = rank + rotated, rank
    m[f"{a}key_length_mla"], m[f"{a}value_length_mla"] = nope + rotated, values
    m["deepseek2.rope.dimension_count"] = rotated
    add_experts(s, c, "moe_intermediate_size")
    m["deepseek2.expert_gating_func"] = SIGMOID if glm else 1
    m["deepseek2.expert_shared_count"] = int(c.get("n_shared_experts") or 0)
    m["deepseek2.expert_weights_norm"] = glm and bool(c.get("norm_topk_prob", True))
    m["deepseek2.expert_weights_scale"] = float(c.get("routed_scaling_factor") or 1.0)
    add_groups(s, c if glm else {})

    def by_head(x: np.ndarray) -> np.ndarray:
        return x.reshape(s.heads, nope + values, rank)

    s.views["attn_k_b.weight"] = lambda x, width: by_head(x)[:, :nope].swapaxes(1, 2)
    s.views["attn_v_b.weight"] = lambda x, width: by_head(x)[:, nope:]


def _near_rope(c: dict[str, Any]) -> dict[str, Any]:
    """Return the rotation of layers with a window, which has no scaling in these files."""
    near = rope_settings(c, "sliding_attention")
    if near["rope_type"] != "default":
        refuse(c, "rope scaling of sliding attention", near["rope_type"])
    return near


def _slides(s: CheckpointSettings, c: dict[str, Any], period: int) -> list[bool]:
    """Return which layers have a window; all but the last of `period` by default."""
    if c.get("layer_types"):
        return [kind == "sliding_attention" for kind in c["layer_types"]]
    return [(n + 1) % period != 0 for n in range(s.layers)]


def _add_gemma4(s: CheckpointSettings, c: dict[str, Any]) -> None:
    if c.get("use_bidirectional_attention") == "all":
        refuse(c, "use_bidirectional_attention", "all")
    slides, m, a = _slides(s, c, 6), s.metadata, "gemma4.attention."
    slides[-1] = False
    near = _near_rope(c)
    each = c.get("per_layer_config") or {}
    full = {} if all(slides) else each.get(str(slides.index(False))) or {}
    wide = int(c.get("global_head_dim") or full.get("head_dim") or 512)
    k_is_v = bool(c.get("attention_k_eq_v"))
    few = (c.get("num_global_key_value_heads") if k_is_v else None) or s.kv_heads
    few = int(full.get("num_key_value_heads") or few)
    shared, s.rotated = int(c.get("num_kv_shared_layers") or 0), wide
    m[f"{a}key_length"] = m[f"{a}value_length"] = wide
    m[f"{a}key_length_swa"] = m[f"{a}value_length_swa"] = s.head_dim
    m["gemma4.rope.dimension_count"], m["gemma4.rope.dimension_count_swa"] = wide, s.head_dim
    m["gemma4.rope.freq_base_swa"] = float(near["rope_theta"])
    m[f"{a}sliding_window"], m[f"{a}sliding_window_pattern"] = whole(c, "sliding_window"), slides
    m[f"{a}head_count_kv"] = [s.kv_heads if slide else few for slide in slides]
    m[f"{a}shared_kv_layers"] = shared
    m["gemma4.embedding_length_per_layer_input"] = int(c.get("hidden_size_per_layer_input") or 0)
    first, ffn = s.layers - shared, whole(c, "intermediate_size")
    if c.get("use_double_wide_mlp"):
        m["gemma4.feed_forward_length"] = [ffn * (1 + (n >= first)) for n in range(s.layers)]
    if c.get("final_logit_softcapping"):
        m["gemma4.final_logit_softcapping"] = float(c["final_logit_softcapping"])
    if c.get("enable_moe_block"):
        m["gemma4.expert_count"] = whole(c, "num_experts")
        m["gemma4.expert_used_count"] = whole(c, "top_k_experts")
        m["gemma4.expert_feed_forward_length"] = whole(c, "moe_intermediate_size")
    for n, slide in enumerate(slides):
        s.kinds.append(f"{slide} {n >= first}")
        if n >= first:  # its keys are another layer's
            parts = ("attn_k", "attn_v", "attn_k_norm")
            s.unread |= {f"blk.{n}.{part}.weight" for part in parts}


def _add_gemma2(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _add_gemma_layers(s, c)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        s.metadata[f"gemma2.{key}"] = float(c.get(key) or 0.0)


def _add_gemma3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    refuse_set(c, "attn_logit_softcapping", "use_bidirectional_attention")
    _add_gemma_layers(s, c)
    s.metadata["gemma3.rope.freq_base_swa"] = float(_near_rope(c)["rope_theta"])
    if c.get("final_logit_softcapping"):
        s.metadata["gemma3.final_logit_softcapping"] = float(c["final_logit_softcapping"])


def _add_gemma_layers(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add which layers have a window, and the scale of scores where it is not the usual one."""
    m, a = s.metadata, s.architecture
    m[f"{a}.attention.sliding_window"] = whole(c, "sliding_window")
    period = _GEMMA[a].period
    slides = _slides(s, c, int(c.get("sliding_window_pattern") or period))
    if slides != _slides(s, {}, period):
        m[f"{a}.attention.sliding_window_pattern"] = slides
    size = s.head_dim
    if s.layers == _GEMMA[a].layers_27b:
        size = whole(c, "hidden_size") // s.heads
    if c["query_pre_attn_scalar"] != size:
        m[f"{a}.attention.scale"] = float(c["query_pre_attn_scalar"]) ** -0.5


def _add_phi3(s: CheckpointSettings, c: dict[str, Any]) -> None:
    context = whole(c, "max_position_embeddings")
    original = int(s.rope.get("original_max_position_embeddings") or context)
    s.metadata["phi3.rope.scaling.original_context_length"] = original
    s.metadata["phi3.attention.sliding_window"] = int(c.get("sliding_window") or 0)
    if s.rope["rope_type"] in ("longrope", "su"):
        longer = float(s.rope.get("factor") or context / original)
        given = s.rope.get("attention_factor")
        factor = math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 else 1.0
        s.metadata["phi3.rope.scaling.attn_factor"] = float(given or factor)


def _add_granite(s: CheckpointSettings, c: dict[str, Any]) -> None:
    for key, name in {
        "attention_multiplier": "attention.scale",
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
    }.items():
        s.metadata[f"{s.architecture}.{name}"] = float(c.get(key) or 1.0)


def _add_granitehybrid(s: CheckpointSettings, c: dict[str, Any]) -> None:
    _add_granite(s, c)
    recurrent.add_granitehybrid(s, c)


_ADD = {
    **recurrent.ADD,
    "granitehybrid": _add_granitehybrid,
    "llama": _add_mistral_window,
    "smollm3": _add_smollm3,
    "qwen2": _no_late_window,
    "qwen3": _no_late_window,
    "qwen3moe": _add_qwen3moe,
    "gemma2": _add_gemma2,
    "gemma3": _add_gemma3,
    "phi3": _add_phi3,
    "granite": _add_granite,
    "qwen3vl": _add_qwen3vl,
    "qwen3vlmoe": _add_qwen3vl,
    "mistral3": _add_mistral3,
    "olmo2": _add_olmo2,
    "gpt-oss": _add_gpt_oss,
    "gemma4": _add_gemma4,
    "laguna": _add_laguna,
    "deepseek2": _add_deepseek2,
}
