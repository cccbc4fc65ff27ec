"""Names and sizes of the contents of GGUF files: tensor types and metadata value types."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

if TYPE_CHECKING:
    from .mapped_file_guard import MappedFileGuard

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4


class GGMLType(IntEnum):
    """The storage type of a tensor: blocks of `block_size` weights in `type_size` bytes."""

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
        """Return the bytes of a tensor of `shape` (numpy order), with rows of whole blocks."""
        return math.prod(shape) // self.block_size * self.type_size


def parts_of(name: str) -> int:
    """Return how many matrices the tensor `name` holds side by side; no block spans two of them.

    `nextn.eh_proj` has one for the embedding and one for the hidden state: `runtime/models/mtp.py`.
    """
    return 2 if name.endswith("nextn.eh_proj.weight") else 1


def fits(name: str, width: int, kind: GGMLType) -> bool:
    """Return whether rows of `width` of the tensor `name` fill whole blocks of `kind`."""
    return width % (parts_of(name) * kind.block_size) == 0


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
    """The kind of a token: `tokenizer.ggml.token_type`."""

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

    def __init__(self, buffer: mmap.mmap, held: MappedFileGuard, starts: np.ndarray) -> None:
        self._buffer, self._held = buffer, held
        self.starts = starts

    @cached_property
    def strings(self) -> list[str]:
        """All strings as a plain list (the fastest form).

        Raises ModelError when the file was changed since it was checked.
        """
        self._held.check()
        with memoryview(self._buffer) as buffer:
            starts = self.starts.tolist()
            return [str(buffer[a + 8 : b], "utf-8", "replace") for a, b in pairwise(starts)]

    def copied(self) -> Texts:
        """Return a copy; UnicodeDecodeError.start is the index of a string that is not UTF-8.

        Raises ModelError when the file was changed since it was checked.
        """
        first, last = self.starts[0], self.starts[-1]
        texts = Texts(self._buffer[first:last], self.starts - first)
        self._held.check()
        return texts

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


class Texts:
    """A copy of a file's strings of valid UTF-8; decoded when they are needed."""

    def __init__(self, raw: bytes, starts: np.ndarray) -> None:
        """Store strings; raw: each after its length; starts: as of `StringArray`, but in `raw`.

        Raises:
            UnicodeDecodeError: one is no UTF-8; its `start` is the index of that string.
        """
        self._raw, self._starts = raw, starts
        long = starts[:-1][np.diff(starts) - 8 > 127]
        if len(long):  # a byte of their lengths may look like a part of a character
            bytes_ = np.frombuffer(raw, np.uint8).copy()
            bytes_[long[:, None] + np.arange(8)] = 0
            raw = bytes_.tobytes()
        try:
            raw.decode("utf-8")  # all at once: the lengths between the strings are ASCII
        except UnicodeDecodeError as error:
            error.start = int(np.searchsorted(starts, error.start, "right")) - 1
            raise

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all strings together."""
        return len(self._raw) - 8 * len(self)

    def at(self, index: int) -> str:
        """Return string `index`."""
        return str(self._raw[self._starts[index] + 8 : self._starts[index + 1]], "utf-8")

    def all(self) -> list[str]:
        """Return all strings."""
        # One decode and one split: a tenth of the time that a decode of each would take.
        joined, keep = np.frombuffer(self._raw, np.uint8).copy(), np.ones(len(self._raw), bool)
        joined[self._starts[:-1]] = 0
        keep[self._starts[:-1, None] + np.arange(1, 8)] = False
        found = joined[keep].tobytes().decode("utf-8").split("\0")[1:]
        if len(found) == len(self):
            return found
        raw = self._raw  # a string has a NUL
        return [str(raw[a + 8 : b], "utf-8") for a, b in pairwise(self._starts.tolist())]

    def starting(self, byte: bytes) -> Iterator[int]:
        """Return the indices of the strings whose first byte is `byte`."""
        begins, ends = self._starts[:-1] + 8, self._starts[1:]
        filled = np.flatnonzero(begins < ends)
        first = np.frombuffer(self._raw, np.uint8)[begins[filled]]
        yield from filled[first == byte[0]].tolist()

    def shortest(self, longest: int) -> Iterator[int]:
        """Return the indices of the strings of at most `longest` bytes."""
        yield from np.flatnonzero(np.diff(self._starts) - 8 <= longest).tolist()


MetadataValue: TypeAlias = (
    "bool | int | float | str | StringArray | np.ndarray[Any, np.dtype[Any]] | list[Any]"
)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The location of one tensor.

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
        """File offset of the dimensions."""
        return self.at + 8 + len(self.name.encode("utf-8")) + 4

    @property
    def type_at(self) -> int:
        """File offset of the type."""
        return self.shape_at + 8 * len(self.shape)
