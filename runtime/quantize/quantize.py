"""Quantize a GGUF file: read tensor by tensor, convert, write a temporary file, rename it."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from ...jit import targets
from ...jit.compile import Library
from ...jit.pool import Pool
from ..files import check_target
from ..gguf.file import GGUFFile
from ..gguf.open import open_gguf
from ..gguf.types import GGMLType, TensorInfo, ValueType
from ..gguf.write import GGUFWriter
from ..models.config import per_layer
from ..physics.machine import pool_size
from .importance import Importance
from .mixes import FLOATS, Chosen, Mix, ModelFacts, choose, mix_of
from .rows import MADE, WEIGHTED, RowMaker

_DROPPED = ("general.file_type", "general.quantization_version", "general.alignment")
_QUANTIZATION_VERSION = 2  # of the formats; there has been no other since 2023


@dataclass(slots=True)
class Report:
    """The result of `quantize`.

    Attributes:
        types: number of tensors of each type; narrowed: name, type wanted, type taken instead.
        requantized: tensors that were in a quantized type before.
        unmatched: quantized tensors that the imatrix does not have.
        source_nbytes, nbytes: sizes of the files; read_nbytes: of the tensors that were quantized.
    """

    path: Path
    mix: str
    types: Counter[str] = field(default_factory=Counter)
    narrowed: list[tuple[str, str, str]] = field(default_factory=list)
    requantized: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    parameters: int = 0
    source_nbytes: int = 0
    nbytes: int = 0
    read_nbytes: int = 0
    seconds: float = 0.0

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / max(1, self.parameters)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"bits_per_weight": self.bits_per_weight}


def quantize(
    source: str | Path,
    target: str | Path,
    kind: str,
    *,
    imatrix: str | Path | None = None,
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Write the model `source` to `target` in the types of the mix `kind`, e.g. ``Q4_K_M``.

    Memory stays at a few megabytes whatever the model's size. `target` appears when it is whole.

    Args:
        imatrix: file of `triplepoint make imatrix` or llama.cpp's, with the weight of each column.
        threads: default: the physical cores.
        progress: called with the fraction of weights that is done.

    Raises:
        SettingError: a type is not known.
        ModelError: a file cannot be read, both paths are one file, there is
            too little room on the disk, or the imatrix would have no effect.
        OSError: the target cannot be written.
    """
    mix, source, target = mix_of(kind), Path(source), Path(target)
    with open_gguf(source) as gguf:
        _refuse_same(gguf, target)
        importance = Importance.read(imatrix) if imatrix is not None else None
        plan = plan_of(gguf, mix, imatrix=importance is not None)
        if importance is not None:
            _refuse_unused(importance, plan)
        with whole_file(target, sum(c.kind.nbytes(i.shape) for i, c in plan)) as unfinished:
            return _write(gguf, unfinished, target, mix, plan, importance, threads, progress)


@contextmanager
def whole_file(target: Path, nbytes: int) -> Iterator[Path]:
    """Yield a temporary path next to `target`, renamed to it on success, else removed.

    A link stays one: what it leads to is written.

    Raises:
        ModelError: it cannot be written, or the disk has no room for `nbytes`.
    """
    check_target(target)
    path = Path(os.path.realpath(target))
    folder = path.parent
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        need, have = (f"{size / 1e6:,.1f} MB" for size in (nbytes, free))
        raise ModelError(f"{target} needs {need}, but the disk has {have} left")
    unfinished = folder / f".{path.name}.{os.getpid()}.part"
    try:
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_same(gguf: GGUFFile, target: Path) -> None:
    for part in gguf.parts:
        if target.exists() and target.samefile(part):
            raise ModelError(f"{target} is the file to read from; give the result another name")


def _refuse_unused(importance: Importance, plan: list[tuple[TensorInfo, Chosen]]) -> None:
    if not any(
        _weighted(info, chosen) and info.name in importance.columns for info, chosen in plan
    ):
        raise ModelError(
            f"the imatrix {importance.path} would have no effect: none of its tensors gets a type "
            "here that uses one (K-quants, Q4_0, Q4_1, Q5_0, Q5_1)"
        )


def _weighted(info: TensorInfo, chosen: Chosen) -> bool:
    """Return whether the new type needs the weights of columns."""
    return chosen.kind is not info.type and chosen.kind in WEIGHTED


