"""Writes GGUF version 3 files: metadata and a tensor table first, then the tensors, streamed.

    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "qwen3")
        writer.declare("token_embd.weight", (2048, 256), GGMLType.Q8_0)
        writer.write("token_embd.weight", blocks)

The header goes to disk with the first tensor (or at the end), so a tensor of any size needs no more
memory than the pieces handed to `write`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from .types import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_DIMS,
    STRUCT_CODES,
    GGMLType,
    ValueType,
)

Writable: TypeAlias = bool | int | float | str | bytes | Sequence[Any] | np.ndarray[Any, Any]
Buffer: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]

_DTYPE_KINDS = {np.dtype(code): kind for kind, code in reversed(STRUCT_CODES.items())}
_DTYPE_KINDS[np.dtype(bool)] = ValueType.BOOL


class GGUFWriter:
    """A GGUF file being written. Leaving the `with` block by an error removes the file."""

    def __init__(self, path: str | Path, *, alignment: int = DEFAULT_ALIGNMENT) -> None:
        assert alignment in (8 << bit for bit in range(14)), alignment
        self.path = Path(path)
        self.alignment = alignment
        self._metadata: dict[str, bytes] = {}
        self._tensors: dict[str, tuple[tuple[int, ...], GGMLType]] = {}
        self._todo: list[str] = []  # declared tensors that are not written yet, in order
        self._left = 0  # bytes still missing of the first of them
        self._begun = False
        self._file = self.path.open("wb")
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment, ValueType.UINT32)

    def __enter__(self) -> GGUFWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.close()
        finally:
            if not self._file.closed:  # not whole
                self._file.close()
                self.path.unlink(missing_ok=True)

    def add(self, key: str, value: Writable, kind: ValueType | None = None) -> None:
        """Add metadata. `kind` is the type of the value, or of an array's elements.

        Without `kind`: bool is BOOL, int UINT32 (INT32 when negative, 64 bits when too large),
        float FLOAT32, str and bytes STRING; a numpy array keeps its dtype; sequences are arrays.
        """
        self._add(key, _tagged(value, kind))

    def add_stored(self, key: str, kind: ValueType, value: bytes) -> None:
        """Add metadata whose bytes come from another file: `GGUFFile.stored`."""
        self._add(key, struct.pack("<I", kind) + value)

    def _add(self, key: str, tagged: bytes) -> None:
        assert not self._begun, f"metadata {key!r} added after the header was written"
        if key in self._metadata:
            raise ValueError(f"metadata {key!r} already exists")
        self._metadata[key] = tagged

    def declare(self, name: str, shape: Sequence[int], kind: GGMLType) -> None:
        """Declare a tensor of `shape` (numpy order, rows first), to be written in this order."""
        assert not self._begun, f"tensor {name!r} declared after the header was written"
        shape = tuple(int(dim) for dim in shape)
        if name in self._tensors:
            raise ValueError(f"tensor {name!r} already exists")
        if not 1 <= len(shape) <= MAX_DIMS or min(shape) < 1:
            raise ValueError(f"tensor {name!r}: shape {shape} needs 1 to {MAX_DIMS} dimensions > 0")
        if shape[-1] % kind.block_size:
            blocks = f"{kind.name} blocks of {kind.block_size}"
            raise ValueError(f"tensor {name!r}: rows of {shape[-1]} are not a multiple of {blocks}")
        self._tensors[name] = shape, kind
        self._todo.append(name)

    def write(self, name: str, data: Buffer) -> None:
        """Write the stored bytes of tensor `name`, or the next piece of them."""
        self._turn_of(name)
        view = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else memoryview(data)
        if view.nbytes > self._left:
            raise ValueError(f"tensor {name!r}: {view.nbytes - self._left} bytes too many")
        self._file.write(view)
        self._left -= view.nbytes
        self._next_if_whole()

    def skip(self, name: str) -> None:
        """Skip the missing bytes of tensor `name`: a hole of zeros that takes no disk."""
        self._turn_of(name)
        self._file.seek(self._left, os.SEEK_CUR)
        self._left = 0
        self._next_if_whole()

    def close(self) -> None:
        """Finish the file. Every declared tensor must have been written."""
        self._begin()
        if self._todo:
            raise ValueError(f"{len(self._todo)} tensors were not written, first {self._todo[0]!r}")
        self._file.truncate()  # a hole at its end, too, belongs to it
        self._file.close()

    def _turn_of(self, name: str) -> None:
        self._begin()
        if not self._todo or self._todo[0] != name:
            raise ValueError(f"tensor {name!r} is not next: {self._todo[:1] or 'all are written'}")

    def _next_if_whole(self) -> None:
        if not self._left:
            self._todo.pop(0)
            self._pad()
            self._next()

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        counts = struct.pack("<IQQ", 3, len(self._tensors), len(self._metadata))
        self._file.write(MAGIC + counts)
        for key, value in self._metadata.items():
            self._file.write(_string(key) + value)
        offset = 0
        for name, (shape, kind) in self._tensors.items():
            dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            self._file.write(_string(name) + dims + struct.pack("<IQ", kind, offset))
            offset += -(-kind.nbytes(shape) // self.alignment) * self.alignment
        if self._tensors:
            self._pad()
        self._next()

    def _next(self) -> None:
        if self._todo:
            shape, kind = self._tensors[self._todo[0]]
            self._left = kind.nbytes(shape)

    def _pad(self) -> None:
        self._file.write(bytes(-self._file.tell() % self.alignment))


_LENGTH = struct.Struct("<Q")


def _string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode("utf-8")
    return _LENGTH.pack(len(raw)) + raw


def _kind_of(value: Writable) -> ValueType:
    """Return the type that represents a Python value when none is given."""
    if isinstance(value, bool | np.bool_):
        return ValueType.BOOL
    if isinstance(value, int):
        wide = not -(2**31) <= value < 2**32
        if value < 0:
            return ValueType.INT64 if wide else ValueType.INT32
        return ValueType.UINT64 if wide else ValueType.UINT32
    if isinstance(value, float):
        return ValueType.FLOAT32
    if isinstance(value, str | bytes):
        return ValueType.STRING
    if isinstance(value, Sequence | np.ndarray):
        return ValueType.ARRAY
    raise TypeError(f"GGUF metadata cannot hold a {type(value).__name__}")


def _tagged(value: Writable, kind: ValueType | None) -> bytes:
    """Encode a type tag and the value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return struct.pack("<I", ValueType.ARRAY) + _numeric_array(value, kind)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return struct.pack("<I", ValueType.ARRAY) + _array(value, kind)
    kind = _kind_of(value) if kind is None else kind
    return struct.pack("<I", kind) + _value(value, kind)


