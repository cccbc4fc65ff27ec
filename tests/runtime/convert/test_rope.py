"""Rotary settings of checkpoints: what the file says of them is what transformers does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.rope import NEVER, frequency_factors
from triplepoint.runtime.convert.settings import read_settings

BASE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "vocab_size": 256,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
}
USUAL = 1 + 0.1 * math.log(8.0)
DEEPSEEK = {
    "model_type": "deepseek_v2",
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def metadata(rope: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The file's keys, without the architecture in front."""
    found = read_settings(BASE | changes | {"rope_parameters": rope})
    return {key.removeprefix(f"{found.architecture}."): v for key, v in found.metadata.items()}


def magnitude(said: dict[str, Any]) -> float:
    """What a file with these keys has cos and sin multiplied by (`models/rotary.py`)."""
    multiplier = said.get("rope.scaling.yarn_log_multiplier", 0.0)
    more = said.get("rope.scaling.attn_factor", 1.0)
    return USUAL / (1 + 0.1 * multiplier * math.log(8.0)) * more


@pytest.mark.parametrize("kind", ["ministral3", "llama", "qwen3"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"attention_factor": 1.4},
        {"attention_factor": 1.0},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 1.0, "mscale_all_dim": 0.5},
        {"mscale": 1.0},
        {"mscale_all_dim": 0.5},
        {"mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 1.4},
    ],
    ids=str,
)
def test_magnitude_of_yarn(kind: str, given: dict[str, float]) -> None:
    """That of transformers, or refused by name."""
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = transformers.AutoConfig.for_model(kind, **BASE, rope_parameters=YARN | given)
    _, want = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    if kind != "ministral3" and "mscale" in str(given):
        with pytest.raises(UnsupportedModelError, match="rope scaling's mscale"):
            metadata(YARN | given, model_type=kind)
        return

    assert magnitude(metadata(YARN | given, model_type=kind)) == pytest.approx(want, rel=1e-6)


def test_deepseeks_magnitude() -> None:
    """Beside a multiplier it is 1, and another one has no key."""
    both = {"mscale": 0.7, "mscale_all_dim": 0.7}

    found = metadata(YARN | both, **DEEPSEEK)
    assert found["rope.scaling.yarn_log_multiplier"] == pytest.approx(0.07)
    assert metadata(YARN | both | {"attention_factor": 1.0}, **DEEPSEEK) == found
    alone = metadata(YARN | {"attention_factor": 1.3}, **DEEPSEEK)
    assert magnitude(alone) == pytest.approx(1.3)
    with pytest.raises(UnsupportedModelError, match=r"attention_factor beside mscale_all_dim"):
        metadata(YARN | both | {"attention_factor": 1.3}, **DEEPSEEK)


def test_proportional_with_a_factor() -> None:
    """Pairs that are rotated are slowed by it; the others stay where they are."""
    full = {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e6}
    near = {"rope_type": "default", "rope_theta": 1e4}

    def factors(**more: Any) -> np.ndarray:
        rope = {"full_attention": full | more, "sliding_attention": near}
        config = BASE | {"model_type": "gemma4_text", "rope_parameters": rope}
        settings = read_settings(config | {"sliding_window": 16, "global_head_dim": 64})
        return frequency_factors(settings)["rope_freqs.weight"]

    assert factors().tolist() == [1.0] * 16 + [np.float32(NEVER)] * 16
    assert factors(factor=4.0).tolist() == [4.0] * 16 + [np.float32(NEVER)] * 16
    with pytest.raises(ModelError, match="'proportional' needs a factor"):
        factors(factor=-1)


@pytest.mark.parametrize("given", [{}, {"factor": 4.0}, {"factor": 0.5}, {"attention_factor": 1.3}])
def test_magnitude_of_longrope(given: dict[str, float]) -> None:
    """A factor that is given counts, not the ratio of the contexts."""
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    lists = {"long_factor": [2.0] * 16, "short_factor": [1.0] * 16}
    rope = YARN | {"rope_type": "longrope", "factor": None} | lists | given
    base = BASE | {"original_max_position_embeddings": 64, "pad_token_id": 0}
    config = transformers.Phi3Config(**base, rope_parameters=rope)
    _, want = ROPE_INIT_FUNCTIONS["longrope"](config, "cpu")

    found = metadata(rope, model_type="phi3")["rope.scaling.attn_factor"]
    assert found == pytest.approx(want, rel=1e-6)


def test_queries_scaled_by_position_without_yarn() -> None:
    """The file says from where on, which the loader asks for."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1}
    length = "rope.scaling.original_context_length"

    assert metadata(rope, model_type="ministral3")[length] == 512
    rope["original_max_position_embeddings"] = 64
    assert metadata(rope, model_type="ministral3")[length] == 64
