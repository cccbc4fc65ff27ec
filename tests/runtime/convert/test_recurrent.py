"""Tensors of recurrent layers: names, orders and shapes as GGUF files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.checkpoints import write_checkpoint

from triplepoint.errors import UnsupportedModelError
from triplepoint.runtime.convert.convert import convert
from triplepoint.runtime.convert.mapping import MappedTensor, map_checkpoint

KEYS, VALUES, DK, DV = 2, 4, 32, 32  # heads and dims of `qwen35`


def _mapped(name: str) -> tuple[dict[str, MappedTensor], dict[str, np.ndarray], dict[str, Any]]:
    weights = tiny.checkpoint(name)
    mapping = map_checkpoint(tiny.config_of(name), list(weights))
    return {t.name: t for t in mapping.tensors}, weights, dict(mapping.metadata)


def _made(tensors: dict[str, MappedTensor], weights: dict[str, np.ndarray], name: str):
    tensor = tensors[name]
    sources = [weights[source] for source in tensor.sources]
    made = tensor.make(sources)
    assert made.shape == tensor.shape([source.shape for source in sources])
    return made


def test_value_heads_are_reordered() -> None:
    """Value head r of a file reads key head r mod G: rows, columns, channels and numbers alike."""
    tensors, weights, _ = _mapped("qwen35")
    old = "model.layers.0.linear_attn.{}".format
    order = np.arange(VALUES).reshape(KEYS, -1).T.ravel()  # 0 2 1 3
    rows = np.arange(VALUES * DV).reshape(VALUES, DV)[order].ravel()
    before = 2 * KEYS * DK
    channels = np.concatenate([np.arange(before), before + rows])

    def made(name: str) -> np.ndarray:
        return _made(tensors, weights, f"blk.0.{name}")

    assert np.array_equal(made("attn_qkv.weight"), weights[old("in_proj_qkv.weight")][channels])
    assert np.array_equal(made("attn_gate.weight"), weights[old("in_proj_z.weight")][rows])
    assert np.array_equal(made("ssm_alpha.weight"), weights[old("in_proj_a.weight")][order])
    assert np.array_equal(made("ssm_beta.weight"), weights[old("in_proj_b.weight")][order])
    assert np.array_equal(made("ssm_out.weight"), weights[old("out_proj.weight")][:, rows])
    assert np.array_equal(made("ssm_conv1d.weight"), weights[old("conv1d.weight")][channels, 0])
    assert np.array_equal(made("ssm_dt.bias"), weights[old("dt_bias")][order])
    assert np.array_equal(made("ssm_a"), -np.exp(weights[old("A_log")][order]))


def test_norms() -> None:
    """All norms have the 1 that the model adds, but for the one behind the recurrence."""
    tensors, weights, _ = _mapped("qwen35")
    old = "model.layers.{}".format
    for name, source, one in (
        ("blk.0.attn_norm.weight", old("0.input_layernorm.weight"), 1),
        ("blk.0.post_attention_norm.weight", old("0.post_attention_layernorm.weight"), 1),
        ("blk.3.attn_q_norm.weight", old("3.self_attn.q_norm.weight"), 1),
        ("output_norm.weight", "model.norm.weight", 1),
        ("blk.0.ssm_norm.weight", old("0.linear_attn.norm.weight"), 0),
    ):
        assert np.array_equal(_made(tensors, weights, name), weights[source] + one), name


def test_metadata_of_qwen35() -> None:
    """The sizes of the recurrence, and layers that attend where no period says so."""
    _, _, plain = _mapped("qwen35")
    _, _, odd = _mapped("qwen35-odd")

    sizes = {"conv_kernel": 4, "state_size": 32, "inner_size": 128}
    assert {part: plain[f"qwen35.ssm.{part}"] for part in sizes} == sizes
    assert (plain["qwen35.ssm.group_count"], plain["qwen35.ssm.time_step_rank"]) == (2, 4)
    assert plain["qwen35.rope.dimension_count"] == 16
    assert "qwen35.attention.recurrent_layers" not in plain
    assert odd["qwen35.attention.recurrent_layers"] == [False, True, True, False]


def test_names_of_a_model_that_sees() -> None:
    """Its text part is converted; vision is left out, and what is left of a block that drafts."""
    weights = tiny.checkpoint("qwen35")
    names = [name.replace("model.", "model.language_model.", 1) for name in weights]
    others = ["model.visual.blocks.0.attn.qkv.weight", "mtp.layers.0.input_layernorm.weight"]
    text = tiny.config_of("qwen35")
    config = {"model_type": "qwen3_5", "text_config": text, "vision_config": {"depth": 2}}
    mapping = map_checkpoint(config, [*names, *others])

    assert mapping.architecture == "qwen35"
    assert mapping.unused == sorted(others)
    assert len(mapping.tensors) == len(weights)


def test_lfm2() -> None:
    """Layers with a convolution have no KV heads; the last norm has the embedding's name."""
    tensors, weights, metadata = _mapped("lfm2")

    assert list(metadata["lfm2.attention.head_count_kv"]) == [0, 0, 2, 0, 2]
    assert _made(tensors, weights, "blk.0.shortconv.conv.weight").shape == (128, 3)
    assert "token_embd_norm.weight" in tensors
    assert "output_norm.weight" not in tensors


