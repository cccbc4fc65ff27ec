"""gpt-oss' experts in MXFP4 become a GGUF file's: the weights that transformers makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from helpers import tiny_models
from helpers.checkpoints import QWEN2, byte_tokenizer, safetensors, split_regex, write_shards

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.convert import convert
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.hub.model_info import read_model_info

ORACLE = "torch and transformers are not installed"
EXPERTS = "model.layers.{}.mlp.experts."


def write_packed(folder: Path, shards: int = 1) -> dict[str, np.ndarray]:
    """A tiny gpt-oss as it is published: matrices of experts in MXFP4. Returns its weights."""
    rng, weights = np.random.default_rng(3), tiny_models.checkpoint("gpt-oss")
    for name in [n for n in weights if n.endswith("_proj") and "experts" in n]:
        count, depth, rows = weights.pop(name).shape
        shape = (count, rows, depth // 32)
        weights[f"{name}_blocks"] = rng.integers(0, 256, (*shape, 16), dtype=np.uint8)
        weights[f"{name}_scales"] = rng.integers(120, 125, shape, dtype=np.uint8)
    config = tiny_models.config_of("gpt-oss")
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder, weights, shards)
    byte_tokenizer(split_regex(QWEN2)).save(str(folder / "tokenizer.json"))
    return weights


def write_weights(folder: Path, weights: dict[str, np.ndarray], shards: int = 1) -> None:
    if shards > 1:
        write_shards(folder, weights, "BF16", shards)
    else:
        (folder / "model.safetensors").write_bytes(safetensors(weights, "BF16"))


def dequantized(weights: dict[str, np.ndarray], name: str) -> Any:
    """What transformers computes with: a float32 tensor [experts, in, out]."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks, scales = (torch.tensor(weights[f"{name}_{part}"]) for part in ("blocks", "scales"))
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["auto", "q8_0"])
def test_every_weight(tmp_path: Path, kind: str) -> None:
    """Nothing is rounded; gate and up, which alternate there, are tensors of their own."""
    pytest.importorskip("torch", reason=ORACLE)
    pytest.importorskip("transformers", reason=ORACLE)
    weights = write_packed(tmp_path, shards=3)
    done = convert(tmp_path, tmp_path / "out.gguf", kind, threads=1)
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    found = {t.name: t for t in reader.tensors}

    assert done.types["MXFP4"] == 3 * 4
    assert done.kind == ("BF16" if kind == "auto" else "Q8_0")
    assert found["token_embd.weight"].tensor_type.name == done.kind
    file_type = reader.get_field("general.file_type")
    assert file_type is not None
    assert file_type.contents() == gguf.LlamaFileType.MOSTLY_MXFP4_MOE
    for layer in range(4):
        experts, prefix = f"blk.{layer}.ffn_", EXPERTS.format(layer)
        both = dequantized(weights, prefix + "gate_up_proj").numpy()
        want = {"gate": both[..., ::2], "up": both[..., 1::2]}
        want["down"] = dequantized(weights, prefix + "down_proj").numpy()
        for part, values in want.items():
            tensor = found[f"{experts}{part}_exps.weight"]
            got = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert tensor.tensor_type.name == "MXFP4"
            assert np.array_equal(got, values.swapaxes(1, 2)), tensor.name
        bias = weights[prefix + "gate_up_proj_bias"]
        assert np.allclose(found[experts + "up_exps.bias"].data, bias[:, 1::2], rtol=2**-7)
    assert read_model_info(tmp_path / "out.gguf").problems == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_answers_as_transformers_does(tmp_path: Path) -> None:
    """Logits are those of transformers with the weights that it unpacks, up to int8 rounding."""
    torch = pytest.importorskip("torch", reason=ORACLE)
    pytest.importorskip("transformers", reason=ORACLE)
    weights = write_packed(tmp_path)
    convert(tmp_path, tmp_path / "out.gguf", "bf16", threads=2)
    model = tiny_models.torch_model("gpt-oss")
    state = model.state_dict()
    for name, values in weights.items():
        if name.endswith("_scales"):
            continue
        whole = name.removesuffix("_blocks")
        state[whole] = dequantized(weights, whole) if whole != name else torch.tensor(values)
        state[whole] = state[whole].to(torch.bfloat16).float()
    model.load_state_dict(state)
    ids = np.random.default_rng(0).integers(0, 256, 40).tolist()
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].float().numpy()
    with Engine.load(tmp_path / "out.gguf", threads=2, kv="f32", context=64) as engine:
        got = engine.session().logits_for(ids)

    wrong = np.abs(got - want).max(axis=1) / np.ptp(want)
    assert np.median(wrong) < 0.03, wrong


# --- what cannot be converted


def failure(folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        convert(folder, folder / "out.gguf", threads=1)
    assert not list(folder.glob("*out.gguf*"))
    return str(caught.value)


def test_damaged(tmp_path: Path) -> None:
    """Parts that are missing or of other shapes, and scales that are no numbers, each by name."""
    weights, name = write_packed(tmp_path), EXPERTS.format(2) + "down_proj_"
    blocks, scales = weights[name + "blocks"], weights[name + "scales"]

    def says(changed: dict[str, np.ndarray | None]) -> str:
        merged = {n: v for n, v in (weights | changed).items() if v is not None}
        write_weights(tmp_path, merged)
        return failure(tmp_path)

    assert f"{name}blocks has no {name}scales" in says({name + "scales": None})
    assert "shapes that do not fit" in says({name + "scales": scales[:, 1:]})
    assert "shapes that do not fit" in says({name + "blocks": blocks[..., :8]})
    assert f"{name}scales', which gpt-oss has no place for" in says({name + "blocks": None})
    nan = scales.copy()
    nan[1, 7, 2] = 255
    assert "block 2 in row 7 of part 1 of blk.2.ffn_down_exps" in says({name + "scales": nan})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "(modelopt, NVFP4)"),
        (
            {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
            "(compressed-tensors, nvfp4-pack-quantized)",
        ),
        ({"bits": 4}, "(an unknown method)"),
        ("4 bits", "(an unknown method)"),
    ],
)
def test_other_quantizations(tmp_path: Path, config: object, said: str) -> None:
    """They are refused by name before a tensor is looked at."""
    write_packed(tmp_path)
    whole = tiny_models.config_of("gpt-oss") | {"quantization_config": config}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    with pytest.raises(UnsupportedModelError) as caught:
        convert(tmp_path, tmp_path / "out.gguf", threads=1)

    assert said in str(caught.value)
