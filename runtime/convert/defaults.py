"""The defaults of transformers for settings that a configuration omits."""

from __future__ import annotations

from typing import Any

# Gemma's published configurations leave out much.
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
    "gemma4": {
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": 0.25,
                "rope_theta": 1e6,
            },
        },
    },
}
_NULLABLE = ("attn_logit_softcapping", "final_logit_softcapping", "sliding_window")  # by null
# Without sizes a model is refused; without these two it would run, and be another one.
_EPSILON = 1e-6
_EPSILONS = dict.fromkeys(
    (
        "phi3",
        "mistral3",
        "ministral3",
        "olmo2",
        "olmo3",
        "gpt_oss",
        "glm4_moe_lite",
        "lfm2",
        "lfm2_moe",
    ),
    1e-5,
)
_BASES = {
    "smollm3": 2e6,
    "qwen3_vl": 5e5,
    "qwen3_vl_text": 5e5,
    "qwen3_vl_moe": 5e5,
    "qwen3_vl_moe_text": 5e5,
    "mistral3": 1e9,
    "olmo3": 5e5,
    "gpt_oss": 150000.0,
    "laguna": 5e5,
    "lfm2": 1e6,
    "lfm2_moe": 1e6,
}  # of rotary frequencies; else 10,000


_ROPE: dict[str, dict[str, Any]] = {
    "gpt_oss": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "ministral3": {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16384,
    },
}  # of those that scale positions where nothing is said; the second's base is this one then


def with_defaults(c: dict[str, Any], architecture: str) -> dict[str, Any]:
    """Return a configuration with its omitted settings filled in."""
    if architecture in _GEMMA_DEFAULTS:
        present = {k: v for k, v in c.items() if v is not None or k in _NULLABLE}
        return _GEMMA_DEFAULTS[architecture] | present
    if c["model_type"] == "glm4_moe_lite":
        c = {"routed_scaling_factor": 1.8} | c  # null is 1
    has_rope = any(c.get(k) for k in ("rope_parameters", "rope_scaling"))
    if c["model_type"] in _ROPE and not has_rope:
        c = c | {"rope_parameters": _ROPE[c["model_type"]]}
    if c["model_type"] in _BASES and c.get("rope_theta") is None:
        return c | {"rope_theta": _BASES[c["model_type"]]}
    return c


def norm_epsilon(c: dict[str, Any], architecture: str) -> float:
    """Return the configuration's RMSNorm epsilon."""
    key = "norm_eps" if architecture.startswith("lfm2") else "rms_norm_eps"
    value = c.get(key)
    return float(_EPSILONS.get(c["model_type"], _EPSILON) if value is None else value)