@pytest.mark.parametrize(
    ("given", "width"),
    [
        ({"intermediate_size": 12288, "block_auto_adjust_ff_dim": True}, 8192),
        ({"block_ff_dim": 6656, "block_multiple_of": 256, "block_auto_adjust_ff_dim": True}, 4608),
        ({"intermediate_size": 4608, "block_auto_adjust_ff_dim": False}, 4608),
    ],
)
def test_width_of_lfm2(given: dict[str, Any], width: int) -> None:
    """Two thirds of what the configuration says, rounded up, unless that is done already."""
    config = {**tiny.config_of("lfm2"), "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}
    mapping = map_checkpoint({**config, **given}, list(tiny.checkpoint("lfm2")))

    assert mapping.metadata["lfm2.feed_forward_length"] == width


@pytest.mark.parametrize(
    ("given", "dim"),
    [({}, 128), ({"attention_head_dim": 96}, 96), ({"head_dim": 64, "attention_head_dim": 96}, 64)],
)
@pytest.mark.parametrize("name", ["nemotron_h", "nemotron_h_moe"])
def test_heads_of_nemotron(name: str, given: dict[str, int], dim: int) -> None:
    """As wide as either name says, else 128, whatever the model's width."""
    config = {key: value for key, value in tiny.config_of(name).items() if key != "head_dim"}
    m = dict(map_checkpoint({**config, **given}, list(tiny.checkpoint(name))).metadata)

    keys = (f"{name}.attention.{part}" for part in ("key_length", "value_length"))
    assert [m[key] for key in keys] == [dim, dim]


def test_granitehybrid() -> None:
    """Gate and up are one tensor's halves; numbers of heads are columns, norms rows of groups."""
    tensors, weights, _ = _mapped("granitehybrid")
    both = weights["model.layers.0.shared_mlp.input_linear.weight"]

    assert np.array_equal(_made(tensors, weights, "blk.0.ffn_gate.weight"), both[:160])
    assert np.array_equal(_made(tensors, weights, "blk.0.ffn_up.weight"), both[160:])
    decay = _made(tensors, weights, "blk.0.ssm_a")
    assert np.array_equal(decay[:, 0], -np.exp(weights["model.layers.0.mamba.A_log"]))
    assert _made(tensors, weights, "blk.0.ssm_norm.weight").shape == (2, 128)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("lfm2", {"conv_bias": True}, "conv_bias = True"),
        ("lfm2moe", {"norm_topk_prob": False}, "norm_topk_prob = False"),
        ("qwen3next", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("granitehybrid", {"time_step_limit": [0.001, 1.0]}, "time_step_limit"),
        ("qwen35", {"attention_bias": True}, "attention_bias = True"),
    ],
)
def test_what_cannot_be_said(name: str, given: dict[str, Any], said: str) -> None:
    """What a file has no place for is refused by name."""
    with pytest.raises(UnsupportedModelError, match=said):
        map_checkpoint({**tiny.config_of(name), **given}, list(tiny.checkpoint(name)))


def test_qwen3next() -> None:
    """Rows of q, k, v and z of each key head are put together; heads stay in their order."""
    tensors, weights, _ = _mapped("qwen3next")
    both = weights["model.layers.0.linear_attn.in_proj_qkvz.weight"]
    heads = both.reshape(KEYS, 2 * DK + 2 * VALUES // KEYS * DV, -1)
    q, k, v, z = np.split(heads, [DK, 2 * DK, 2 * DK + VALUES // KEYS * DV], axis=1)
    made = _made(tensors, weights, "blk.0.attn_qkv.weight")

    assert np.array_equal(made, np.concatenate([x.reshape(-1, 128) for x in (q, k, v)]))
    assert np.array_equal(_made(tensors, weights, "blk.0.attn_gate.weight"), z.reshape(-1, 128))
    dt = _made(tensors, weights, "blk.0.ssm_dt.bias")
    assert np.array_equal(dt, weights["model.layers.0.linear_attn.dt_bias"])


@pytest.mark.parametrize("name", ["qwen35", "lfm2", "granitehybrid"])
def test_small_tensors_stay_float(tmp_path: Path, name: str) -> None:
    """Convolutions, decays and norms are float32 in a file of any type, bfloat16 read or not."""
    weights = write_checkpoint(tmp_path, name, "BF16")
    convert(tmp_path, tmp_path / "out.gguf", "q8_0", threads=1)
    mapping = map_checkpoint(tiny.config_of(name), list(weights))
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors}

    assert set(found) == {tensor.name for tensor in mapping.tensors}
    small = [t for t in found if "conv.weight" in t or "conv1d" in t or "norm" in t or t == "ssm_a"]
    assert small
    for tensor in small:
        assert found[tensor].tensor_type.name == "F32", tensor
        (mapped,) = (t for t in mapping.tensors if t.name == tensor)
        bits = [weights[source].astype(np.float32).view(np.uint32) for source in mapped.sources]
        exact = [((b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000).view(np.float32) for b in bits]
        assert np.array_equal(found[tensor].data, mapped.make(exact)), tensor
