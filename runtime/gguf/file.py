"""GGUF files, mapped and checked.

The whole header is checked when a file is opened, and nothing in it is believed: a damaged or
hostile file ends in a `GGUFError` that names the field and its byte offset. String arrays (a
vocabulary has 150,000 strings) are only walked over; they are decoded when somebody asks for them.

Tensor data and numeric arrays are views on the mapping. What a file that *shrinks* meanwhile has
lost reads as zeros (`mapped_file_guard.py`). So a caller that reads much of the file calls
`GGUFFile.check_unchanged()` first, and again before it uses what it has read; the engine copies the
weights out of the mapping when it packs them, and checks `GGUFFile.files` before and after each
pass, which reads rows of the embedding table.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np

from ...arguments import Closing, ProcessBound, open_regular
from ...errors import GGUFError, ModelError, UnsupportedModelError
from ..memory import drop
from .header import TRUNCATED, HeaderReader, shown
from .mapped_file_guard import MappedFileGuard, sha256_of
from .types import GGMLType, MetadataValue, StringArray, TensorInfo, Texts, ValueType

__all__ = ["GGMLType", "GGUFFile", "MetadataValue", "StringArray", "TensorInfo", "ValueType"]

FLOAT32_MAX = float(np.finfo(np.float32).max)
Scalar = TypeVar("Scalar", bound=bool | int | float | str)


class GGUFFile(ProcessBound, Closing):
    """An open, checked GGUF file; a context manager.

    Attributes:
        path: as given to `open_gguf`.
        version: 2 or 3.
        alignment: bytes; every tensor's offset in the data section is a multiple of it.
        metadata: values by key. Numeric arrays are read-only numpy views on the mapping, string
            arrays are `StringArray` (decoded on first use), nested arrays are lists.
        tensors: tensor table by name, in file order.
        nbytes: size of the file, of all its parts together if it is split.
        parts: the paths that it was opened by; one, unless it is split.
        files: the same files, held open.
    """

    def __init__(self, path: Path, buffer: mmap.mmap, held: MappedFileGuard) -> None:
        """Use `open_gguf` instead. Takes over `buffer`, which maps the whole file."""
        header = HeaderReader(buffer, held)
        header.read()
        self.path = path
        self.parts: tuple[Path, ...] = (path,)
        self.files: tuple[MappedFileGuard, ...] = (held,)
        self.nbytes = len(buffer)
        self.version = header.version
        self.alignment = header.alignment
        self.metadata = header.metadata
        self.tensors = header.tensors
        self._types = header.metadata_types
        self._offsets = header.metadata_offsets
        self._ends = header.metadata_ends
        self._buffer: mmap.mmap | None = buffer

    @classmethod
    def open_one(cls, path: str | Path) -> GGUFFile:
        """Map the file at `path` alone, even if it is a part of a split model; check its header.

        Raises GGUFError when the file is damaged and ModelError when it cannot be opened.
        """
        path = Path(path)
        try:
            file = open_regular(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelError(f"cannot open the model file {path}: {reason}") from error
        with file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise GGUFError(
                    "the file is empty", path=path, field="magic", offset=0, remedy=TRUNCATED
                )
            held = MappedFileGuard(path, file.fileno())
        try:
            return cls(path, held.map(), held)
        finally:
            held.check()  # what a file that is cut meanwhile has lost reads as zeros

    def close(self) -> None:
        """Release the mapping. It lives on while views of tensor data or arrays do."""
        self._buffer = None

    @property
    def _mapping(self) -> mmap.mmap:
        if self._buffer is None:
            raise ModelError(f"{self.path} is closed")
        return self._buffer

    def data(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Return the stored bytes of tensor `name`: uint8 [nbytes], a read-only view of the map."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"{self.path} has no tensor {shown(name)}")
        return np.frombuffer(self._mapping, np.uint8, info.nbytes, info.offset)

    def release(self, name: str) -> None:
        """Release the memory of tensor `name`; its bytes are read from the file again when needed.

        Only whole pages go, and only where the system knows how.
        """
        drop(self.data(name))

    def sha256(self) -> str:
        """Return the hex digest of the opened file, even if the path was replaced; for split
        models, of the joined digests of the parts.

        Raises ModelError when a file was changed before it was hashed.
        """
        return sha256_of(self.files)

    def check_unchanged(self) -> None:
        """Raise ModelError when a file was cut or written to since it was opened."""
        for file in self.files:
            file.check()

    # --- typed metadata ---------------------------------------------------------------------

    def integer(
        self, key: str, default: int | None = None, *, low: int = 0, high: int = 2**31 - 1
    ) -> int:
        """Return the whole number at `key`, from `low` to `high`; `default` if the key is missing.

        Raises GGUFError for another type, a value out of range, or (without default) no such key.
        """
        value = self._typed(key, (int,), "a whole number", default)
        if not low <= value <= high:
            self.refuse(key, f"{value} is not between {low} and {high}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return the number at `key`, finite as a float32; `default` if the key is missing."""
        value = self._typed(key, (int, float), "a number", default)
        if not abs(value) <= FLOAT32_MAX:  # NaN is not, either
            self.refuse(key, f"{value} is not finite in 32 bits")
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        """Return the string at `key`; `default` if the key is missing."""
        return self._typed(key, (str,), "a string", default)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """Return the boolean at `key`; `default` if the key is missing."""
        return self._typed(key, (bool,), "a boolean", default)

    def _typed(
        self, key: str, kinds: tuple[type[Scalar], ...], expected: str, default: Scalar | None
    ) -> Scalar:
        if key not in self.metadata:
            if default is None:
                self.refuse(key, "missing")
            return default
        value = self.metadata[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.refuse(key, f"must be {expected}, is {self._types[key].name}")
        return value

    def strings(self, key: str) -> StringArray | None:
        """Return the array of strings at `key`; None if the key is missing."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, StringArray):
            self.refuse(key, "must be an array of strings")
        return value

    def texts(self, key: str, *, longest: int, total: int) -> Texts | None:
        """Return a copy of the strings at `key`; None if the key is missing.

        Raises GGUFError when one has more than `longest` bytes or is not UTF-8, and when all
        together have more than `total` bytes.
        """
        found = self.strings(key)
        if found is None:
            return None
        lengths = found.lengths
        if len(lengths) and lengths.max() > longest:
            index = int(lengths.argmax())
            self.refuse_element(key, index, f"{lengths[index]} bytes; the limit is {longest}")
        if lengths.sum() > total:
            self.refuse(key, f"{lengths.sum()} bytes in all; the limit is {total}")
        try:
            return found.copied()
        except UnicodeDecodeError as error:
            self.refuse_element(key, error.start, "not valid UTF-8")

    def numbers(self, key: str, count: int) -> np.ndarray[tuple[int], np.dtype[Any]] | None:
        """Return the array of numbers at `key`; None if the key is missing.

        Raises GGUFError when it is no numeric array or has fewer than `count` elements.
        """
        value = self.metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray):
            self.refuse(key, "must be an array of numbers")
        if len(value) < count:
            self.refuse(key, f"has {len(value)} elements, {count} are needed")
        return value

    def stored(self, key: str) -> tuple[ValueType, bytes]:
        """Return the stored value at `key`: its type, and its bytes without the type."""
        return self._types[key], self._mapping[self._offsets[key] : self._ends[key]]

    def refuse(self, key: str, message: str) -> NoReturn:
        """Raise a GGUFError with `message` on the value at `key`, and its byte offset."""
        field, offset = f"metadata {shown(key)}", self._offsets.get(key)
        raise GGUFError(message, path=self.path, field=field, offset=offset)

    def unsupported(self, key: str, why: str) -> NoReturn:
        """Raise the UnsupportedModelError for a valid value at `key` that nothing here supports."""
        raise UnsupportedModelError(f"{self.path}: {shown(key)} {why}")

    def refuse_element(self, key: str, index: int, message: str) -> NoReturn:
        """Raise `refuse`'s error for string `index` of the array at `key`."""
        value = self.metadata[key]
        assert isinstance(value, StringArray), key
        field, offset = f"metadata {shown(key)}[{index}]", int(value.starts[index])
        raise GGUFError(message, path=self.path, field=field, offset=offset)

    def refuse_tensor(
        self, name: str, message: str, part: Literal["shape", "type", "data"], at: int = 0
    ) -> NoReturn:
        """Raise `refuse`'s error for tensor `name`, which may be missing; `at`: data offset."""
        info = self.tensors.get(name)
        field, offset = f"tensor {shown(name)}", None
        if info is not None:
            field = f"{field} {part}"
            offset = {"shape": info.shape_at, "type": info.type_at, "data": info.offset + at}[part]
        raise GGUFError(message, path=self.path_of(name), field=field, offset=offset)

    def path_of(self, name: str) -> Path:
        """Return the path of the file that has tensor `name`, or would have it."""
        return self.path
