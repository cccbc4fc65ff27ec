"""Models with random weights and the exact shapes of real ones, to study speed.

    synthetic:qwen3-0.6b:q4_0            the whole model
    synthetic:qwen3-8b:q8_0:layers=12    only its first 12 layers
    synthetic:qwen3.5-4b:q4_0:mtp=1      with the layer that drafts

Each is written once into the user's cache as an ordinary GGUF file that any engine loads. What it
says is noise, but its numbers behave: weights have mean 0 and deviation 0.02, so activations
neither vanish nor overflow.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...arguments import user_folder
from ...errors import ModelError
from ..convert.rope import NEVER, llama3_factors
from ..files import make_folder
from ..gguf.types import GGMLType, ValueType, fits
from ..gguf.write import GGUFWriter
from ..quantize.mixes import MIXES, NARROW, Mix, ModelFacts, type_of
from . import families, hybrids
from .shapes import SHAPES, Shape
from .tensors import layer_tensors
from .vocabulary import (
    CHAT_TEMPLATE,
    ENDOFTEXT,
    IM_END,
    N_VOCAB,
    made_up_vocabulary,
)
from .weights import random_weights

PREFIX = "synthetic:"
FORMAT = 3  # in the file name: a change of what is written must not find old files
STALE_S = 3600.0  # an unfinished file that nobody wrote to for so long was left by a killed process

# Llama 3's sizes; the tokens are as made up as those of the others, chat template and all.
LLAMA_MERGED, LLAMA_VOCAB = 128_000, 128_256
LLAMA_BASE, LLAMA_ORIGINAL = 500_000.0, 8192
SPECIAL = 64  # tokens that other vocabularies have room for after those of text
FACTORS = "rope_freqs.weight"

Progress = Callable[[int, int], None]


# Type and `general.file_type` of each quantization. Mixtures have other types where llama.cpp's
# recipes do: see `SyntheticModel.kind_of`.
QUANTS = {
    "f32": (GGMLType.F32, 0),
    "f16": (GGMLType.F16, 1),
    "q4_0": (GGMLType.Q4_0, 2),
    "q8_0": (GGMLType.Q8_0, 7),
    "mxfp4": (GGMLType.MXFP4, 38),
    "mxfp4_moe": (GGMLType.MXFP4, 38),
    "nvfp4": (GGMLType.NVFP4, 39),
    "q2_k": (GGMLType.Q2_K, 10),
    "q3_k_m": (GGMLType.Q3_K, 12),
    "iq4_xs": (GGMLType.IQ4_XS, 30),
    "iq3_s": (GGMLType.IQ3_S, 26),
    "iq3_xxs": (GGMLType.IQ3_XXS, 23),
    "iq2_s": (GGMLType.IQ2_S, 28),
    "iq2_xs": (GGMLType.IQ2_XS, 20),
    "iq2_xxs": (GGMLType.IQ2_XXS, 19),
    "iq1_m": (GGMLType.IQ1_M, 31),
    "iq1_s": (GGMLType.IQ1_S, 24),
    "q4_k_m": (GGMLType.Q4_K, 15),
    "q5_k_m": (GGMLType.Q5_K, 17),
    "q6_k": (GGMLType.Q6_K, 18),
    "bf16": (GGMLType.BF16, 32),
}


@dataclass(frozen=True, slots=True)
class SyntheticModel:
    """A synthetic model: its name, weight type and shape."""

    name: str
    quant: str
    shape: Shape

    @classmethod
    def parse(cls, name: str) -> SyntheticModel:
        """Parse a name like `synthetic:qwen3-0.6b:q4_0:layers=4`; ModelError gives the fault."""
        form = f"{PREFIX}NAME:QUANT[:layers=N][:mtp=1]"
        parts = name.removeprefix(PREFIX).lower().split(":")
        options = {key: value for key, _, value in (part.partition("=") for part in parts[2:])}
        odd = len(options) != len(parts) - 2 or any("=" not in part for part in parts[2:])
        if not name.startswith(PREFIX) or len(parts) < 2 or odd:
            raise ModelError(f"{name!r} is not a synthetic model's name; they look like {form}")
        if parts[0] not in SHAPES:
            known = ", ".join(SHAPES)
            raise ModelError(f"{name!r}: there is no synthetic model {parts[0]!r}; known: {known}")
        if parts[1] not in QUANTS:
            known = ", ".join(QUANTS)
            raise ModelError(f"{name!r}: unknown quantization {parts[1]!r}; known: {known}")
        shape = SHAPES[parts[0]]
        if "mtp" in options:
            if options.pop("mtp") != "1" or shape.family != "qwen35":
                drafting = ", ".join(n for n, s in SHAPES.items() if s.family == "qwen35")
                raise ModelError(f"{name!r}: mtp=1 is for {drafting}")
            shape = replace(shape, mtp=1)
        for key, value in options.items():
            if key != "layers" or not value.isdecimal() or not 1 <= int(value) <= shape.layers:
                given = f"{key}={value}" if value else key
                raise ModelError(f"{name!r}: {given!r} is not layers=1 to layers={shape.layers}")
            left_out = shape.layers - int(value)  # the last ones, which are those that share keys
            shape = replace(shape, layers=int(value), shared=max(0, shape.shared - left_out))
        return cls(parts[0], parts[1], shape)

    @property
    def file_name(self) -> str:
        """The model's file name in the cache."""
        cut = "" if self.shape.layers == SHAPES[self.name].layers else f"-layers{self.shape.layers}"
        mtp = "-mtp" if self.shape.mtp else ""
        return f"{self.name}-{self.quant}{cut}{mtp}-v{FORMAT}.gguf"

    @property
    def type(self) -> GGMLType:
        """The type of most matrices; norms and MoE routers are F32."""
        return QUANTS[self.quant][0]

    def kind_of(self, name: str) -> GGMLType:
        """Return the type of the matrix `name`; in a mix, that of `triplepoint make quantize`."""
        mix, s = _MIXTURES.get(self.quant), self.shape
        if mix is None:
            return self.type
        return type_of(name, mix, _facts(s))

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], GGMLType]]:
        """Yield (name, shape, type) of every tensor, in file order."""
        s = self.shape
        yield "token_embd.weight", (self.n_vocab, s.width), self._whole("token_embd.weight")
        if s.rope_factor or s.family == "gemma4":
            yield FACTORS, ((s.wide[0] or s.head_dim) // 2,), GGMLType.F32
        for name, shape in families.outside(s, self.n_vocab):
            kind = GGMLType.F32 if len(shape) == 1 else self.type
            yield name, shape, _NARROW[kind] if shape[-1] % kind.block_size else kind
        for layer in range(s.layers + s.mtp):
            for name, shape in layer_tensors(s, layer):
                plain = len(shape) == 1 or name.startswith("ffn_gate_inp") or "bias" in name
                plain = plain or name.removesuffix(".weight") in hybrids.PLAIN
                name = f"blk.{layer}.{name}"
                kind = GGMLType.F32 if plain else self.kind_of(name)
                if not fits(name, shape[-1], kind):
                    kind = _NARROW[kind]
                yield name, shape, kind
        yield (
            f"{'token_embd' if s.family == 'lfm2' else 'output'}_norm.weight",
            (s.width,),
            GGMLType.F32,
        )
        if not s.tied:
            yield "output.weight", (self.n_vocab, s.width), self._whole("output.weight")

    def _whole(self, name: str) -> GGMLType:
        """Return the type of the embedding or head, whose rows must be whole blocks."""
        kind = self.kind_of(name)
        return _NARROW[kind] if self.shape.width % kind.block_size else kind

    @property
    def n_vocab(self) -> int:
        return self.shape.vocab or (LLAMA_VOCAB if self.shape.family == "llama" else N_VOCAB)

    @property
    def n_merged(self) -> int:
        """Number of tokens before the first control token."""
        if self.shape.vocab:
            return self.shape.vocab - SPECIAL
        return LLAMA_MERGED if self.shape.family == "llama" else ENDOFTEXT

    def _pieces(self, name: str, shape: tuple[int, ...], kind: GGMLType) -> Iterator[np.ndarray]:
        """Yield the stored bytes of a tensor."""
        if name != FACTORS:
            return random_weights(name, shape, kind)
        factor = self.shape.rope_factor
        if not factor:  # a quarter of the pairs is rotated
            rotated = np.arange(shape[0]) < shape[0] // 4
            return iter([np.where(rotated, 1.0, NEVER).astype(np.float32)])
        return iter([llama3_factors(2 * shape[0], LLAMA_BASE, factor, LLAMA_ORIGINAL)])

    def nbytes(self) -> int:
        """Return the size of the model's tensors on disk, in bytes."""
        return sum(kind.nbytes(shape) for _, shape, kind in self.tensors())

    def write(self, path: Path, progress: Progress | None = None) -> None:
        """Write the model to `path`. `progress` is called with (bytes written, bytes in all)."""
        done, total = 0, self.nbytes()
        with GGUFWriter(path) as writer:
            self._write_metadata(writer)
            for name, shape, kind in self.tensors():
                writer.declare(name, shape, kind)
            for name, shape, kind in self.tensors():
                for piece in self._pieces(name, shape, kind):
                    writer.write(name, piece)
                    done += piece.nbytes
                if progress is not None:
                    progress(done, total)

    def write_header(self, path: Path) -> None:
        """Write a GGUF file with the model's sizes and tensor list, but no weights or vocabulary.

        The smallest come first: they are looked at, and some file systems take milliseconds for
        each place of a hole that is.
        """
        tensors = sorted(self.tensors(), key=lambda one: one[2].nbytes(one[1]))
        with GGUFWriter(path) as writer:
            self._write_sizes(writer)
            for name, shape, kind in tensors:
                writer.declare(name, shape, kind)
            for name, shape, kind in tensors:
                if name != FACTORS:
                    writer.skip(name)
                    continue
                for piece in self._pieces(name, shape, kind):  # they are looked at
                    writer.write(name, piece)

    def _write_metadata(self, writer: GGUFWriter) -> None:
        self._write_sizes(writer)
        llama = self.shape.family == "llama"
        plain = not llama and not self.shape.vocab
        sizes_of = () if plain else (self.n_merged, self.n_vocab)
        tokens, types, merges = made_up_vocabulary(*sizes_of)
        first, last = self.n_merged, self.n_merged + IM_END - ENDOFTEXT
        writer.add("tokenizer.ggml.model", "gpt2")
        writer.add("tokenizer.ggml.pre", "llama-bpe" if llama else "qwen2")
        writer.add("tokenizer.ggml.tokens", tokens)
        writer.add("tokenizer.ggml.token_type", types, ValueType.INT32)
        writer.add("tokenizer.ggml.merges", merges)
        writer.add("tokenizer.ggml.bos_token_id", first)
        writer.add("tokenizer.ggml.eos_token_id", last)
        writer.add("tokenizer.ggml.padding_token_id", first)
        writer.add("tokenizer.ggml.add_bos_token", False)
        writer.add("tokenizer.chat_template", CHAT_TEMPLATE)

    def _write_sizes(self, writer: GGUFWriter) -> None:
        s = self.shape
        arch, llama = s.architecture, s.family == "llama"
        writer.add("general.architecture", arch)
        writer.add("general.name", f"synthetic {self.name}")
        writer.add("general.file_type", QUANTS[self.quant][1])
        writer.add("general.quantization_version", 2)
        sizes = {
            "block_count": s.layers,
            "context_length": s.context or (131_072 if llama else 40_960),
            "embedding_length": s.width,
            "feed_forward_length": s.ffn,
            "attention.head_count": s.heads,
            "attention.head_count_kv": s.kv_heads,
            "attention.key_length": s.head_dim,
            "attention.value_length": s.head_dim,
            "vocab_size": self.n_vocab,
        }
        if s.window:
            sizes["attention.sliding_window"] = s.window
        if s.experts:
            sizes["expert_count"] = s.experts
            sizes["expert_used_count"] = s.experts_used
            sizes["expert_feed_forward_length"] = s.expert_ffn
        if s.family in hybrids.FAMILIES:
            sizes |= hybrids.metadata(s)
        for key, value in {**sizes, **families.metadata(s)}.items():
            writer.add(f"{arch}.{key}", value)
        writer.add(f"{arch}.rope.freq_base", s.base or (LLAMA_BASE if llama else 1e6))
        writer.add(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5 if llama else 1e-6)


@lru_cache(maxsize=4)
def _facts(s: Shape) -> ModelFacts:
    """Return what the types of the tensors depend on."""
    kv_heads = s.kv_heads if s.kinds[:1] in ("", "*") else 0  # of the first layer
    group, layers = s.heads // kv_heads if kv_heads else 0, s.layers + s.mtp
    names = [f"blk.{n}.{name}" for n in range(layers) for name, _ in layer_tensors(s, n)]
    others = {"tied": s.tied, "experts": s.experts, "architecture": s.architecture}
    return ModelFacts.of(names, layers, group, **others)


def synthetic_path(
    name: str, cache_dir: str | Path | None = None, *, progress: Progress | None = None
) -> Path:
    """Return the path of synthetic model `name`; write the file first if it is missing.

    `cache_dir` defaults to `synthetic` in the user's cache folder for triplepoint. The file appears
    under its name only when it is whole. Raises ModelError for an unknown name, and when the disk
    has not enough room.
    """
    model = SyntheticModel.parse(name)
    folder = user_folder("cache") / "synthetic" if cache_dir is None else Path(cache_dir)
    path = folder / model.file_name
    if path.is_file():
        return path
    partial = folder / f".{path.name}.{os.getpid()}.partial"
    try:
        make_folder(folder)
        _remove_stale(folder)
        needed, free = model.nbytes() + (1 << 24), shutil.disk_usage(folder).free
        if needed > free:
            sizes = f"{needed / 1e9:.1f} GB, {folder} has {free / 1e9:.1f} GB free"
            raise ModelError(f"{name} needs {sizes}; take fewer layers with :layers=N")
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        model.write(partial, progress)
        _publish(partial, path)
    except OSError as error:
        message = f"cannot write {name} to {folder}: {error.strerror or error}"
        raise ModelError(message) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return path


def _publish(partial: Path, path: Path) -> None:
    """Rename the file, unless another process was faster and may have it open."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        partial.replace(path)


def _remove_stale(folder: Path) -> None:
    for partial in folder.glob(".*.partial"):
        if time.time() - partial.stat().st_mtime > STALE_S:
            partial.unlink(missing_ok=True)


# What a matrix gets whose rows are no whole blocks of 256.
_NARROW = {
    **NARROW,
    GGMLType.NVFP4: GGMLType.MXFP4,
    **{kind: GGMLType.IQ4_NL for kind in GGMLType if re.match("IQ[1-3]|IQ4_XS", kind.name)},
}

_IQ4_XS = Mix(
    "IQ4_XS",
    QUANTS["iq4_xs"][1],
    GGMLType.IQ4_XS,
    GGMLType.Q6_K,
    {
        "attn_v": lambda layer, layers, group: GGMLType.Q5_K if group >= 4 else None,
        "ffn_down": lambda layer, layers, group: GGMLType.Q5_K if layer < layers // 8 else None,
    },
)
_MIXTURES = {
    "iq4_xs": _IQ4_XS,
    **{n.lower(): MIXES[n] for n in ("Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "MXFP4_MOE")},
}