def _value(value: Any, kind: ValueType) -> bytes:
    if kind is ValueType.STRING:
        return _string(value)
    return struct.pack("<" + STRUCT_CODES[kind], value)


def _array(values: Sequence[Any], kind: ValueType | None) -> bytes:
    """Encode element type, count, elements; nested sequences make a nested array."""
    if kind is None:
        if {*map(type, values)} == {str}:  # a vocabulary: some hundred thousand of them
            kinds = {ValueType.STRING}
        else:
            kinds = {_kind_of(value) for value in values} or {ValueType.UINT32}
        if kinds == {ValueType.UINT32, ValueType.INT32}:
            kinds = {ValueType.INT32}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind.name for kind in kinds))
            raise TypeError(f"an array of mixed types ({names}): name the type")
        (kind,) = kinds
    head = struct.pack("<IQ", kind, len(values))
    if kind is ValueType.ARRAY:
        return head + b"".join(_array(value, None) for value in values)
    if kind is ValueType.STRING:
        return head + b"".join(map(_string, values))
    return head + struct.pack(f"<{len(values)}{STRUCT_CODES[kind]}", *values)


def _numeric_array(values: np.ndarray[Any, Any], kind: ValueType | None) -> bytes:
    kind = _DTYPE_KINDS[values.dtype] if kind is None else kind
    stored = np.ascontiguousarray(values.ravel(), np.dtype(STRUCT_CODES[kind]).newbyteorder("<"))
    return struct.pack("<IQ", kind, stored.size) + stored.tobytes()
