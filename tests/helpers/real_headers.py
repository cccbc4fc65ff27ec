"""Headers of real files: the metadata and tensors of one model of each family, without weights.

They stand in `real_headers.json`: sizes are those that the families publish, shapes are rows first.
`layers` has a letter for each layer, and `kinds` the tensors of a layer of each letter. The
vocabularies are short: what tokens there are is no part of what a header is about. A file made of
one is sparse: it has its full length and no data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers.families import TEMPLATES

from triplepoint.runtime.gguf.types import GGMLType, TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.byte_bpe import byte_characters

Tensors = dict[str, list[int]]
"""Name → shape. Without a suffix of its own a name gets ``.weight``."""
N_VOCAB = 512
_FLOATS = (
    *("norm", "ffn_gate_inp", "conv1d", "shortconv.conv", "bias", "scale", "sinks"),
    *("ssm_d", "rope_freqs"),
)


@dataclass(frozen=True)
class Header:
    """One file."""

    name: str
    architecture: str
    pre: str
    template: str
    """Whose template it has; see `helpers.families`."""
    layers: str
    """The kind of each block."""
    metadata: dict[str, Any]
    """Without the architecture before each key; a mapping has a value for blocks of each kind."""
    top: Tensors
    """Tensors outside of all blocks."""
    kinds: dict[str, Tensors]
    """The tensors of a block of each kind."""
    experts: str = "Q8_0"
    """The type of the experts' matrices."""

    def value(self, key: str) -> Any:
        """What the file has under a key: an array of one for each block where kinds differ."""
        value = self.metadata[key]
        if isinstance(value, dict):
            value = [value[kind] for kind in self.layers]
        array = np.array(value) if isinstance(value, list) else value
        wide = isinstance(array, np.ndarray) and array.dtype == np.int64
        return array.astype(np.int32) if wide else array

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], GGMLType]]:
        """Names, shapes and types of all tensors."""
        for name, shape in self.top.items():
            yield self._typed(name, tuple(shape))
        for i, kind in enumerate(self.layers):
            for name, shape in self.kinds[kind].items():
                yield self._typed(f"blk.{i}.{name}", tuple(shape))

    def _typed(self, name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], GGMLType]:
        wide = len(shape) > 1 and not shape[-1] % 32
        kind = GGMLType.Q8_0 if wide and not any(f in name for f in _FLOATS) else GGMLType.F32
        kind = GGMLType[self.experts] if kind == GGMLType.Q8_0 and "_exps" in name else kind
        own = name.endswith((".bias", ".scale", "ssm_a", "ssm_d"))
        return (name if own else f"{name}.weight"), shape, kind


HEADERS = tuple(Header(**h) for h in json.loads(Path(__file__).with_suffix(".json").read_text()))


def write_header(path: Path, header: Header) -> None:
    """A file that has this header and the length of the real one."""
    tokens, kinds = _vocabulary(header)
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", header.architecture)
        writer.add("general.name", header.name)
        for key in header.metadata:
            writer.add(f"{header.architecture}.{key}", header.value(key))
        model = "gemma4" if header.pre == "gemma4" else "gpt2"
        writer.add("tokenizer.ggml.model", model)
        if model == "gpt2":
            writer.add("tokenizer.ggml.pre", header.pre)
        writer.add("tokenizer.ggml.tokens", tokens)
        writer.add("tokenizer.ggml.token_type", np.array(kinds, np.int32))
        writer.add("tokenizer.ggml.merges", ["a b"])
        writer.add("tokenizer.ggml.bos_token_id", 0)
        writer.add("tokenizer.ggml.eos_token_id", 0)
        template = (TEMPLATES / f"{header.template}.jinja").read_text(encoding="utf-8")
        writer.add("tokenizer.chat_template", template)
        for name, shape, kind in header.tensors():
            writer.declare(name, shape, kind)
        for name, shape, _ in header.tensors():
            if name != "rope_freqs.weight":
                writer.skip(name)
                continue
            factors = np.where(np.arange(shape[0]) < shape[0] // 4, 1.0, 1e30)  # looked at
            writer.write(name, factors.astype(np.float32))


def _vocabulary(header: Header) -> tuple[list[str], list[TokenType]]:
    tokens = ["<|endoftext|>", *byte_characters(), "ab"]
    kinds = [TokenType.CONTROL, *[TokenType.NORMAL] * 257]
    tokens += [f"<unused{i}>" for i in range(N_VOCAB - len(tokens))]
    return tokens, kinds + [TokenType.UNUSED] * (N_VOCAB - len(kinds))