def plan_of(gguf: GGUFFile, mix: Mix, *, imatrix: bool = False) -> list[tuple[TensorInfo, Chosen]]:
    """Choose the type of every tensor; imatrix: whether one will be used.

    Raises:
        UnsupportedModelError: a tensor cannot be read, or its new type cannot be made.
    """
    a = gguf.string("general.architecture")
    facts = ModelFacts.of(
        gguf.tensors,
        gguf.integer(f"{a}.block_count", low=1),
        _group(gguf, a),
        tied="output.weight" not in gguf.tensors,
        experts=gguf.integer(f"{a}.expert_count", 0),
        architecture=a,
        imatrix=imatrix,
    )
    plan = [(info, choose(info, mix, facts)) for info in gguf.tensors.values()]
    for info, chosen in plan:
        factor = info.name.removesuffix("weight") + "scale"
        if info.type is GGMLType.NVFP4 and chosen.kind is not info.type and factor in gguf.tensors:
            message = f"tensor {info.name} is NVFP4 with a factor of its own ({factor})"
            raise UnsupportedModelError(f"{message}: it cannot be given another type yet")
        if chosen.kind not in MADE and chosen.kind is not info.type:
            raise UnsupportedModelError(
                f"{mix.name} needs {chosen.kind.name}, which cannot be made"
            )
    return plan


def _group(gguf: GGUFFile, a: str) -> int:
    """Return the query heads of a KV head in the first layer, as other tools count; 0: no head."""

    def first(name: str) -> int:
        key = f"{a}.attention.{name}"
        if isinstance(gguf.metadata.get(key), np.ndarray):
            return per_layer(gguf, key, 1, low=0, high=4096)[0]
        return gguf.integer(key, 0)

    kv_heads = first("head_count_kv")
    return first("head_count") // kv_heads if kv_heads else 0


def _write(
    gguf: GGUFFile,
    unfinished: Path,
    target: Path,
    mix: Mix,
    plan: list[tuple[TensorInfo, Chosen]],
    importance: Importance | None,
    threads: int | None,
    progress: Callable[[float], None] | None,
) -> Report:
    started = time.perf_counter()
    report = Report(target, mix.name, source_nbytes=gguf.nbytes)
    total, done = sum(info.nbytes for info, _ in plan), 0
    with row_maker(threads) as maker, GGUFWriter(unfinished) as writer:
        _copy_metadata(gguf, writer, mix, importance)
        for info, chosen in plan:
            writer.declare(info.name, info.shape, chosen.kind)
        for info, chosen in plan:
            gguf.check_unchanged()
            weights = _weights(info, chosen, importance, report)
            data, width = gguf.data(info.name), info.shape[-1]
            size = chosen.kind.nbytes(info.shape)
            for piece in maker.convert(info.name, data, info.type, chosen.kind, width, weights):
                writer.write(info.name, piece)
                if progress:
                    progress((done + info.nbytes * piece.nbytes / max(1, size)) / total)
            gguf.check_unchanged()
            gguf.release(info.name)
            done += info.nbytes
            _account(report, info, chosen)
    report.nbytes = unfinished.stat().st_size
    report.seconds = time.perf_counter() - started
    return report


@contextmanager
def row_maker(threads: int | None) -> Iterator[RowMaker]:
    """Yield a `RowMaker` with a thread pool of its own."""
    library = Library(targets.chosen())
    with Pool(library, pool_size(threads)) as pool:
        yield RowMaker(library, pool)


def _copy_metadata(
    gguf: GGUFFile, writer: GGUFWriter, mix: Mix, importance: Importance | None
) -> None:
    """Copy metadata byte for byte, except for types and parts."""
    for key in gguf.metadata:
        if key not in _DROPPED and not key.startswith(("split.", "quantize.imatrix.")):
            writer.add_stored(key, *gguf.stored(key))
    writer.add("general.quantization_version", _QUANTIZATION_VERSION, ValueType.UINT32)
    writer.add("general.file_type", mix.number, ValueType.UINT32)
    if importance is not None:
        writer.add("quantize.imatrix.file", importance.path.name)
        writer.add("quantize.imatrix.entries_count", len(importance.columns), ValueType.INT32)


def _weights(info: TensorInfo, chosen: Chosen, importance: Importance | None, report: Report):
    """Return the imatrix's weights of a tensor's columns, where its new type uses them."""
    if importance is None or not _weighted(info, chosen):
        return None
    matrices = info.shape[0] if len(info.shape) == 3 else 1
    weights = importance.of(info.name, matrices, info.shape[-1])
    # The head and the embedding table are never in one.
    if weights is None and info.name not in ("output.weight", "token_embd.weight"):
        report.unmatched.append(info.name)
    return weights


def _account(report: Report, info: TensorInfo, chosen: Chosen) -> None:
    report.parameters += math.prod(info.shape)
    report.types[chosen.kind.name] += 1
    if chosen.narrowed is not None:
        report.narrowed.append((info.name, chosen.narrowed.name, chosen.kind.name))
    if chosen.kind is not info.type:
        report.read_nbytes += info.nbytes
        if info.type not in FLOATS and chosen.kind not in FLOATS:
            report.requantized.append(info.name)
