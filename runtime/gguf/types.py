"""Names and sizes of what a GGUF file can hold: tensor types and metadata value types."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

if TYPE_CHECKING:
    from .held import HeldFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4


class GGMLType(IntEnum):
    """How weights are stored: in blocks of `block_size` weights that take `type_size` bytes."""

    block_size: int
    type_size: int

    def __new__(cls, value: int, block_size: int, type_size: int) -> GGMLType:
        member = int.__new__(cls, value)
        member._value_ = value
        member.block_size = block_size
        member.type_size = type_size
        return member

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 18
    Q4_1 = 3, 32, 20
    Q5_0 = 6, 32, 22
    Q5_1 = 7, 32, 24
    Q8_0 = 8, 32, 34
    Q8_1 = 9, 32, 40
    Q2_K = 10, 256, 84
    Q3_K = 11, 256, 110
    Q4_K = 12, 256, 144
    Q5_K = 13, 256, 176
    Q6_K = 14, 256, 210
    Q8_K = 15, 256, 292
    IQ2_XXS = 16, 256, 66
    IQ2_XS = 17, 256, 74
    IQ3_XXS = 18, 256, 98
    IQ1_S = 19, 256, 50
    IQ4_NL = 20, 32, 18
    IQ3_S = 21, 256, 110
    IQ2_S = 22, 256, 82
    IQ4_XS = 23, 256, 136
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 56
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 54
    TQ2_0 = 35, 256, 66
    MXFP4 = 39, 32, 17
    NVFP4 = 40, 64, 36
    Q1_0 = 41, 128, 18

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of `shape` (numpy order); its last dimension must fill whole blocks."""
        count = 1
        for dim in shape:
            count *= dim
        return count // self.block_size * self.type_size


# Types that files of 2023 and 2024 may carry and that GGUF has since withdrawn.
WITHDRAWN = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


class ValueType(IntEnum):
    """Type tag of a metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# One table for the reader (struct, numpy views) and the writer. BOOL is a byte on disk.
STRUCT_CODES: dict[ValueType, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`: what kind of token an id stands for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class StringArray(Sequence[str]):
    """The strings of one metadata array, decoded all at once on first use.

    Bytes that are not UTF-8 read as U+FFFD. Equal to a list of the same strings.

    Attributes:
        starts: int64 [n + 1], where in the file each string's length stands, and where they end.
    """

    def __init__(self, buffer: mmap.mmap, held: HeldFile, starts: np.ndarray) -> None:
        self._buffer, self._held = buffer, held
        self.starts = starts

    @cached_property
    def strings(self) -> list[str]:
        """All strings, as a plain list (the fastest form).

        Raises ModelError when the file was changed since it was checked.
        """
        self._held.check()
        return list(self.decoded("replace"))

    def decoded(self, errors: str) -> Iterator[str]:
        """Each string; what bytes that are not UTF-8 do is as in `bytes.decode`."""
        with memoryview(self._buffer) as buffer:
            start, *ends = self.starts.tolist()
            for end in ends:
                yield str(buffer[start + 8 : end], "utf-8", errors)
                start = end

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each string: int64 [n]."""
        return np.diff(self.starts) - 8

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.strings[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.strings)

    def __eq__(self, other: object) -> bool:
        return self.strings == (other.strings if isinstance(other, StringArray) else other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"


MetadataValue: TypeAlias = (
    "bool | int | float | str | StringArray | np.ndarray[Any, np.dtype[Any]] | list[Any]"
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    `shape` is in numpy order, rows first (GGUF stores it the other way round); `offset` counts from
    the start of the file; `nbytes` is the size on disk; `at` is where its line in the table starts.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int
    nbytes: int
    at: int = 0

    @property
    def shape_at(self) -> int:
        """Where in the file the dimensions stand."""
        return self.at + 8 + len(self.name.encode("utf-8")) + 4

    @property
    def type_at(self) -> int:
        """Where in the file the type stands."""
        return self.shape_at + 8 * len(self.shape)
