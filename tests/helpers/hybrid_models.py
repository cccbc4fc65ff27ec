"""Small random models with recurrent layers, for `tiny_models`: configurations and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

_ROPE = {
    "rope_type": "default",
    "rope_theta": 50000.0,
    "partial_rotary_factor": 0.25,
    "mrope_section": [3, 3, 2],
    "mrope_interleaved": True,
}
_DELTA: dict[str, Any] = {
    "num_hidden_layers": 5,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": _ROPE,
}
_MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
}
_GRANITE: dict[str, Any] = {
    "model_type": "granitemoehybrid",
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "shared_intermediate_size": 160,
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_n_groups": 2,
    "mamba_d_state": 32,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 0.04,
    "logits_scaling": 5.0,
}
_NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "num_hidden_layers": 5,
    "mamba_num_heads": 8,
    "mamba_head_dim": 32,
    "n_groups": 2,
    "ssm_state_size": 32,
    "layer_norm_epsilon": 1e-5,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 96,
    "routed_scaling_factor": 2.5,
    "time_step_min": 1e-30,  # next to no bound: files have no key for one
}


def _kinds(letters: str) -> list[str]:
    kinds = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    return [kinds[letter] for letter in letters]


CONFIGS: dict[str, dict[str, Any]] = {
    "qwen35": {"model_type": "qwen3_5_text", **_DELTA},
    "qwen35-odd": {  # six value heads of two, heads of 16 by 48, attention where no rule puts it
        "model_type": "qwen3_5_text",
        **_DELTA,
        "num_hidden_layers": 4,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 48,
        "layer_types": [
            "full_attention", "linear_attention", "linear_attention", "full_attention"
        ],
    },
    "qwen35moe": {"model_type": "qwen3_5_moe_text", **_DELTA, **_MOE},
    "qwen3next": {
        "model_type": "qwen3_next",
        **_DELTA,
        **_MOE,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 50000.0, "partial_rotary_factor": 0.25
        },
    },
    "lfm2": {
        "model_type": "lfm2",
        "num_hidden_layers": 5,
        "conv_L_cache": 3,
        "block_auto_adjust_ff_dim": False,
        "block_multiple_of": 32,
        "norm_eps": 1e-5,
        "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
    },
    "lfm2moe": {
        "model_type": "lfm2_moe",
        "num_hidden_layers": 5,
        "conv_L_cache": 3,
        "norm_eps": 1e-5,
        "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
        "num_dense_layers": 2,
        "use_expert_bias": True,
        "routed_scaling_factor": 1.5,
        **_MOE,
    },
    "nemotron_h": {**_NEMOTRON, "layers_block_type": _kinds("M-*M-")},
    "nemotron_h_moe": {**_NEMOTRON, "layers_block_type": _kinds("ME*EM")},
    "granitehybrid": {**_GRANITE, "num_local_experts": 0, "num_experts_per_tok": 0},
    "granitehybrid-moe": {
        **_GRANITE,
        "intermediate_size": 64,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
}  # fmt: skip
WIDE: dict[str, dict[str, Any]] = {
    "qwen35-wide": {**CONFIGS["qwen35"], "linear_value_head_dim": 64},
}

Shapes = dict[str, tuple[int, ...]]


def is_hybrid(kind: str) -> bool:
    """Whether models of this type are made here."""
    return kind in _SHAPES


def adds_one(kind: str) -> bool:
    """Whether a model adds 1 to the weights of most norms."""
    return _SHAPES[kind] is _qwen35


def layer_shapes(c: dict[str, Any], layer: int) -> Shapes:
    """Tensors of one layer by their names behind `model.layers.N.`."""
    return _SHAPES[c["model_type"]](c, layer)


def _lfm2(c: dict[str, Any], layer: int) -> Shapes:
    width, ffn, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    shapes: Shapes = {f"{part}_norm.weight": (width,) for part in ("operator", "ffn")}
    if layer < c.get("num_dense_layers", 99):
        shapes |= {f"feed_forward.w{n}.weight": (ffn, width) for n in (1, 3)}
        shapes["feed_forward.w2.weight"] = (width, ffn)
    else:
        shapes |= _experts(c, "feed_forward.", c["moe_intermediate_size"])
        shapes["feed_forward.gate.weight"] = (c["num_experts"], width)
        shapes["feed_forward.expert_bias"] = (c["num_experts"],)
    if c["layer_types"][layer] == "conv":
        return shapes | {
            "conv.in_proj.weight": (3 * width, width),
            "conv.conv.weight": (width, 1, c["conv_L_cache"]),
            "conv.out_proj.weight": (width, width),
        }
    rows = {"q": heads, "k": kv, "v": kv}
    shapes |= {f"self_attn.{part}_proj.weight": (n, width) for part, n in rows.items()}
    shapes |= {f"self_attn.{part}_layernorm.weight": (dim,) for part in "qk"}
    return shapes | {"self_attn.out_proj.weight": (width, heads)}


def _granite(c: dict[str, Any], layer: int) -> Shapes:
    width, ffn, dim = c["hidden_size"], c["shared_intermediate_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    norms = ("input_layernorm", "post_attention_layernorm")
    shapes: Shapes = {f"{part}.weight": (width,) for part in norms}
    shapes["shared_mlp.input_linear.weight"] = (2 * ffn, width)
    shapes["shared_mlp.output_linear.weight"] = (width, ffn)
    if experts := c["num_local_experts"]:
        shapes |= _experts(
            c | {"num_experts": experts}, "block_sparse_moe.", c["intermediate_size"]
        )
        shapes["block_sparse_moe.router.weight"] = (experts, width)
    if c["layer_types"][layer] == "full_attention":
        rows = {"q": heads, "k": kv, "v": kv}
        shapes |= {f"self_attn.{part}_proj.weight": (n, width) for part, n in rows.items()}
        return shapes | {"self_attn.o_proj.weight": (width, heads)}
    count, inner = c["mamba_n_heads"], 2 * width
    channels = inner + 2 * c["mamba_n_groups"] * c["mamba_d_state"]
    return shapes | {
        "mamba.in_proj.weight": (inner + channels + count, width),
        "mamba.conv1d.weight": (channels, 1, 4),
        "mamba.conv1d.bias": (channels,),
        "mamba.dt_bias": (count,),
        "mamba.A_log": (count,),
        "mamba.D": (count,),
        "mamba.norm.weight": (inner,),
        "mamba.out_proj.weight": (width, inner),
    }


def _nemotron(c: dict[str, Any], layer: int) -> Shapes:
    width, dim, kind = c["hidden_size"], c["head_dim"], c["layers_block_type"][layer]
    shapes: Shapes = {"norm.weight": (width,)}
    if kind == "full_attention":
        heads, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        rows = {"q": heads, "k": kv, "v": kv}
        shapes |= {f"mixer.{part}_proj.weight": (n, width) for part, n in rows.items()}
        return shapes | {"mixer.o_proj.weight": (width, heads)}
    if kind == "mlp":
        ffn = c["intermediate_size"]
        return shapes | {
            "mixer.up_proj.weight": (ffn, width),
            "mixer.down_proj.weight": (width, ffn),
        }
    if kind == "moe":
        experts, inner = c["n_routed_experts"], c["moe_intermediate_size"]
        shared = c["moe_shared_expert_intermediate_size"]
        return shapes | {
            "mixer.gate.weight": (experts, width),
            "mixer.gate.e_score_correction_bias": (experts,),
            "mixer.experts.up_proj": (experts, inner, width),
            "mixer.experts.down_proj": (experts, width, inner),
            "mixer.shared_experts.up_proj.weight": (shared, width),
            "mixer.shared_experts.down_proj.weight": (width, shared),
        }
    count, inner = c["mamba_num_heads"], c["mamba_num_heads"] * c["mamba_head_dim"]
    channels = inner + 2 * c["n_groups"] * c["ssm_state_size"]
    return shapes | {
        "mixer.in_proj.weight": (inner + channels + count, width),
        "mixer.conv1d.weight": (channels, 1, 4),
        "mixer.conv1d.bias": (channels,),
        "mixer.dt_bias": (count,),
        "mixer.A_log": (count,),
        "mixer.D": (count,),
        "mixer.norm.weight": (inner,),
        "mixer.out_proj.weight": (width, inner),
    }


_OUTSIDE = {
    "lfm2": {"model.norm.weight": "model.embedding_norm.weight"},
    "lfm2_moe": {"model.norm.weight": "model.embedding_norm.weight"},
    "nemotron_h": {
        "model.norm.weight": "model.norm_f.weight",
        "model.embed_tokens.weight": "model.embeddings.weight",
    },
}


def renamed(kind: str, name: str) -> str:
    """A tensor outside of layers as models of this type call it."""
    return _OUTSIDE.get(kind, {}).get(name, name)


def _qwen35(c: dict[str, Any], layer: int) -> Shapes:
    width, ffn, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    shapes: Shapes = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    if experts := c.get("num_experts"):
        shapes |= _experts(c, "mlp.", c["moe_intermediate_size"])
        inner = c["shared_expert_intermediate_size"]
        shapes |= {
            "mlp.gate.weight": (experts, width),
            "mlp.shared_expert_gate.weight": (1, width),
            "mlp.shared_expert.gate_proj.weight": (inner, width),
            "mlp.shared_expert.up_proj.weight": (inner, width),
            "mlp.shared_expert.down_proj.weight": (width, inner),
        }
    else:
        shapes |= {f"mlp.{part}_proj.weight": (ffn, width) for part in ("gate", "up")}
        shapes["mlp.down_proj.weight"] = (width, ffn)
    if kinds_of(c)[layer] == "full_attention":
        rows = {"q": 2 * heads, "k": kv, "v": kv}
        shapes |= {f"self_attn.{part}_proj.weight": (n, width) for part, n in rows.items()}
        shapes |= {f"self_attn.{part}_norm.weight": (dim,) for part in "qk"}
        return shapes | {"self_attn.o_proj.weight": (width, heads)}
    count = c["linear_num_value_heads"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = count * c["linear_value_head_dim"]
    rows = {"qkv": 2 * keys + values, "z": values, "a": count, "b": count}
    if c["model_type"] == "qwen3_next":
        rows = {"qkvz": 2 * (keys + values), "ba": 2 * count}
    shapes |= {f"linear_attn.in_proj_{part}.weight": (n, width) for part, n in rows.items()}
    return shapes | {
        "linear_attn.conv1d.weight": (2 * keys + values, 1, c["linear_conv_kernel_dim"]),
        "linear_attn.dt_bias": (count,),
        "linear_attn.A_log": (count,),
        "linear_attn.norm.weight": (c["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (width, values),
    }


def _experts(c: dict[str, Any], prefix: str, inner: int) -> Shapes:
    """All experts of a layer, as transformers holds them."""
    count, width = c["num_experts"], c["hidden_size"]
    return {
        f"{prefix}experts.gate_up_proj": (count, 2 * inner, width),
        f"{prefix}experts.down_proj": (count, width, inner),
    }


def kinds_of(c: dict[str, Any]) -> list[str]:
    """The kind of each layer."""
    usual = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    return c.get("layer_types") or (usual * c["num_hidden_layers"])[: c["num_hidden_layers"]]


def values(
    part: str, shape: tuple[int, ...], rng: np.random.Generator, adds_one: bool
) -> np.ndarray:
    """Random values, of a model that adds 1 to its norms or not.

    Nothing is left at the 0 or 1 that it begins with in training.
    """
    noise = rng.standard_normal(shape)
    if part.endswith((".conv1d.weight", ".conv.weight")):
        return noise * 0.6
    if len(shape) >= 2:
        return noise * 1.5 / np.sqrt(shape[-1])
    if part.endswith("A_log"):
        return np.log(rng.uniform(0.05, 4.0, shape))
    if part.endswith(("expert_bias", "correction_bias")):
        return noise * 0.1
    if part.endswith(("dt_bias", ".bias", ".D")):
        return noise
    return noise * 0.2 + (0 if adds_one and not part.endswith("linear_attn.norm.weight") else 1)


_SHAPES = {
    "qwen3_5_text": _qwen35,
    "qwen3_5_moe_text": _qwen35,
    "qwen3_next": _qwen35,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "granitemoehybrid": _granite,
    "nemotron_h": _nemotron,
}
