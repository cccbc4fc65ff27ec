"""The families of `tiny_models` whose layers are not all alike: settings, and names of weights."""

from __future__ import annotations

import re
from typing import Any

_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
_GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "global_head_dim": 64,
    "sliding_window": 40,
    "final_logit_softcapping": 3.0,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 50000.0,
        },
    },
}


def _kinds(letters: str) -> list[str]:
    return [{"s": "sliding_attention", "f": "full_attention"}[letter] for letter in letters]


CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3vl": {"model_type": "qwen3_vl", "head_dim": 64},
    "qwen3vlmoe": {"model_type": "qwen3_vl_moe", **_MOE},
    "ministral3": {
        "model_type": "ministral3",
        "rope_parameters": {
            **_YARN,
            "rope_theta": 50000.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "olmo2": {"model_type": "olmo2"},
    "olmo3": {
        "model_type": "olmo3",
        "num_hidden_layers": 4,
        "sliding_window": 40,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 50000.0},
            "full_attention": {**_YARN, "rope_theta": 50000.0, "attention_factor": 1.3},
        },
    },
    "gpt-oss": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "head_dim": 64,
        "intermediate_size": 96,
        "sliding_window": 16,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rope_parameters": {**_YARN, "rope_theta": 150000.0, "truncate": False},
    },
    "glm4-flash": {
        "model_type": "glm4_moe_lite",
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 96,
        "routed_scaling_factor": 1.8,
        "n_group": 4,
        "topk_group": 2,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    },
    "deepseek2-lite": {
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "q_lora_rank": None,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "moe_intermediate_size": 96,
        "first_k_dense_replace": 1,
        "rope_parameters": {**_YARN, "rope_theta": 50000.0, "mscale": 0.7, "mscale_all_dim": 0.7},
    },
    "laguna": {
        "model_type": "laguna",
        "num_hidden_layers": 5,
        "layer_types": _kinds("fsssf"),
        "mlp_layer_types": ["dense", *["sparse"] * 4],
        "num_attention_heads_per_layer": [4, 6, 6, 6, 4],
        "head_dim": 64,
        "sliding_window": 40,
        **_MOE,
        "shared_expert_intermediate_size": 96,
        "moe_routed_scaling_factor": 2.5,
        "rope_parameters": {
            "full_attention": {
                **_YARN,
                "rope_theta": 50000.0,
                "partial_rotary_factor": 0.5,
                "beta_fast": 16.0,
            },
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 1.0,
            },
        },
    },
    "gemma4": {
        **_GEMMA4,
        "num_hidden_layers": 7,
        "layer_types": _kinds("ssfsfsf"),
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 64,
        "vocab_size_per_layer_input": 300,
        "use_double_wide_mlp": True,
    },
    "gemma4-moe": {
        **_GEMMA4,
        "num_hidden_layers": 3,
        "layer_types": _kinds("ssf"),
        "hidden_size_per_layer_input": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 64,
    },
}
_VISION = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
           "out_hidden_size": 128, "patch_size": 4, "num_position_embeddings": 16,
           "deepstack_visual_indexes": [0]}  # fmt: skip


def nested(config: dict[str, Any]) -> dict[str, Any]:
    """`config.json` as models that see have it: the text's settings in a part of their own."""
    kind = config["model_type"]
    sections = config["head_dim"] // 4, config["head_dim"] // 8, config["head_dim"] // 8
    text = {**config, "model_type": f"{kind}_text"}
    base = text.pop("rope_theta")
    text["rope_parameters"] = {
        "rope_type": "default", "rope_theta": base, "mrope_interleaved": True,
        "mrope_section": list(sections),
    }  # fmt: skip
    outer = {"tie_word_embeddings": text["tie_word_embeddings"], "vision_config": dict(_VISION)}
    return {"model_type": kind, "text_config": text, **outer}


