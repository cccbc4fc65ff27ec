"""Safetensors files, mapped and checked: a JSON header, then the tensors.

    header length u64 | header {name: {dtype, shape, data_offsets: [first, end]}} | data

Nothing in a header is believed before it is compared with the size of the file. A checkpoint in
several files has `model.safetensors.index.json`, which says where each tensor is.

Weights in MXFP4 are two tensors of bytes there: X_blocks [..., rows, n, 16], two values a byte, and
X_scales [..., rows, n], the exponents. Here they are one, X_blocks [..., rows, 32 n].
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from ..gguf.types import GGMLType
from ..memory import drop

MAX_HEADER = 100 << 20  # bytes, as the format's own reader allows
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
BLOCKS, SCALES = "_blocks", "_scales"  # how the names of the two parts of MXFP4 weights end

_FLOATS = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}
_NUMPY = {GGMLType.F32: "<f4", GGMLType.F16: "<f2", GGMLType.BF16: "<u2"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a checkpoint: its dtype as the format calls it, shape, and location.

    With `scales`, the tensor of its exponents, it is MXFP4, and `shape` is that of its weights.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    first: int
    nbytes: int
    scales: Stored | None = None

    @property
    def type(self) -> GGMLType:
        """The GGUF type of the tensor's number format; UnsupportedModelError if there is none."""
        if self.scales is not None:
            return GGMLType.MXFP4
        if self.dtype not in _FLOATS:
            known = ", ".join(_FLOATS)
            message = f"{self.file}: tensor {self.name} is {self.dtype}; {known} can be converted"
            raise UnsupportedModelError(message)
        return _FLOATS[self.dtype]


class Checkpoint:
    """A checkpoint: all tensors of a folder's safetensors files, mapped.

    Attributes:
        tensors: by name.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder; raises ModelError for a file that is missing, damaged or not as listed."""
        self.folder = folder
        self.tensors: dict[str, Stored] = {}
        self._maps: dict[Path, mmap.mmap] = {}
        index = folder / INDEX
        indexed = _index_files(index) if index.exists() else None
        files = sorted(set(indexed.values())) if indexed else [SINGLE]
        for name in files:
            self._read(folder / name)
        for name, file in (indexed or {}).items():
            if name not in self.tensors or self.tensors[name].file.name != file:
                raise ModelError(f"{folder / file} has no tensor {name}, which {INDEX} promises")
        for name in [n for n, t in self.tensors.items() if t.dtype == "U8" and n.endswith(BLOCKS)]:
            self._join(name)

    def array(self, name: str) -> np.ndarray:
        """Return a tensor's values, a read-only view of the mapping; BF16 as raw bits in uint16."""
        stored = self.tensors[name]
        return self._bytes(stored).view(_NUMPY[stored.type]).reshape(stored.shape)

    def blocks(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return an MXFP4 tensor as values [..., rows, 16 n] and exponents [..., rows, n]: uint8.

        Views on the mapping. A byte has two values, the first in its lower half.
        """
        stored = self.tensors[name]
        assert stored.scales is not None
        *rows, width = stored.shape
        values, scales = self._bytes(stored), self._bytes(stored.scales)
        return values.reshape(*rows, width // 2), scales.reshape(*rows, width // 32)

    def release(self, name: str) -> None:
        """Release the memory of a tensor that has been read, where the system supports it."""
        stored = self.tensors[name]
        for part in (stored, stored.scales):
            if part is not None:
                drop(self._bytes(part))

    def _bytes(self, stored: Stored) -> np.ndarray:
        return np.frombuffer(self._maps[stored.file], np.uint8, stored.nbytes, stored.first)

    def _join(self, name: str) -> None:
        """Merge MXFP4 values and their exponents into one tensor."""
        stored, other = self.tensors[name], name.removesuffix(BLOCKS) + SCALES
        scales = self.tensors.pop(other, None)
        if scales is None:
            _fail(stored.file, f"tensor {name} has no {other} beside it")
        *rows, size = stored.shape
        sound = len(rows) >= 2 and size == 16 and (scales.dtype, scales.shape) == ("U8", (*rows,))
        if not sound or (stored.nbytes, scales.nbytes) != (16 * math.prod(rows), math.prod(rows)):
            shapes = f"{list(stored.shape)} and {list(scales.shape)}"
            _fail(stored.file, f"{name} and {other} have shapes that do not fit: {shapes}")
        shape = (*rows[:-1], 32 * rows[-1])
        self.tensors[name] = replace(stored, shape=shape, scales=scales)

    def _read(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size < 8:
                    _fail(path, f"it has {size} bytes, not even the length of a header")
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            hint = _hint(path.parent) if path.name == SINGLE else ""
            raise ModelError(f"cannot open {path}: {error.strerror}{hint}") from error
        length = int.from_bytes(buffer[:8], "little")
        if length > min(MAX_HEADER, size - 8):
            _fail(path, f"its header would have {length} bytes, the file has {size}")
        try:
            header = json.loads(buffer[8 : 8 + length])
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is damaged: its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            _fail(path, "its header is not a JSON object")
        self._maps[path] = buffer
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if name in self.tensors:
                _fail(path, f"tensor {name} is in {self.tensors[name].file.name} too")
            self.tensors[name] = _entry(path, name, entry, 8 + length, size)


def _entry(path: Path, name: str, entry: Any, data: int, size: int) -> Stored:
    try:
        dtype, shape = str(entry["dtype"]), tuple(entry["shape"])
        first, end = entry["data_offsets"]
        if not all(type(n) is int and n >= 0 for n in (*shape, first, end)):
            raise ValueError
    except (TypeError, KeyError, ValueError):
        _fail(path, f"tensor {name} has no sound dtype, shape and data_offsets")
    if end < first or data + end > size:
        _fail(path, f"tensor {name} ends at byte {data + end}, the file at {size}: it is cut")
    if dtype in _FLOATS and end - first != math.prod(shape) * _FLOATS[dtype].type_size:
        _fail(path, f"tensor {name}, {dtype} {list(shape)}, has {end - first} bytes")
    return Stored(name, dtype, shape, path, data + first, end - first)


def _index_files(index: Path) -> dict[str, str]:
    """Read the index: tensor name to file name."""
    found = read_json(index).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise ModelError(f"{index} has no weight_map")
    for file in found.values():
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelError(f"{index} names a file outside its folder: {file!r}")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ModelError: it cannot be read, or is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot open {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value


def _hint(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        return "; only safetensors are read: pickled weights can run any code"
    return ""


def _fail(path: Path, message: str) -> NoReturn:
    raise ModelError(f"{path} is damaged: {message}")
