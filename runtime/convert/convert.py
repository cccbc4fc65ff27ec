"""Convert a Hugging Face checkpoint to a GGUF file, one tensor at a time."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from ..gguf.types import GGMLType, ValueType, fits
from ..gguf.write import GGUFWriter
from ..quantize.mixes import MIXES
from ..quantize.quantize import row_maker, whole_file
from ..quantize.rows import RowMaker
from .mapping import CheckpointMapping, MappedTensor, map_checkpoint
from .safetensors import Checkpoint, Stored, read_json
from .vocabulary import TokenizerData, read_tokenizer

TYPES = ("auto", "f32", "f16", "bf16", "q8_0")


@dataclass(slots=True)
class Conversion:
    """The result of `convert`.

    Attributes:
        kind: type of the matrices; types: number of tensors of each type.
        tokenizer: model and pre-tokenizer; unused: tensors that have no place in the file.
        left_out: added tokens that the embedding table has no row for.
        notes: in what the file differs from the checkpoint; a sentence each.
    """

    path: Path
    architecture: str
    kind: str
    tokenizer: str
    types: Counter[str] = field(default_factory=Counter)
    unused: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parameters: int = 0
    nbytes: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class _Planned:
    """A tensor to convert: its sources, and its shape and type in the file."""

    mapped: MappedTensor
    sources: list[Stored]
    shape: tuple[int, ...]
    kind: GGMLType


def convert(
    folder: str | Path,
    target: str | Path,
    kind: str = "auto",
    *,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Conversion:
    """Write the checkpoint in `folder` as the GGUF file `target`, which appears when complete.

    Needed are config.json, safetensors, and tokenizer.json or tokenizer.model. Memory stays near
    the size of one tensor. Weights in MXFP4 (gpt-oss) stay what they are, whatever `kind` says.

    Args:
        kind: of the matrices: ``f32``, ``f16``, ``bf16``, ``q8_0``, or ``auto``, what most of them
            have. Norms and other vectors are float32.
        progress: called with the fraction of the weights that is done, 0 to 1.

    Raises:
        ModelError: something is missing or damaged.
        UnsupportedModelError: an architecture, tokenizer or number format that is not known.
        OSError: the target cannot be written.
    """
    started = time.perf_counter()
    folder, target = Path(folder), Path(target)
    if kind.lower() not in TYPES:
        raise ModelError(f"unknown type {kind!r}; known: {', '.join(TYPES)}")
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder; give one with config.json and safetensors")
    config = read_json(folder / "config.json")
    _check_quantization(folder, config)
    checkpoint = Checkpoint(folder)
    mapping = map_checkpoint(config, list(checkpoint.tensors))
    chosen = _chosen(kind.lower(), checkpoint, mapping)
    plan = [_planned(tensor, checkpoint, chosen) for tensor in mapping.tensors]
    rows = next(p.shape[0] for p in plan if p.mapped.name == "token_embd.weight")
    text = config | (config.get("text_config") or {})
    tokenizer = read_tokenizer(folder, text, rows, mapping.architecture)
    total = sum(p.kind.nbytes(p.shape) for p in plan)
    report = Conversion(target, mapping.architecture, chosen.name, _named(tokenizer))
    report.unused, report.left_out = mapping.unused, tokenizer.left_out
    report.notes = tokenizer.notes
    with whole_file(target, total) as unfinished:
        with row_maker(threads) as maker, GGUFWriter(unfinished) as writer:
            mixed = any(p.kind is GGMLType.MXFP4 for p in plan)
            number = MIXES["MXFP4_MOE" if mixed else chosen.name].number
            _add_metadata(writer, folder, config, mapping, tokenizer, number)
            for tensor in plan:
                writer.declare(tensor.mapped.name, tensor.shape, tensor.kind)
            done = 0
            for tensor in plan:
                for piece in _pieces(tensor, checkpoint, maker):
                    writer.write(tensor.mapped.name, piece)
                    done += piece.nbytes
                    if progress:
                        progress(done / total)
                report.types[tensor.kind.name] += 1
                report.parameters += math.prod(tensor.shape)
        report.nbytes = unfinished.stat().st_size
    report.seconds = time.perf_counter() - started
    return report


def _check_quantization(folder: Path, config: dict[str, Any]) -> None:
    """Refuse quantized weights other than MXFP4 with UnsupportedModelError."""
    found = config.get("quantization_config")
    if not found or (isinstance(found, dict) and found.get("quant_method") == "mxfp4"):
        return
    settings = found if isinstance(found, dict) else {}
    names = [settings.get(key) for key in ("quant_method", "quant_algo", "format")]
    method = ", ".join(str(name) for name in names if name) or "an unknown method"
    raise UnsupportedModelError(
        f"{folder} is already quantized ({method}); use the original (of such weights only "
        "gpt-oss' MXFP4 can be converted)"
    )


def _named(tokenizer: TokenizerData) -> str:
    return tokenizer.model + (f", {tokenizer.pre}" if tokenizer.model == "gpt2" else "")


def _chosen(kind: str, checkpoint: Checkpoint, mapping: CheckpointMapping) -> GGMLType:
    if kind != "auto":
        return GGMLType[kind.upper()]
    weights = Counter[GGMLType]()
    for tensor in mapping.tensors:
        for name in tensor.sources:
            stored = checkpoint.tensors[name]
            if stored.scales is None:
                weights[stored.type] += stored.nbytes
    return weights.most_common(1)[0][0]


def _planned(mapped: MappedTensor, checkpoint: Checkpoint, chosen: GGMLType) -> _Planned:
    sources = [checkpoint.tensors[name] for name in mapped.sources]
    shapes = {source.shape for source in sources}
    if len(shapes) > 1:
        raise ModelError(f"the parts of {mapped.name} have different shapes: {sorted(shapes)}")
    shape = mapped.shape([source.shape for source in sources])
    if not 1 <= len(shape) <= 3 or min(shape) < 1:
        raise ModelError(f"{mapped.name} would have the shape {list(shape)}")
    kind = chosen
    if any(source.scales is not None for source in sources):
        kind = GGMLType.MXFP4
        if mapped.change or mapped.heads or mapped.plus_one or len(sources) > 1:
            raise UnsupportedModelError(f"{sources[0].name}: MXFP4 cannot become {mapped.name}")
    elif mapped.is_vector or len(shape) == 1 or mapped.name.endswith("ffn_gate_inp.weight"):
        kind = GGMLType.F32
    elif not fits(mapped.name, shape[-1], kind):
        kind = GGMLType.F16
    return _Planned(mapped, sources, shape, kind)


def _pieces(tensor: _Planned, checkpoint: Checkpoint, maker: RowMaker) -> Iterator[np.ndarray]:
    """Yield the bytes of one tensor, expert by expert."""
    mapped = tensor.mapped
    if not tensor.sources:
        yield np.ascontiguousarray(mapped.make([]), np.float32).view(np.uint8).ravel()
        return
    for source in tensor.sources:
        if source.scales is not None:
            yield from _mxfp4(mapped, source, checkpoint)
            checkpoint.release(source.name)
            continue
        array = checkpoint.array(source.name)
        kind = source.type
        if mapped.needs_floats:
            array, kind = mapped.make([_single(array, kind)]), GGMLType.F32
        elif mapped.heads or mapped.view or mapped.change:
            array = mapped.make([array])
        data = np.ascontiguousarray(array).view(np.uint8).ravel()
        yield from maker.convert(mapped.name, data, kind, tensor.kind, tensor.shape[-1])
        checkpoint.release(source.name)


def _mxfp4(mapped: MappedTensor, source: Stored, checkpoint: Checkpoint) -> Iterator[np.ndarray]:
    """Yield one expert's blocks after the other: an exponent, then weights n and n + 16 a byte.

    In the checkpoint a byte has the weights 2 n and 2 n + 1.
    """
    values, scales = (mapped.make([part]) for part in checkpoint.blocks(source.name))
    for expert, (pairs, exponents) in enumerate(zip(values, scales, strict=True)):
        if (exponents == 255).any():
            row, block = np.argwhere(exponents == 255)[0].tolist()
            raise ModelError(
                f"tensor {source.name} has a scale that is no number, of block {block} in row "
                f"{row} of part {expert} of {mapped.name}: the file is damaged"
            )
        halves = pairs.reshape(*exponents.shape, 2, 8)  # of each block 16 weights and 16
        nibbles = np.stack([halves & 15, halves >> 4], axis=-1).reshape(*exponents.shape, 2, 16)
        packed = nibbles[..., 0, :] | nibbles[..., 1, :] << 4
        yield np.concatenate([exponents[..., None], packed], axis=-1).ravel()


def _single(array: np.ndarray, kind: GGMLType) -> np.ndarray:
    """Return values as float32."""
    if kind is GGMLType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


_SAMPLING: dict[str, tuple[str, type[int] | type[float]]] = {
    "temperature": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "repetition_penalty": ("penalty_repeat", float),
}
"""Sampling keys of generation_config.json: the name of each in GGUF, and its type."""


def _sampling(folder: Path) -> dict[str, int | float]:
    """Return the default sampling; nothing where the checkpoint does not specify it."""
    path = folder / "generation_config.json"
    given = read_json(path) if path.exists() else {}
    if given.get("do_sample") is not True:
        return {}
    found: dict[str, int | float] = {}
    for name, (key, kind) in _SAMPLING.items():
        value = given.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = kind(value)
    # Without it transformers samples at 1, this engine not at all.
    return {"temp": 1.0, **found}


def _add_metadata(
    writer: GGUFWriter,
    folder: Path,
    config: dict[str, Any],
    mapping: CheckpointMapping,
    tokenizer: TokenizerData,
    file_type: int,
) -> None:
    writer.add("general.architecture", mapping.architecture)
    writer.add("general.type", "model")
    writer.add(
        "general.name", Path(config.get("_name_or_path") or "").name or folder.resolve().name
    )
    writer.add("general.file_type", file_type)
    writer.add("general.quantization_version", 2)
    for key, value in _sampling(folder).items():
        writer.add(f"general.sampling.{key}", value)
    for key, value in mapping.metadata.items():
        writer.add(key, value)
    t = "tokenizer.ggml."
    writer.add(t + "model", tokenizer.model)
    writer.add(t + "pre", tokenizer.pre)
    writer.add(t + "tokens", tokenizer.tokens)
    writer.add(t + "token_type", np.array(tokenizer.types, np.int32))
    if tokenizer.scores is not None:
        writer.add(t + "scores", tokenizer.scores.astype(np.float32))
    if tokenizer.model == "gpt2":
        writer.add(t + "merges", tokenizer.merges, ValueType.STRING)
    for key, value in tokenizer.others.items():
        writer.add(t + key, value)
    for key, value in tokenizer.templates.items():
        writer.add(key, value)
