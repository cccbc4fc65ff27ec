"""Random weight matrices in the file's layout, by the `gguf` package, and in panels."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np

from triplepoint.jit.kernels.panels import FORMATS, Format, pack_reference
from triplepoint.jit.targets import CpuTarget

QUANTIZED = ("q8_0", "q4_0")
FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class FileMatrix:
    """A matrix as a GGUF file holds it.

    Attributes:
        raw: uint8 [rows, bytes of a row]; values: the float32 [rows, depth] it stands for.
    """

    fmt: str
    raw: np.ndarray
    values: np.ndarray

    @property
    def form(self) -> Format:
        return FORMATS[self.fmt]

    @property
    def rows(self) -> int:
        return len(self.raw)

    @property
    def depth(self) -> int:
        return self.values.shape[1]

    @property
    def blocks(self) -> int:
        return self.depth // self.form.block


def random_matrix(rng: np.random.Generator, rows: int, depth: int, fmt: str) -> FileMatrix:
    """Normal values, stored as `fmt`."""
    return matrix_of(rng.standard_normal((rows, depth)).astype(np.float32), fmt)


def matrix_of(values: np.ndarray, fmt: str) -> FileMatrix:
    """float32 [rows, depth] stored as `fmt`."""
    kind = gguf.GGMLQuantizationType[fmt.upper()]
    stored = np.ascontiguousarray(gguf.quants.quantize(values, kind))
    raw = stored.view(np.uint8).reshape(len(values), -1)
    return FileMatrix(fmt, raw, gguf.quants.dequantize(stored, kind).reshape(values.shape))


def put_number(block: np.ndarray, form: Format, at: int, number: bytes) -> None:
    """A float or scale of a block in the file, uint8 from its byte `at` on, becomes `number`."""
    mask, bits = stored_number(form, number)
    there = block[at : at + len(mask)]
    there[:] = there & ~mask | bits


def stored_number(form: Format, number: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Which bits of a block are such a number, and what they are: uint8.

    IQ1_M has four bits of it in the upper ones of each of four 16-bit words.
    """
    bits = np.frombuffer(number, np.uint8)
    if form.name != "iq1_m":
        return np.full_like(bits, 0xFF), bits
    words = np.repeat(bits.view("<u2"), 4) >> np.arange(0, 16, 4, dtype=np.uint16) << 12
    return np.full(4, 0xF000, "<u2").view(np.uint8), words.astype("<u2").view(np.uint8)


def panels_of(matrix: FileMatrix, target: CpuTarget) -> np.ndarray:
    """A plain matrix in panels: uint8 [units, blocks, bytes]."""
    lanes, raw = target.lanes, matrix.raw
    if len(raw) <= lanes:  # the second half has no rows at all: rows of zeros mean the same
        raw = np.concatenate([raw, np.zeros((lanes + 1 - len(raw), raw.shape[1]), np.uint8)])
    return pack_reference(raw, raw[lanes:], matrix.fmt, target, 2 * lanes)


def fused_panels_of(gate: FileMatrix, up: FileMatrix, target: CpuTarget) -> np.ndarray:
    """A gate and an up matrix in panels whose halves they are."""
    return pack_reference(gate.raw, up.raw, gate.fmt, target, target.lanes)
