"""Reads and checks the header of a GGUF file: counts, metadata, tensor table.

    magic u32 | version u32 | n_tensors u64 | n_kv u64 | n_kv × (key, type, value)
    | n_tensors × (name, n_dims, dims, type, offset) | padding | tensor data

Nothing read here is believed before it is compared with the size of the file. The limits below
bound time and memory for a large hostile file too; real files are far below them.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from itertools import pairwise
from typing import NamedTuple, NoReturn

import numpy as np

from ...errors import GGUFError
from .mapped_file_guard import MappedFileGuard
from .types import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    MAX_DIMS,
    STRUCT_CODES,
    VERSIONS,
    WITHDRAWN,
    GGMLType,
    MetadataValue,
    StringArray,
    TensorInfo,
    ValueType,
)

MAX_TENSORS = 1 << 15  # real files have up to 2,000
MAX_METADATA = 1 << 13  # and up to 100 keys
MAX_KEY = 65_535  # bytes, from the GGUF specification
MAX_NAME = 127  # bytes: ggml is built with 64, some forks with 128, both count a final NUL
MAX_STRING = 1 << 26  # bytes of one string: chat templates have some 10 kB
MAX_TEXT = 1 << 28  # bytes of all keys, names and single strings together
MAX_STRINGS = 1 << 22  # strings in all arrays together: tokens and merges are up to 780,000
MAX_DEPTH = 4  # arrays in arrays
MAX_NESTED = 1 << 12  # arrays inside arrays, in the whole file
MAX_ALIGNMENT = 1 << 16
WINDOW, WALKED = 1 << 12, 64  # bytes to look for strings in at first, strings to walk one by one
PLAUSIBLE = 1 << 26  # elements of an array that a cut file may have had

TRUNCATED = "the file looks truncated: download it again"

MIN_METADATA_BYTES = 8 + 1 + 4 + 1  # key length, one letter, type, one byte of value
MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name length, one letter, n_dims, one dim, type, offset

_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from
_SCALARS = {kind: struct.Struct("<" + code) for kind, code in STRUCT_CODES.items()}
_DTYPES = {kind: np.dtype(code).newbyteorder("<") for kind, code in STRUCT_CODES.items()}


def shown(name: str) -> str:
    """Format `name` for a message: quoted, control characters escaped, at most a line."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


