"""Whole checkpoints become files that answer as transformers does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from helpers import tiny_models, tiny_qwen3moe
from helpers.checkpoints import QWEN2 as QWEN2_WORDS
from helpers.checkpoints import byte_tokenizer, split_regex, stored, write_checkpoint

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.convert import convert
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.sampling.settings import Sampling, file_sampling
from triplepoint.runtime.gguf.open import open_gguf

ORACLE = "torch and transformers are not installed"


def test_every_tensor(tmp_path: Path) -> None:
    """A sharded BF16 checkpoint keeps its type; vectors are F32; nothing else is changed."""
    weights = write_checkpoint(tmp_path, "qwen2", "BF16", shards=3)
    done = convert(tmp_path, tmp_path / "out.gguf", threads=1)
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors}

    assert (done.architecture, done.kind, done.tokenizer) == ("qwen2", "BF16", "gpt2, qwen2")
    assert len(found) == len(weights)
    for ours, theirs in {
        "token_embd.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "blk.1.attn_k.bias": "model.layers.1.self_attn.k_proj.bias",
        "blk.2.ffn_down.weight": "model.layers.2.mlp.down_proj.weight",
    }.items():
        tensor, bits = found[ours], stored(weights[theirs], "BF16")
        if ours.endswith("bias"):
            assert tensor.tensor_type.name == "F32"
            assert np.array_equal(tensor.data, (bits.astype(np.uint32) << 16).view(np.float32))
        else:
            assert tensor.tensor_type.name == "BF16"
            assert np.array_equal(tensor.data.view(np.uint16).ravel(), bits.ravel())


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_types(tmp_path: Path, kind: str) -> None:
    """Matrices in the type asked for, with the bytes that the `gguf` package makes."""
    weights = write_checkpoint(tmp_path, "qwen2")
    convert(tmp_path, tmp_path / "out.gguf", kind, threads=1)
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    name, quant = "blk.0.ffn_up.weight", gguf.GGMLQuantizationType[kind.upper()]
    want = gguf.quants.quantize(weights["model.layers.0.mlp.up_proj.weight"], quant)

    assert found[name].tensor_type == quant
    assert np.array_equal(found[name].data, want)
    assert found["output_norm.weight"].tensor_type.name == "F32"


def test_metadata(tmp_path: Path) -> None:
    """What the file says of itself, its vocabulary, and its template."""
    write_checkpoint(tmp_path / "Tiny-Llama", "llama")
    convert(tmp_path / "Tiny-Llama", tmp_path / "out.gguf", "q8_0", threads=1)
    with open_gguf(tmp_path / "out.gguf") as file:
        assert file.string("general.name") == "Tiny-Llama"
        assert file.integer("general.file_type") == 7
        assert file.integer("llama.block_count") == 3
        assert file.string("tokenizer.chat_template") == "{{ messages[0].content }}"
        tokens = file.strings("tokenizer.ggml.tokens")
        assert tokens is not None
        assert len(tokens) == tiny_models.VOCAB
        assert tokens[file.integer("tokenizer.ggml.eos_token_id")] == "<|im_end|>"


def test_notes(tmp_path: Path) -> None:
    """In what the tokenizer differs is told, for programs too."""
    write_checkpoint(tmp_path)
    path = tmp_path / "tokenizer.json"
    said = json.loads(path.read_text()) | {"normalizer": {"type": "NFC"}}
    path.write_text(json.dumps(said))
    done = convert(tmp_path, tmp_path / "out.gguf", threads=1)

    assert "NFC" in done.notes[0]
    assert done.as_dict()["notes"] == done.notes


def test_sampling(tmp_path: Path) -> None:
    """What generation_config.json says is the default, where it samples at all."""
    write_checkpoint(tmp_path, "llama")
    given = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    given |= {"min_p": None, "eos_token_id": [1, 2]}
    for sampled in (True, False):
        (tmp_path / "generation_config.json").write_text(
            json.dumps({"do_sample": sampled, **given})
        )
        convert(tmp_path, tmp_path / "out.gguf", threads=1)
        with open_gguf(tmp_path / "out.gguf") as file:
            sampling, notes = file_sampling(file.metadata)
        assert notes == []
        if not sampled:
            assert sampling == Sampling()
            continue
        assert (sampling.top_k, sampling.min_p) == (20, None)
        found = [sampling.temperature, sampling.top_p, sampling.repeat_penalty]
        assert found == pytest.approx([0.6, 0.95, 1.05])


def compare(folder: Path, model: Any, config: dict[str, Any]) -> None:
    """Save with transformers, convert, and hold our logits against its."""
    import torch

    model.save_pretrained(folder, max_shard_size="200KB")
    byte_tokenizer(split_regex(QWEN2_WORDS)).save(str(folder / "tokenizer.json"))
    convert(folder, folder / "out.gguf", threads=2)
    ids = np.random.default_rng(0).integers(0, 256, 120).tolist()
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0].float().numpy()
    with Engine.load(folder / "out.gguf", threads=2, kv="f32", **config) as engine:
        got = engine.session().logits_for(ids)

    assert np.abs(got - want).max() <= 1e-3 * (want.max() - want.min())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", tiny_models.CONFIGS)
def test_answers_as_transformers_does(tmp_path: Path, name: str) -> None:
    """Checkpoints that transformers saves, of every dense architecture: F32 logits agree."""
    pytest.importorskip("torch", reason=ORACLE)
    pytest.importorskip("transformers", reason=ORACLE)
    context = tiny_models.CONTEXTS.get(name)

    compare(tmp_path, tiny_models.torch_model(name), {"context": context} if context else {})


@pytest.mark.filterwarnings("ignore")
def test_experts_answer_as_transformers_does(tmp_path: Path) -> None:
    """The same for a mixture of experts, whose matrices are stacked."""
    pytest.importorskip("torch", reason=ORACLE)
    pytest.importorskip("transformers", reason=ORACLE)
    tiny_qwen3moe.write_tiny(tmp_path / "source.gguf", "f32")

    compare(tmp_path, tiny_qwen3moe.torch_model(tmp_path / "source.gguf"), {})


# --- what cannot be converted


def failure(folder: Path, kind: str = "auto") -> str:
    with pytest.raises(ModelError) as caught:
        convert(folder, folder / "out.gguf", kind, threads=1)
    assert not list(folder.glob("*out.gguf*"))
    return str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    """No folder, no config.json, no weights, no tokenizer: each is named."""
    with pytest.raises(ModelError, match="is not a folder"):
        convert(tmp_path / "none", tmp_path / "out.gguf")
    assert "config.json" in failure(tmp_path)
    write_checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "neither tokenizer.json" in failure(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "model.safetensors" in failure(tmp_path)


def test_cut_weights(tmp_path: Path) -> None:
    """A safetensors file that ends early is refused before anything is written."""
    write_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])

    assert "it is cut" in failure(tmp_path)


def test_what_is_not_supported(tmp_path: Path) -> None:
    """Other types, architectures, quantized checkpoints, other numbers: each by name."""
    write_checkpoint(tmp_path)
    assert "unknown type 'q4_0'; known: auto, f32" in failure(tmp_path, "q4_0")
    config = json.loads((tmp_path / "config.json").read_text())

    def says(change: dict[str, Any]) -> str:
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        return failure(tmp_path)

    assert "'bert' is not supported" in says({"model_type": "bert"})
    said = says({"model_type": "gemma4_assistant"})
    assert "drafts for another" in said
    assert "load that other model itself" in said
    assert "already quantized (gptq)" in says({"quantization_config": {"quant_method": "gptq"}})
    assert "lacks what blk.3." in says({"num_hidden_layers": 4})
    (tmp_path / "config.json").write_text("[]")
    assert "is not a JSON object" in failure(tmp_path)
    write_checkpoint(tmp_path, dtype="F64")
    with pytest.raises(UnsupportedModelError, match="is F64"):
        convert(tmp_path, tmp_path / "out.gguf")


def test_weights_that_went_wrong(tmp_path: Path) -> None:
    """A NaN is named by tensor and place, and nothing is left of the file."""
    weights = write_checkpoint(tmp_path, "qwen2")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
    from helpers.checkpoints import safetensors

    (tmp_path / "model.safetensors").write_bytes(safetensors(weights))

    message = "blk.1.ffn_up.weight has the weight nan in row 3, column 5"
    assert message in failure(tmp_path, "f16")
