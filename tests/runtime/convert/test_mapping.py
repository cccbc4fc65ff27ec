"""Names, orders and settings of checkpoints in GGUF's terms."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.mapping import adjacent_pairs, map_checkpoint

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 7},
}
PARTS = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def names(layers: int = 2, prefix: str = "model.", parts: tuple[str, ...] = PARTS) -> list[str]:
    inside = [f"{prefix}layers.{n}.{part}.weight" for n in range(layers) for part in parts]
    return [*inside, f"{prefix}embed_tokens.weight", f"{prefix}norm.weight"]


def test_names_are_those_of_gguf() -> None:
    """Every name is one that the `gguf` package knows for the architecture; embedding first."""
    mapping = map_checkpoint(LLAMA, [*names(), "lm_head.weight"])
    known = {gguf.TENSOR_NAMES[t] for t in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.LLAMA]}

    plain = [tensor.name.removesuffix(".weight") for tensor in mapping.tensors]
    assert {name.replace(".0.", ".{bid}.").replace(".1.", ".{bid}.") for name in plain} <= known
    assert plain[0] == "token_embd"
    assert plain[-2:] == ["output_norm", "output"]
    assert len(plain) == 2 * len(PARTS) + 4  # embedding, norm, output, rotary factors
    assert mapping.metadata["llama.rope.dimension_count"] == 32


def test_adjacent_pairs() -> None:
    """Rows i and i + half of a head come to lie side by side; heads stay where they are."""
    rows = np.arange(16)[:, None] * np.ones((1, 3))
    got = adjacent_pairs(rows, 2)[:, 0].tolist()

    assert got == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


def test_only_queries_and_keys_are_rearranged() -> None:
    """Values, outputs and everything else keep their rows."""
    mapping = map_checkpoint(LLAMA, names())
    heads = {t.name: t.heads for t in mapping.tensors if t.heads}

    assert heads == {
        f"blk.{n}.attn_{p}.weight": h for n in range(2) for p, h in (("q", 4), ("k", 2))
    }


def test_frequency_factors() -> None:
    """Short wavelengths stay, long ones are stretched by the factor, between them a ramp."""
    mapping = map_checkpoint(LLAMA, names())
    (factors,) = (t.make([]) for t in mapping.tensors if t.name == "rope_freqs.weight")

    assert factors.dtype == np.float32
    assert factors[0] == 1.0
    assert factors[-1] == 32.0
    assert (np.diff(factors) >= 0).all()


def test_gemma_in_a_model_that_sees() -> None:
    """The text part's settings count, with defaults; the vision tower has no place in the file."""
    parts = (*PARTS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
    vision = "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight"
    mapping = map_checkpoint(GEMMA, [*names(2, "language_model.model.", parts), vision])
    found = {tensor.name: tensor for tensor in mapping.tensors}

    assert mapping.unused == [vision]
    assert found["blk.1.post_attention_norm.weight"].sources == (
        "language_model.model.layers.1.post_attention_layernorm.weight",
    )
    assert found["blk.0.ffn_norm.weight"].make([np.full(3, 0.5)]).tolist() == [1.5] * 3
    assert mapping.metadata["gemma3.rope.scaling.factor"] == 8.0
    assert mapping.metadata["gemma3.rope.freq_base_swa"] == 10000.0
    assert mapping.metadata["gemma3.attention.head_count"] == 8


def test_tied_weights_are_written_once() -> None:
    """A copy of the embedding as output head is left out where the configuration says tied."""
    mapping = map_checkpoint({**LLAMA, "tie_word_embeddings": True}, [*names(), "lm_head.weight"])

    assert mapping.unused == ["lm_head.weight"]
    assert "output.weight" not in {tensor.name for tensor in mapping.tensors}


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({}, False),
        ({"tie_word_embeddings": False}, True),
        ({"tie_word_embeddings": True}, False),
        ({"tie_word_embeddings": False, "tie_embedding": True}, False),
    ],
)
def test_a_missing_output_head(said: dict[str, bool], refused: bool) -> None:
    """The embedding table takes its place, unless the configuration says that it does not."""
    config = LLAMA | said
    assert map_checkpoint(config, [*names(), "lm_head.weight"])
    if not refused:
        assert map_checkpoint(config, names())
        return
    with pytest.raises(ModelError, match=r"lacks lm_head\.weight, but config\.json says tie_word"):
        map_checkpoint(config, names())


def test_experts_are_stacked() -> None:
    """The experts of a layer become one tensor, in the order of their numbers."""
    config = LLAMA | {"model_type": "qwen3_moe", "num_experts": 12, "num_experts_per_tok": 2,
                      "moe_intermediate_size": 32, "norm_topk_prob": True,
                      "rope_scaling": None}  # fmt: skip
    experts = [
        f"model.layers.{n}.mlp.experts.{e}.{part}.weight"
        for n in range(2)
        for e in range(12)
        for part in ("gate_proj", "up_proj", "down_proj")
    ]
    attention = tuple(part for part in PARTS if not part.startswith("mlp."))
    mapping = map_checkpoint(config, [*names(parts=(*attention, "mlp.gate")), *experts])
    (down,) = (t for t in mapping.tensors if t.name == "blk.1.ffn_down_exps.weight")

    assert [int(name.split(".")[5]) for name in down.sources] == list(range(12))
    assert down.shape([(64, 32)] * 12) == (12, 64, 32)
    arrays = [np.full((64, 32), n, np.float16) for n in range(12)]
    assert (down.make(arrays)[:, 0, 0] == np.arange(12)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model type 'mamba'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope scaling = 'dynamic'"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        (
            {
                "model_type": "qwen3_moe",
                "use_sliding_window": True,
                "sliding_window": 9,
                "num_experts": 4,
            },
            "use_sliding",
        ),
        ({"model_type": "smollm3", "no_rope_layers": [0, 1]}, "no_rope_layers"),
        ({"model_type": "smollm3", "no_rope_layer_interval": 5}, "no_rope_layer_interval"),
    ],
)
def test_what_is_not_supported_is_named(change: dict[str, Any], message: str) -> None:
    """Settings that would change the answers are refused, not dropped."""
    with pytest.raises(UnsupportedModelError, match=message):
        map_checkpoint(LLAMA | change, names())


def test_unknown_and_missing_tensors() -> None:
    """A tensor without a place is refused by its name; so is a layer that lacks one."""
    extra = "model.layers.0.self_attn.rotary_gate.weight"
    with pytest.raises(UnsupportedModelError, match="rotary_gate"):
        map_checkpoint(LLAMA, [*names(), extra])
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_down"):
        map_checkpoint(LLAMA, [n for n in names() if n != "model.layers.1.mlp.down_proj.weight"])
    with pytest.raises(ModelError, match="layer 2 of 2"):
        map_checkpoint(LLAMA, names(3))
    with pytest.raises(ModelError, match="hidden_size"):
        map_checkpoint({k: v for k, v in LLAMA.items() if k != "hidden_size"}, names())
