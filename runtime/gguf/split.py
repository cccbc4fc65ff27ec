"""A model that is split into several GGUF files, read as one.

Tools that split a model call its parts ``NAME-00001-of-00003.gguf`` and so on. The first part has
the model's metadata, each has a table of its own tensors, and each says which part it is:
``split.no`` (from 0), ``split.count``, and ``split.tensors.count``, the tensors of all parts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import GGUFError, ModelError
from .file import GGUFFile, ValueType
from .header import shown


class SplitGGUFFile(GGUFFile):
    """All parts of a split model as one `GGUFFile`; a tensor's offset counts in its own part."""

    def __init__(self, parts: list[GGUFFile]) -> None:
        """Use `open_gguf` with the first part."""
        first = parts[0]
        self.path, self.version, self.alignment = first.path, first.version, first.alignment
        self.metadata = first.metadata
        self.nbytes = sum(part.nbytes for part in parts)
        self.parts = tuple(part.path for part in parts)
        self.files = tuple(file for part in parts for file in part.files)
        self._types, self._offsets = first._types, first._offsets
        self._parts = parts
        self._buffer = None
        self._part_of: dict[str, GGUFFile] = {}
        self.tensors = {}
        for part in parts:
            for name, info in part.tensors.items():
                if name in self.tensors:
                    other = self._part_of[name].path.name
                    message, field = f"this tensor is also in {other}", f"tensor {shown(name)}"
                    raise GGUFError(message, path=part.path, field=field, offset=info.at)
                self.tensors[name] = info
                self._part_of[name] = part
        total = first.integer("split.tensors.count", len(self.tensors))
        if total != len(self.tensors):
            found = f"{len(self.tensors)} tensors in all parts together"
            first.refuse("split.tensors.count", f"{total}, but there are {found}")

    def close(self) -> None:
        """Release all mappings."""
        for part in self._parts:
            part.close()

    def data(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Return the stored bytes of tensor `name`: uint8 [nbytes], a read-only view of the map."""
        part = self._part_of.get(name)
        if part is None:
            raise ModelError(f"{self.path} and its other parts have no tensor {shown(name)}")
        return part.data(name)

    def stored(self, key: str) -> tuple[ValueType, bytes]:
        """Return the value at `key` as stored in the first part."""
        return self._parts[0].stored(key)

    def path_of(self, name: str) -> Path:
        """Return the part that has tensor `name`; the first if none has it."""
        part = self._part_of.get(name)
        return self.path if part is None else part.path
