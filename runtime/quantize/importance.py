"""Importance matrices: the weight of each column of a matrix, from `triplepoint make imatrix`.

Two forms are read: GGUF files (tensors NAME.in_sum2 and NAME.counts: sums of the squares of what
entered the product, and how many rows were summed), and the older binary ones of llama.cpp:

    entries i32 | entries × (length i32, name, calls i32, values i32, float32 × values) | …

whose values are mean squares times calls.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from ...errors import ModelError
from ..gguf.open import open_gguf
from ..gguf.types import MAGIC, GGMLType

FLOOR = 1e-4  # of the mean: a column that nothing entered still has to come back
_MAX_VALUES = 1 << 28


class Importance:
    """An importance matrix file.

    Attributes:
        columns: by tensor name, float32 [matrices, columns], each with mean 1. Experts without
            tokens weigh all columns alike.
    """

    def __init__(self, path: Path, means: dict[str, np.ndarray]) -> None:
        self.path = path
        self.columns = {name: _relative(values) for name, values in means.items()}

    @classmethod
    def read(cls, path: str | Path) -> Importance:
        """Read an importance matrix file; ModelError if it is damaged or of another format."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise ModelError(f"cannot open the imatrix {path}: {error.strerror}") from error
        means = _read_gguf(path) if magic == MAGIC else _read_old(path)
        if not means:
            raise ModelError(f"the imatrix {path} has nothing in it")
        return cls(path, means)

    def of(self, name: str, matrices: int, width: int) -> np.ndarray | None:
        """Return tensor `name`'s column weights: float32 [matrices, width]; None: not in the file.

        Raises:
            ModelError: it is for a tensor of another shape.
        """
        values = self.columns.get(name)
        if values is None:
            return None
        if values.size != matrices * width:
            raise ModelError(
                f"the imatrix {self.path} has {values.size} columns for {name}, the model "
                f"{matrices * width}: it was made from another model"
            )
        return values.reshape(matrices, width)


def _relative(means: np.ndarray) -> np.ndarray:
    """Divide by each matrix's mean, and add FLOOR so that all weights are above zero."""
    scale = means.mean(1, keepdims=True)
    even = np.where(scale > 0, means / np.where(scale > 0, scale, 1), 1.0)
    return (even + FLOOR).astype(np.float32)


def _read_gguf(path: Path) -> dict[str, np.ndarray]:
    means = {}
    with open_gguf(path) as file:
        for name, info in file.tensors.items():
            if not name.endswith(".in_sum2"):
                continue
            base = name.removesuffix(".in_sum2")
            counts = file.tensors.get(f"{base}.counts")
            if counts is None or {info.type, counts.type} != {GGMLType.F32}:
                raise ModelError(f"the imatrix {path} has no sound {base}.counts")
            sums = file.data(name).view("<f4").reshape(-1, info.shape[-1]).astype(np.float64)
            rows = file.data(f"{base}.counts").view("<f4").astype(np.float64)
            if len(rows) != len(sums) or not np.isfinite(sums).all() or (sums < 0).any():
                raise ModelError(f"the imatrix {path} is damaged: {base} has impossible sums")
            means[base] = sums / np.maximum(rows, 1)[:, None]
    return means


def _read_old(path: Path) -> dict[str, np.ndarray]:
    """Read the old format, which merges an expert tensor's matrices: one row of columns."""
    raw = path.read_bytes()
    means: dict[str, np.ndarray] = {}
    try:
        (entries,) = struct.unpack_from("<i", raw)
        at = 4
        for _ in range(entries):
            (length,) = struct.unpack_from("<i", raw, at)
            name = raw[at + 4 : at + 4 + length].decode()
            calls, count = struct.unpack_from("<ii", raw, at + 4 + length)
            at += 12 + length
            if not (0 < length < 256 and 0 < count < _MAX_VALUES):
                raise ValueError
            values = np.frombuffer(raw, "<f4", count, at).astype(np.float64)
            if not np.isfinite(values).all() or (values < 0).any():
                raise ValueError
            means[name] = values[None] / max(calls, 1)
            at += 4 * count
    except (struct.error, ValueError) as error:
        raise ModelError(f"{path} is not an imatrix, or a damaged one") from error
    return means