def prefix(kind: str) -> str:
    """Of the names of the text's weights."""
    return "model.language_model." if kind.startswith("qwen3_vl") else "model."


def layer_shapes(c: dict[str, Any], n: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of layer `n`, as a checkpoint on disk has them."""
    kind, width, ffn = c["model_type"], c["hidden_size"], c["intermediate_size"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim", 0)
    gemma, full = kind == "gemma4_text", c.get("layer_types", [""] * 99)[n] == "full_attention"
    shares = gemma and n >= c["num_hidden_layers"] - c.get("num_kv_shared_layers", 0)
    if gemma and full:
        dim, kv = c["global_head_dim"], c.get("num_global_key_value_heads", kv)
    heads = c.get("num_attention_heads_per_layer", [heads] * 99)[n]
    if shares and c.get("use_double_wide_mlp"):
        ffn *= 2
    out: dict[str, tuple[int, ...]] = {}
    if kind in ("glm4_moe_lite", "deepseek_v2"):
        out = _latent(c)
        norms = ("input_layernorm", "post_attention_layernorm")
        out |= {f"{name}.weight": (width,) for name in norms}
        if n > 0:  # the first one is dense
            shared = c["n_shared_experts"] * c["moe_intermediate_size"]
            corrected = "mlp.gate" if kind == "glm4_moe_lite" else None
            return out | _shared_experts(c, corrected, "shared_experts", shared)
        out |= {f"mlp.{part}_proj.weight": (ffn, width) for part in ("gate", "up")}
        return out | {"mlp.down_proj.weight": (width, ffn)}
    parts = {"q": heads, "k": kv, "v": kv}
    if shares:
        del parts["k"], parts["v"]
    elif full and c.get("attention_k_eq_v"):
        del parts["v"]
    for part, count in parts.items():
        out[f"self_attn.{part}_proj.weight"] = (count * dim, width)
        if kind == "gpt_oss":
            out[f"self_attn.{part}_proj.bias"] = (count * dim,)
        if part == "v" or kind in ("ministral3", "gpt_oss"):
            continue
        rows = kind.startswith("olmo")
        out[f"self_attn.{part}_norm.weight"] = (count * dim if rows else dim,)
    out["self_attn.o_proj.weight"] = (width, heads * dim)
    norms = ["post_attention_layernorm"]
    if not kind.startswith("olmo"):
        norms.append("input_layernorm")
    if gemma:
        norms.append("pre_feedforward_layernorm")
    if gemma or kind.startswith("olmo"):
        norms.append("post_feedforward_layernorm")
    out |= {f"{name}.weight": (width,) for name in norms}
    if kind == "gpt_oss":
        return out | _gpt_oss(c, heads)
    if kind == "laguna":
        out["self_attn.g_proj.weight"] = (heads, width)
        if c["mlp_layer_types"][n] == "sparse":
            shared = c["shared_expert_intermediate_size"]
            return out | _shared_experts(c, "mlp.experts", "shared_expert", shared)
    if kind == "qwen3_vl_moe":
        experts, inner = c["num_experts"], c["moe_intermediate_size"]
        return out | {
            "mlp.gate.weight": (experts, width),
            "mlp.experts.gate_up_proj": (experts, width, 2 * inner),
            "mlp.experts.down_proj": (experts, inner, width),
        }
    out |= {f"mlp.{part}_proj.weight": (ffn, width) for part in ("gate", "up")}
    out["mlp.down_proj.weight"] = (width, ffn)
    return out | _gemma4(c) if gemma else out


def _gpt_oss(c: dict[str, Any], heads: int) -> dict[str, tuple[int, ...]]:
    width, ffn, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    return {
        "self_attn.sinks": (heads,),
        "self_attn.o_proj.bias": (width,),
        "mlp.router.weight": (experts, width),
        "mlp.router.bias": (experts,),
        "mlp.experts.gate_up_proj": (experts, width, 2 * ffn),
        "mlp.experts.gate_up_proj_bias": (experts, 2 * ffn),
        "mlp.experts.down_proj": (experts, ffn, width),
        "mlp.experts.down_proj_bias": (experts, width),
    }


def _shared_experts(
    c: dict[str, Any], corrected: str | None, name: str, shared: int
) -> dict[str, tuple[int, ...]]:
    """Experts one by one, and one for all tokens."""
    width = c["hidden_size"]
    experts = c.get("num_experts") or c["n_routed_experts"]
    out: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (experts, width)}
    if corrected:
        out[f"{corrected}.e_score_correction_bias"] = (experts,)
    places = {f"experts.{n}": c["moe_intermediate_size"] for n in range(experts)}
    for place, inner in (places | {name: shared}).items():
        for part in ("gate", "up", "down"):
            shape = (width, inner) if part == "down" else (inner, width)
            out[f"mlp.{place}.{part}_proj.weight"] = shape
    return out


def _latent(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    width, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rotated, values = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    rows, q_rank = heads * (nope + rotated), c["q_lora_rank"]
    queries = {"self_attn.q_proj.weight": (rows, width)}
    if q_rank:
        queries = {
            "self_attn.q_a_proj.weight": (q_rank, width),
            "self_attn.q_a_layernorm.weight": (q_rank,),
            "self_attn.q_b_proj.weight": (rows, q_rank),
        }
    return queries | {
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rotated, width),
        "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_b_proj.weight": (heads * (nope + values), rank),
        "self_attn.o_proj.weight": (width, heads * values),
    }


def from_disk(state: dict[str, Any]) -> dict[str, Any]:
    """Weights by their names on disk, experts one by one -> as transformers has them in memory."""
    import torch

    out: dict[str, Any] = {}
    experts: dict[str, dict[int, Any]] = {}
    for name, values in state.items():
        found = re.fullmatch(r"(.*mlp\.experts)\.(\d+)\.(\w+)_proj\.weight", name)
        if found:
            experts.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = values
            continue
        name = name.replace("mlp.experts.e_score", "mlp.gate.e_score")
        out[name.replace("mlp.shared_expert.", "mlp.shared_experts.")] = values
    stacked = {name: torch.stack([each[n] for n in sorted(each)]) for name, each in experts.items()}
    for name in [name for name in stacked if name.endswith(".gate")]:
        stem = name.removesuffix(".gate")
        out[f"{stem}.gate_up_proj"] = torch.cat([stacked[name], stacked[f"{stem}.up"]], dim=1)
        out[f"{stem}.down_proj"] = stacked[f"{stem}.down"]
    return out


def _gemma4(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    width, own = c["hidden_size"], c["hidden_size_per_layer_input"]
    out: dict[str, tuple[int, ...]] = {"layer_scalar": (1,)}
    if own:
        out |= {
            "per_layer_input_gate.weight": (own, width),
            "per_layer_projection.weight": (width, own),
            "post_per_layer_input_norm.weight": (width,),
        }
    if c.get("enable_moe_block"):
        experts, inner = c["num_experts"], c["moe_intermediate_size"]
        out |= {
            "router.proj.weight": (experts, width),
            "router.scale": (width,),
            "router.per_expert_scale": (experts,),
            "experts.gate_up_proj": (experts, 2 * inner, width),
            "experts.down_proj": (experts, width, inner),
            "pre_feedforward_layernorm_2.weight": (width,),
            "post_feedforward_layernorm_1.weight": (width,),
            "post_feedforward_layernorm_2.weight": (width,),
        }
    return out


def outside(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of weights that are no layer's."""
    own = c.get("hidden_size_per_layer_input")
    if not own:
        return {}
    rows, width = own * c["num_hidden_layers"], c["hidden_size"]
    return {
        "embed_tokens_per_layer.weight": (c["vocab_size"], rows),
        "per_layer_model_projection.weight": (rows, width),
        "per_layer_projection_norm.weight": (own,),
    }
