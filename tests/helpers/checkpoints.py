"""Small Hugging Face checkpoints: folders of config.json, safetensors and tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from helpers.tiny_models import VOCAB, checkpoint, config_of
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from triplepoint.runtime.quantize.rows import bfloat16

TEXTS = (
    "The quick brown fox jumps over the lazy dog; it's 12345 o'clock, isn't it?",
    "def main(args):\n    return [x ** 2 for x in range(10)]  # squares\n",
    "Größe, naïve café, 日本語のテキスト と 中文, привет мир, 😀 and more of the same words",
)
# As published tokenizer.json files have them.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def safetensors(tensors: Mapping[str, np.ndarray], dtype: str = "F32") -> bytes:
    """A file of these float32 tensors as `dtype`, and of tensors of bytes as they are."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        raw = stored(values, dtype).tobytes()
        places = [len(data), len(data) + len(raw)]
        kind = "U8" if values.dtype == np.uint8 else dtype
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": places}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    if values.dtype == np.uint8:
        return values
    if dtype == "BF16":
        return bfloat16(np.ascontiguousarray(values, np.float32))
    return values.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype])


def split_regex(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Words by a pattern, then bytes: how most models of today do it."""
    to_characters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), to_characters]
    )


def byte_tokenizer(
    pre: pre_tokenizers.PreTokenizer, *, ignore_merges: bool = False, size: int = 290
) -> Tokenizer:
    """A byte-level BPE tokenizer of `size` tokens and two special ones."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return tokenizer


def write_checkpoint(
    folder: Path, name: str = "llama", dtype: str = "F32", *, shards: int = 1
) -> dict[str, np.ndarray]:
    """Write the tiny model `name` of `tiny_models`; returns its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = checkpoint(name)
    (folder / "config.json").write_text(json.dumps(config_of(name)))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(weights, dtype))
    else:
        write_shards(folder, weights, dtype, shards)
    byte_tokenizer(split_regex(QWEN2)).save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": "{{ messages[0].content }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert len(weights["model.embed_tokens.weight"]) == VOCAB
    return weights


def write_shards(folder: Path, weights: dict[str, np.ndarray], dtype: str, shards: int) -> None:
    """The same weights in several files, and their index."""
    places = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(weights.items())[n::shards])
        (folder / file).write_bytes(safetensors(part, dtype))
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