class _Entry(NamedTuple):
    """One line of the tensor table as stored, with the offsets of its fields."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int  # from the start of the data
    at: int  # where the line starts
    offset_at: int

    @property
    def nbytes(self) -> int:
        return self.type.nbytes(self.shape)


class HeaderReader:
    """A reader of a mapped file's header; `read()` fills the attributes."""

    def __init__(self, buffer: mmap.mmap, held: MappedFileGuard) -> None:
        self._buffer, self._held = buffer, held
        self._size = len(buffer)
        self._pos = 0
        self._nested = self._strings = self._text = 0  # so far, against the limits above
        self.version = 0
        self.alignment = DEFAULT_ALIGNMENT
        self.metadata: dict[str, MetadataValue] = {}
        self.metadata_offsets: dict[str, int] = {}  # where each value starts
        self.metadata_ends: dict[str, int] = {}  # and where it ends
        self.metadata_types: dict[str, ValueType] = {}
        self.tensors: dict[str, TensorInfo] = {}

    def read(self) -> None:
        """Read and check the whole header; raise GGUFError at the first fault."""
        self._read_magic()
        at = self._pos
        n_tensors = self._count("tensor count", MAX_TENSORS)
        n_metadata = self._count("metadata count", MAX_METADATA)
        # At least this much must follow; said here, because here is the field that is wrong.
        rest = self._size - self._pos
        if n_metadata * MIN_METADATA_BYTES > rest:
            message = f"{n_metadata} entries cannot fit in {rest} bytes"
            self._fail(message, "metadata count", at + 8, truncated=True)
        if n_tensors * MIN_TENSOR_BYTES > rest - n_metadata * MIN_METADATA_BYTES:
            message = f"{n_tensors} tensors cannot fit in {rest} bytes"
            self._fail(message, "tensor count", at, truncated=True)
        for index in range(n_metadata):
            self._read_metadata(index)
        self._read_alignment()
        self._read_tensors(n_tensors)

    # --- the pieces -------------------------------------------------------------------------

    def _fail(self, message: str, field: str, offset: int, *, truncated: bool = False) -> NoReturn:
        """Raise GGUFError; `truncated`: whether more bytes of the file could make it right."""
        remedy = {"remedy": TRUNCATED} if truncated else {}
        raise GGUFError(message, path=self._held.path, field=field, offset=offset, **remedy)

    def _need(self, count: int, field: str) -> int:
        """Check that `count` bytes follow; move over them and return where they start."""
        start = self._pos
        if count > self._size - start:
            have = self._size - start
            message = f"needs {count} bytes, but the file ends after {have} more"
            self._fail(message, field, start, truncated=True)
        self._pos = start + count
        return start

    def _u32(self, field: str) -> int:
        return _u32(self._buffer, self._need(4, field))[0]

    def _u64(self, field: str) -> int:
        return _u64(self._buffer, self._need(8, field))[0]

    def _count(self, field: str, limit: int) -> int:
        count = self._u64(field)
        if count > limit:
            self._fail(f"{count} is more than the limit of {limit}", field, self._pos - 8)
        return count

    def _length(self, field: str, limit: int) -> int:
        """Read the length of a string; one within the limit may have been cut off."""
        at = self._pos
        length = self._u64(f"{field} length")
        left = self._size - self._pos
        if length > left:
            message = f"{length} bytes, but the file ends after {left} more"
            self._fail(message, f"{field} length", at, truncated=length <= limit)
        return length

    def _bytes(self, field: str, limit: int) -> bytes:
        """Read a length and that many bytes. Faults are reported at the length."""
        at, length = self._pos, self._length(field, limit)
        if length > limit:
            self._fail(f"{length} bytes, the limit is {limit}", f"{field} length", at)
        self._text += length
        if self._text > MAX_TEXT:
            self._fail(f"more than {MAX_TEXT} bytes of text", f"{field} length", at)
        start = self._need(length, field)
        return self._buffer[start : start + length]

    def _name(self, field: str, limit: int) -> str:
        """Read an identifying string: it must not be empty and must be UTF-8."""
        at = self._pos
        raw = self._bytes(field, limit)
        if not raw:
            self._fail("empty", field, at)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._fail("not valid UTF-8", field, at + 8 + error.start)

    def _read_magic(self) -> None:
        start = self._need(4, "magic")
        magic = self._buffer[start : start + 4]
        if magic == MAGIC[::-1]:
            self._fail("a big-endian GGUF file; this reader takes little-endian", "magic", start)
        if magic != MAGIC:
            self._fail(f"not a GGUF file: it starts with {magic!r}", "magic", start)
        self.version = self._u32("version")
        if self.version in VERSIONS:
            return
        at = self._pos - 4
        swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big")
        if swapped in VERSIONS:
            message = f"a big-endian GGUF file (version {swapped}); this reader takes little-endian"
            self._fail(message, "version", at)
        known = " and ".join(map(str, VERSIONS))
        self._fail(f"GGUF version {self.version}; versions {known} are read", "version", at)

    # --- metadata ---------------------------------------------------------------------------

    def _read_metadata(self, index: int) -> None:
        at = self._pos
        key = self._name(f"metadata {index} key", MAX_KEY)
        field = f"metadata {shown(key)}"
        if key in self.metadata:
            self._fail("this key occurs twice", field, at)
        kind = self._value_type(field)
        self.metadata_offsets[key] = self._pos
        self.metadata_types[key] = kind
        self.metadata[key] = self._value(kind, field)
        self.metadata_ends[key] = self._pos

    def _value_type(self, field: str) -> ValueType:
        tag = self._u32(f"{field} type")
        try:
            return ValueType(tag)
        except ValueError:
            self._fail(f"unknown value type {tag}", f"{field} type", self._pos - 4)

    def _value(self, kind: ValueType, field: str) -> MetadataValue:
        if kind is ValueType.STRING:
            return self._bytes(field, MAX_STRING).decode("utf-8", "replace")
        if kind is ValueType.ARRAY:
            return self._array(field, 1)
        code = _SCALARS[kind]
        at = self._need(code.size, field)
        (value,) = code.unpack_from(self._buffer, at)
        if kind is not ValueType.BOOL:
            return value
        if value > 1:
            self._fail(f"a boolean must be 0 or 1, not {value}", field, at)
        return bool(value)

    def _array(self, field: str, depth: int) -> MetadataValue:
        if depth > MAX_DEPTH:
            self._fail(f"arrays nested more than {MAX_DEPTH} deep", field, self._pos)
        kind = self._value_type(f"{field} element")
        at = self._pos
        count = self._u64(f"{field} count")
        smallest = {ValueType.STRING: 8, ValueType.ARRAY: 12}.get(kind) or _DTYPES[kind].itemsize
        left = self._size - self._pos
        if count > left // smallest:
            message = f"{count} elements of {smallest} bytes or more, but the file has {left} left"
            self._fail(message, f"{field} count", at, truncated=count <= PLAUSIBLE)
        if kind is ValueType.STRING:
            return self._string_array(field, count, at)
        if kind is ValueType.ARRAY:
            self._nested += count
            if self._nested > MAX_NESTED:
                message = f"more than {MAX_NESTED} arrays inside arrays"
                self._fail(message, f"{field} count", at)
            return [self._array(f"{field}[{i}]", depth + 1) for i in range(count)]
        start = self._need(count * smallest, field)
        values = np.frombuffer(self._buffer, _DTYPES[kind], count, start)
        if kind is not ValueType.BOOL:
            return values
        if count and values.max() > 1:
            bad = int(np.argmax(values > 1))
            message = f"a boolean must be 0 or 1, not {values[bad]}"
            self._fail(message, f"{field}[{bad}]", start + bad)
        return values.view(np.bool_)

    def _string_array(self, field: str, count: int, at: int) -> StringArray:
        """Skip `count` strings without decoding them."""
        self._strings += count
        if self._strings > MAX_STRINGS:
            self._fail(f"more than {MAX_STRINGS} strings in arrays", f"{field} count", at)
        pos, starts, window = self._pos, array("q"), WINDOW
        while len(starts) < count and pos <= self._size:
            found = self._plain_strings(pos, window)[: count - len(starts) + 1]
            starts.frombytes(found[:-1].tobytes())
            # Small again after a string that is not plain: no file may make this quadratic.
            window = min(2 * window, 16 * WINDOW) if found[-1] - pos > window // 2 else WINDOW
            pos = self._walk(int(found[-1]), min(WALKED, count - len(starts)), starts)
        if pos > self._size:
            self._find_bad_string(field, count)
        self._pos = pos
        starts.append(pos)
        return StringArray(self._buffer, self._held, np.frombuffer(starts, np.int64))

    def _plain_strings(self, pos: int, window: int) -> np.ndarray:
        """Return where strings start from `pos` on, as far as they are easily seen: int64, not [].

        These are of 1 to 255 bytes: a byte that is not 0, seven that are, another that is not. Each
        is where the one before it ends, so whatever their text is, no start is wrong.
        """
        size = min(window, max(0, self._size - pos))
        data = np.frombuffer(self._buffer, np.uint8, size, pos if size else 0)
        filled = np.flatnonzero(data)
        at = filled[:-1][np.diff(filled) == 8]
        if not len(at) or at[0]:
            return np.array([pos])
        wrong = np.flatnonzero(at[1:] != at[:-1] + 8 + data[at[:-1]])
        return pos + at[: wrong[0] + 1 if len(wrong) else None]

    def _walk(self, pos: int, count: int, starts: array[int]) -> int:
        """Append where `count` strings start, 100 ns for each; return where they end."""
        note = starts.append
        with memoryview(self._buffer) as buffer:
            try:
                for _ in range(count):
                    note(pos)
                    pos += 8 + _u64(buffer, pos)[0]
            except (struct.error, IndexError, OverflowError):  # walked past the end of the file
                return self._size + 1
        return pos

    def _find_bad_string(self, field: str, count: int) -> NoReturn:
        """Walk again, slowly, to find the string that runs past the file."""
        for index in range(count):
            length = self._length(f"{field}[{index}]", MAX_STRING)  # which moves on by itself
            self._pos += length
        raise AssertionError(f"{field}: the fast walk failed, the slow one did not")

    def _read_alignment(self) -> None:
        key = "general.alignment"
        if key not in self.metadata:
            return
        value, at = self.metadata[key], self.metadata_offsets[key]
        if self.metadata_types[key] is not ValueType.UINT32 or not isinstance(value, int):
            kind = self.metadata_types[key].name
            self._fail(f"must be UINT32, is {kind}", f"metadata '{key}'", at)
        if not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
            message = f"{value} is not a power of two from 8 to {MAX_ALIGNMENT}"
            self._fail(message, f"metadata '{key}'", at)
        self.alignment = value

    # --- tensors ----------------------------------------------------------------------------

    def _read_tensors(self, count: int) -> None:
        entries: dict[str, _Entry] = {}
        for index in range(count):
            entry = self._read_entry(index)
            if entry.name in entries:
                message = "this tensor name occurs twice"
                self._fail(message, f"tensor {shown(entry.name)}", entry.at)
            entries[entry.name] = entry
        # Only now is it known where the data starts.
        data_start = self._aligned(self._pos)
        room = sum(self._aligned(entry.nbytes) for entry in entries.values())
        for entry in entries.values():
            self.tensors[entry.name] = self._located(entry, data_start, room)
        for before, after in pairwise(sorted(self.tensors.values(), key=lambda t: t.offset)):
            overlap = before.offset + before.nbytes - after.offset
            if overlap > 0:
                message = f"overlaps tensor {shown(before.name)} by {overlap} bytes"
                field = f"tensor {shown(after.name)} offset"
                self._fail(message, field, entries[after.name].offset_at)

    def _aligned(self, nbytes: int) -> int:
        return -(-nbytes // self.alignment) * self.alignment

    def _located(self, entry: _Entry, data_start: int, room: int) -> TensorInfo:
        """Set a tensor's offset; `room`: bytes of all tensors, beyond which no offset is valid."""
        start, nbytes = data_start + entry.offset, entry.nbytes
        field = f"tensor {shown(entry.name)} offset"
        if entry.offset % self.alignment:
            message = f"{entry.offset} is not a multiple of the alignment {self.alignment}"
            self._fail(message, field, entry.offset_at)
        if start + nbytes > self._size:
            message = f"its {nbytes} bytes from byte {start} run past the file's {self._size}"
            truncated = entry.offset + nbytes <= room
            self._fail(message, field, entry.offset_at, truncated=truncated)
        return TensorInfo(entry.name, entry.shape, entry.type, start, nbytes, entry.at)

    def _read_entry(self, index: int) -> _Entry:
        at = self._pos
        name = self._name(f"tensor {index} name", MAX_NAME)
        field = f"tensor {shown(name)}"
        shape, dims_at = self._dims(field)
        kind = self._tensor_type(field)
        if shape[-1] % kind.block_size:
            blocks = f"{kind.name} blocks of {kind.block_size}"
            message = f"rows of {shape[-1]} are not a multiple of {blocks}"
            self._fail(message, f"{field} dimension 0", dims_at)
        offset = self._u64(f"{field} offset")
        return _Entry(name, shape, kind, offset, at, self._pos - 8)

    def _dims(self, field: str) -> tuple[tuple[int, ...], int]:
        """Return (shape in numpy order, offset of the dimensions)."""
        n_dims = self._u32(f"{field} n_dims")
        if not 1 <= n_dims <= MAX_DIMS:
            message = f"{n_dims} dimensions; 1 to {MAX_DIMS} are allowed"
            self._fail(message, f"{field} n_dims", self._pos - 4)
        dims_at, count, dims = self._pos, 1, []
        for axis in range(n_dims):
            dim = self._u64(f"{field} dimension {axis}")
            if dim == 0:
                self._fail("zero", f"{field} dimension {axis}", self._pos - 8)
            count *= dim
            if count >= 1 << 63:
                message = f"the product of the dimensions overflows at {dim}"
                self._fail(message, f"{field} dimension {axis}", self._pos - 8)
            dims.append(dim)
        return tuple(reversed(dims)), dims_at

    def _tensor_type(self, field: str) -> GGMLType:
        tag = self._u32(f"{field} type")
        try:
            return GGMLType(tag)
        except ValueError:
            message = f"unknown tensor type {tag}"
            if tag in WITHDRAWN:
                message += f" ({WITHDRAWN[tag]}, withdrawn: convert the model again)"
            self._fail(message, f"{field} type", self._pos - 4)
