"""What the engine could not run is refused before a file is written."""

from __future__ import annotations

from typing import Any

import pytest

from triplepoint.errors import UnsupportedModelError
from triplepoint.runtime.convert.settings import read_settings

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
    "sliding_window": 64,
    "vocab_size": 256,
}
DEEPSEEK = BASE | {
    "model_type": "deepseek_v2",
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
QWEN35 = BASE | {
    "model_type": "qwen3_5_text",
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
NEMOTRON = BASE | {
    "model_type": "nemotron_h",
    "layers_block_type": ["linear_attention", "full_attention", "mlp", "linear_attention"],
    "mamba_num_heads": 8,
    "mamba_head_dim": 32,
    "n_groups": 2,
    "ssm_state_size": 32,
}
LFM2 = BASE | {"model_type": "lfm2"}
GEMMA4 = BASE | {"model_type": "gemma4_text"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BASE | {"head_dim": 80}, "head_dim = 80 is not supported: it must be a multiple of 32"),
        (BASE | {"head_dim": None, "hidden_size": 400}, "head_dim = 100"),
        (BASE | {"model_type": "phi3", "partial_rotary_factor": 0.4}, "dims of a head = 12"),
        (GEMMA4 | {"head_dim": 48}, "head_dim of sliding attention = 48"),
        (GEMMA4 | {"global_head_dim": 80}, "head_dim = 80"),
        (GEMMA4 | {"hidden_size_per_layer_input": 32}, "hidden_size_per_layer_input = 32"),
        (DEEPSEEK | {"kv_lora_rank": 96}, "kv_lora_rank = 96"),
        (DEEPSEEK | {"v_head_dim": 32}, "v_head_dim = 32"),
        (DEEPSEEK | {"qk_rope_head_dim": 16}, "qk_nope_head_dim + qk_rope_head_dim = 48"),
        (DEEPSEEK | {"qk_rope_head_dim": 16, "qk_nope_head_dim": 48}, "dims of a head = 16"),
        (
            DEEPSEEK | {"num_attention_heads": 3, "qk_nope_head_dim": 64},
            "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim) = 288",
        ),
        (QWEN35 | {"linear_key_head_dim": 24}, "recurrent layer's states = 24 is not supported"),
        (QWEN35 | {"linear_value_head_dim": 40}, "recurrent layer's heads = 40 is not supported"),
        (NEMOTRON | {"mamba_head_dim": 8}, "recurrent layer's heads = 8"),
        (LFM2 | {"hidden_size": 136}, "hidden_size = 136 is not supported: it must be a multiple"),
    ],
)
def test_sizes(config: dict[str, Any], said: str) -> None:
    """By the name that the configuration has for them."""
    with pytest.raises(UnsupportedModelError) as caught:
        read_settings(config)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "key"),
    [
        ("llama", "mlp_bias"),
        ("granite", "mlp_bias"),
        ("gemma2", "attention_bias"),
        ("gemma3_text", "attention_bias"),
        ("olmo2", "attention_bias"),
        ("deepseek_v2", "attention_bias"),
    ],
)
def test_biases(model_type: str, key: str) -> None:
    """Those that have no place in the architecture; others are converted."""
    config = DEEPSEEK | {"model_type": model_type}
    assert read_settings(config | {key: False})
    with pytest.raises(UnsupportedModelError, match=f"{key} = True is not supported"):
        read_settings(config | {key: True})
    assert read_settings(BASE | {"attention_bias": True})


def test_normalized_experts_of_deepseek() -> None:
    """Engines disagree on what the key means, so it is refused; GLM's are normalized."""
    key = "deepseek2.expert_weights_norm"
    with pytest.raises(UnsupportedModelError, match="norm_topk_prob = True is not supported"):
        read_settings(DEEPSEEK | {"norm_topk_prob": True})
    assert read_settings(DEEPSEEK | {"norm_topk_prob": False}).metadata[key] is False
    assert read_settings(DEEPSEEK | {"model_type": "glm4_moe_lite"}).metadata[key] is True


def test_scale_of_experts() -> None:
    """GLM's is 1.8 where the configuration does not say it, as transformers has it."""
    key = "deepseek2.expert_weights_scale"
    glm = DEEPSEEK | {"model_type": "glm4_moe_lite"}
    assert read_settings(DEEPSEEK).metadata[key] == 1.0
    assert read_settings(glm).metadata[key] == 1.8
    assert read_settings(glm | {"routed_scaling_factor": 2.5}).metadata[key] == 2.5


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"max_window_layers": 4}, False),
        ({"max_window_layers": 3}, True),
        ({}, False),
        ({"layer_types": ["full_attention"] * 4, "max_window_layers": 0}, False),
        ({"layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, True),
    ],
    ids=str,
)
def test_windows_of_qwen(model_type: str, given: dict[str, Any], refused: bool) -> None:
    """Refused only where a layer has one: by its kind, or from `max_window_layers` on."""
    config = BASE | {"model_type": model_type, "use_sliding_window": True} | given
    if refused:
        with pytest.raises(UnsupportedModelError, match="use_sliding_window"):
            read_settings(config)
    else:
        assert "attention.sliding_window" not in str(read_settings(config).metadata)
    assert read_settings(config | {"use_sliding_window": False})
