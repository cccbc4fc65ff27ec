"""Damaged and hostile GGUF files: always a GGUFError with field and byte offset, never more.

The files are built byte by byte here, so that every case knows the offset of the field it damages.
"""

from __future__ import annotations

import contextlib
import pickle
import tracemalloc
from pathlib import Path

import pytest

from triplepoint.errors import GGUFError
from triplepoint.runtime.gguf.file import GGMLType, ValueType
from triplepoint.runtime.gguf.open import open_gguf

HUGE = 2**64 - 1


class Crafted:
    """Bytes of a GGUF file; `mark()` remembers where the field of interest starts."""

    def __init__(self, n_tensors: int = 0, n_metadata: int = 0, version: int = 3) -> None:
        self.raw = bytearray(b"GGUF")
        self.at = -1
        self.u32(version).u64(n_tensors).u64(n_metadata)

    def mark(self) -> Crafted:
        self.at = len(self.raw)
        return self

    def bytes(self, raw: bytes) -> Crafted:
        self.raw += raw
        return self

    def u32(self, value: int) -> Crafted:
        return self.bytes(value.to_bytes(4, "little"))

    def u64(self, value: int) -> Crafted:
        return self.bytes(value.to_bytes(8, "little"))

    def string(self, text: bytes) -> Crafted:
        return self.u64(len(text)).bytes(text)

    def key(self, name: bytes, kind: int) -> Crafted:
        return self.string(name).u32(kind)

    def tensor(
        self, name: bytes, dims: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0
    ) -> Crafted:
        self.string(name).u32(len(dims))
        for dim in dims:
            self.u64(dim)
        return self.u32(kind).u64(offset)

    def pad(self, data: int = 0) -> Crafted:
        """Padding up to the data section, and `data` bytes of it."""
        return self.bytes(bytes(-len(self.raw) % 32 + data))


# Each: name, field of the error, part of its message, file.
U32, STRING, ARRAY = int(ValueType.UINT32), int(ValueType.STRING), int(ValueType.ARRAY)


def metadata_cases() -> list[tuple[str, str, str, Crafted]]:
    def one(kind: int = U32) -> Crafted:
        return Crafted(0, 1).key(b"k", kind)

    def array(element: int, count: int) -> Crafted:
        return one(ARRAY).u32(element).mark().u64(count)

    alignment = "general.alignment"

    def aligned(value: int, kind: int = U32, size: int = 4) -> Crafted:
        file = Crafted(0, 1).key(alignment.encode(), kind).mark()
        return file.bytes(value.to_bytes(size, "little"))

    def counted(tensors: int, metadata: int, at: int) -> Crafted:
        file = Crafted(tensors, metadata).bytes(bytes(2 << 20))
        file.at = at
        return file

    deep = Crafted(0, 1).key(b"k", ARRAY)
    for _ in range(4):
        deep.u32(ARRAY).u64(1)
    deep.mark().u32(U32).u64(1).u32(5)

    return [
        ("key length", "metadata 0 key length", "ends after 8 more",
         Crafted(0, 1).mark().u64(HUGE).bytes(bytes(8))),
        ("key too long", "metadata 0 key length", "the limit is 65535",
         Crafted(0, 1).mark().u64(70_000).bytes(bytes(80_000))),
        ("key empty", "metadata 0 key", "empty",
         Crafted(0, 1).mark().string(b"").u32(U32).u32(1)),
        ("key not UTF-8", "metadata 0 key", "UTF-8",
         Crafted(0, 1).u64(3).bytes(b"a").mark().bytes(b"\xff\xfe").u32(U32).u32(1)),
        ("key twice", "metadata 'k'", "twice",
         Crafted(0, 2).key(b"k", U32).u32(1).mark().key(b"k", U32).u32(1)),
        ("value type", "metadata 'k' type", "unknown value type 13",
         Crafted(0, 1).string(b"k").mark().u32(13).u32(1)),
        ("value type huge", "metadata 'k' type", "unknown value type 4294967295",
         Crafted(0, 1).string(b"k").mark().u32(2**32 - 1).u32(1)),
        ("value cut", "metadata 'k'", "needs 4 bytes",
         one().mark().bytes(b"\x01\x02\x03")),
        ("string length", "metadata 'k' length", "ends after 3 more",
         one(STRING).mark().u64(4).bytes(b"abc")),
        ("string length huge", "metadata 'k' length", "ends after",
         one(STRING).mark().u64(2**63).bytes(b"abc")),
        ("array element type", "metadata 'k' element type", "unknown value type 99",
         one(ARRAY).mark().u32(99).u64(1).u32(1)),
        ("array count", "metadata 'k' count", "elements of 4 bytes",
         array(U32, 3).bytes(bytes(11))),
        ("array count huge", "metadata 'k' count", "elements of 8 bytes",
         array(int(ValueType.FLOAT64), HUGE).bytes(bytes(16))),
        ("array count times size wraps", "metadata 'k' count", "elements of 8 bytes",
         array(int(ValueType.UINT64), 2**61).bytes(bytes(16))),
        ("strings count", "metadata 'k' count", "elements of 8 bytes",
         array(STRING, 2**60).bytes(bytes(64))),
        ("string in array", "metadata 'k'[1] length", "ends after 2 more",
         one(ARRAY).u32(STRING).u64(2).string(b"abcdefgh").mark().u64(3).bytes(b"ab")),
        ("string in array huge", "metadata 'k'[0] length", "ends after",
         one(ARRAY).u32(STRING).u64(2).mark().u64(HUGE).bytes(bytes(16))),
        ("string in array wraps", "metadata 'k'[0] length", "ends after",
         one(ARRAY).u32(STRING).u64(2).mark().u64(2**64 - 8).bytes(bytes(16))),
        ("arrays count", "metadata 'k' count", "elements of 12 bytes",
         array(ARRAY, 2**60).bytes(bytes(64))),
        ("arrays nested too deep", "metadata 'k'[0][0][0][0]", "nested more than 4 deep", deep),
        ("boolean", "metadata 'k'", "a boolean must be 0 or 1, not 2",
         one(int(ValueType.BOOL)).mark().bytes(b"\x02")),
        ("boolean in array", "metadata 'k'[3]", "a boolean must be 0 or 1, not 255",
         one(ARRAY).u32(int(ValueType.BOOL)).u64(5).bytes(b"\0\x01\0").mark().bytes(b"\xff\0")),
        ("too many strings", "metadata 'k' count", "strings in arrays",
         array(STRING, (1 << 22) + 1).bytes(bytes(8 << 22) + bytes(8))),
        ("too many keys", "metadata count", "more than the limit of 8192",
         counted(0, 8193, 16)),
        ("too many tensors", "tensor count", "more than the limit of 32768",
         counted(32769, 0, 8)),
        ("alignment zero", f"metadata '{alignment}'", "0 is not a power of two", aligned(0)),
        ("alignment odd", f"metadata '{alignment}'", "48 is not a power of two", aligned(48)),
        ("alignment huge", f"metadata '{alignment}'", "not a power of two", aligned(2**31)),
        ("alignment small", f"metadata '{alignment}'", "4 is not a power of two", aligned(4)),
        ("alignment type", f"metadata '{alignment}'", "must be UINT32, is UINT64",
         aligned(32, int(ValueType.UINT64), 8)),
        ("alignment signed", f"metadata '{alignment}'", "must be UINT32, is INT32",
         aligned(32, int(ValueType.INT32), 4)),
    ]  # fmt: skip


def tensor_cases() -> list[tuple[str, str, str, Crafted]]:
    def one() -> Crafted:
        return Crafted(1).string(b"t")

    def dims(*values: int, bad: int) -> Crafted:
        file = one().u32(len(values))
        for axis, value in enumerate(values):
            if axis == bad:
                file.mark()
            file.u64(value)
        return file.u32(0).u64(0).pad(64)

    def kind(tag: int) -> Crafted:
        return one().u32(1).u64(32).mark().u32(tag).u64(0).pad(256)

    def placed(offset: int, data: int = 64) -> Crafted:
        return one().u32(1).u64(8).u32(0).mark().u64(offset).pad(data)

    q4_0 = int(GGMLType.Q4_0)
    return [
        ("name length", "tensor 0 name length", "ends after",
         Crafted(1).mark().u64(HUGE).pad(64)),
        ("name too long", "tensor 0 name length", "the limit is 127",
         Crafted(1).mark().tensor(b"x" * 128).pad(64)),
        ("name empty", "tensor 0 name", "empty", Crafted(1).mark().tensor(b"").pad(64)),
        ("name not UTF-8", "tensor 0 name", "UTF-8",
         Crafted(1).u64(2).mark().bytes(b"\xc3(").u32(1).u64(8).u32(0).u64(0).pad(64)),
        ("name twice", "tensor 't'", "twice",
         Crafted(2).tensor(b"t").mark().tensor(b"t", offset=32).pad(64)),
        ("no dimensions", "tensor 't' n_dims", "0 dimensions",
         one().mark().u32(0).u32(0).u64(0).pad(64)),
        ("five dimensions", "tensor 't' n_dims", "5 dimensions",
         one().mark().u32(5).bytes((b"\x01" + bytes(7)) * 5).u32(0).u64(0).pad(64)),
        ("n_dims huge", "tensor 't' n_dims", "4294967295 dimensions",
         one().mark().u32(2**32 - 1).pad(64)),
        ("first dimension zero", "tensor 't' dimension 0", "zero", dims(0, bad=0)),
        ("last dimension zero", "tensor 't' dimension 2", "zero", dims(2, 2, 0, bad=2)),
        ("dimension negative", "tensor 't' dimension 0", "overflows", dims(2**63, bad=0)),
        ("product is 2^64", "tensor 't' dimension 1", "overflows", dims(2**32, 2**32, bad=1)),
        ("product wraps to small", "tensor 't' dimension 1", "overflows",
         dims(2**42 + 1, 2**22, bad=1)),
        ("product of four", "tensor 't' dimension 3", "overflows",
         dims(2**16, 2**16, 2**16, 2**16, bad=3)),
        ("type unknown", "tensor 't' type", "unknown tensor type 99", kind(99)),
        ("type withdrawn", "tensor 't' type", "Q4_0_4_4, withdrawn", kind(31)),
        ("type huge", "tensor 't' type", "unknown tensor type 4294967295", kind(2**32 - 1)),
        ("rows do not divide into blocks", "tensor 't' dimension 0", "blocks of 32",
         one().u32(2).mark().u64(48).u64(2).u32(q4_0).u64(0).pad(256)),
        ("offset unaligned", "tensor 't' offset", "not a multiple", placed(4)),
        ("offset past the end", "tensor 't' offset", "run past", placed(64)),
        ("offset huge", "tensor 't' offset", "run past", placed(2**64 - 32)),
        ("offset plus size wraps", "tensor 't' offset", "run past", placed(2**63)),
        ("data past the end by one", "tensor 't' offset", "run past", placed(32, data=63)),
        ("quantized size past the end", "tensor 't' offset", "run past",
         one().u32(2).u64(2**31).u64(2**31).u32(q4_0).mark().u64(0).pad(256)),
        ("no data at all", "tensor 't' offset", "run past",
         one().u32(1).u64(8).u32(0).mark().u64(0)),
        ("same range twice", "tensor 'u' offset", "overlaps tensor 't' by 32 bytes",
         Crafted(2).tensor(b"t").string(b"u").u32(1).u64(8).u32(0).mark().u64(0).pad(64)),
        ("ranges overlap in part", "tensor 'u' offset", "overlaps tensor 't' by 4 bytes",
         Crafted(2).tensor(b"t", (9,)).string(b"u").u32(1).u64(8).u32(0).mark().u64(32).pad(96)),
        ("one range in another", "tensor 'v' offset", "overlaps tensor 't'",
         Crafted(2).tensor(b"t", (64,)).string(b"v").u32(1).u64(8).u32(0).mark().u64(64).pad(512)),
    ]  # fmt: skip


def header_cases() -> list[tuple[str, str, str, Crafted]]:
    def head(magic: bytes = b"GGUF", version: int = 3) -> Crafted:
        file = Crafted(version=version)
        file.raw[:4] = magic
        file.at = 0 if magic != b"GGUF" else 4
        return file

    def counts(tensors: int, metadata: int, at: int) -> Crafted:
        file = Crafted(tensors, metadata).bytes(bytes(64))
        file.at = at
        return file

    return [
        ("magic", "magic", "not a GGUF file", head(b"GGML")),
        ("magic of another file", "magic", r"starts with b'PK\\x03\\x04'", head(b"PK\3\4")),
        ("magic reversed", "magic", "big-endian", head(b"FUGG")),
        ("version 0", "version", "GGUF version 0; versions 2 and 3", head(version=0)),
        ("version 1", "version", "GGUF version 1", head(version=1)),
        ("version 4", "version", "GGUF version 4", head(version=4)),
        ("big-endian", "version", "big-endian GGUF file .version 3", head(version=3 << 24)),
        ("tensor count", "tensor count", "5 tensors cannot fit", counts(5, 0, 8)),
        ("tensor count huge", "tensor count", "more than the limit", counts(HUGE, 0, 8)),
        ("metadata count", "metadata count", "9 entries cannot fit", counts(0, 9, 16)),
        ("metadata count huge", "metadata count", "more than the limit", counts(0, HUGE, 16)),
        ("counts together", "tensor count", "1 tensors cannot fit", counts(1, 3, 8)),
    ]  # fmt: skip


CASES = [*header_cases(), *metadata_cases(), *tensor_cases()]


@pytest.mark.parametrize(
    ("field", "message", "file"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_damage_is_named(tmp_path: Path, field: str, message: str, file: Crafted) -> None:
    """Each kind of damage ends in a GGUFError with the right field, byte offset and reason."""
    path = tmp_path / "a.gguf"
    path.write_bytes(file.raw)

    with pytest.raises(GGUFError, match=message) as caught:
        open_gguf(path)

    assert (caught.value.field, caught.value.offset) == (field, file.at)
    assert f"({field}, byte {file.at})" in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "download" in str(caught.value)


def test_crafted_files_without_damage_open(tmp_path: Path) -> None:
    """The cases above fail for their damage: the same builder makes files that open."""
    path = tmp_path / "a.gguf"
    file = Crafted(2, 1).key(b"k", U32).u32(7)
    path.write_bytes(file.tensor(b"t").tensor(b"u", (8,), 0, 32).pad(64).raw)
    with open_gguf(path) as opened:
        assert opened.metadata == {"k": 7}
        assert list(opened.tensors) == ["t", "u"]


def test_names_in_messages_are_printable(tmp_path: Path) -> None:
    """Control characters and endless names from the file do not reach the terminal."""
    path = tmp_path / "a.gguf"
    name = b"\x1b]52;c;evil\x07" + b"x" * 5000
    path.write_bytes(Crafted(0, 1).key(name, 99).raw)

    with pytest.raises(GGUFError) as caught:
        open_gguf(path)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_many_strings_in_a_sparse_file(tmp_path: Path) -> None:
    """A count that fits a huge sparse file is refused before anything is walked or allocated."""
    path = tmp_path / "a.gguf"
    file = Crafted(0, 1).key(b"k", ARRAY).u32(STRING).mark().u64(2**30)
    path.write_bytes(file.raw)
    with path.open("r+b") as handle:
        handle.truncate(2**34)

    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match="strings in arrays") as caught:
            open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert caught.value.offset == file.at
    assert peak < 1 << 20


def test_long_string_in_a_sparse_file(tmp_path: Path) -> None:
    """A string of gigabytes that the (sparse) file does hold is refused, not decoded."""
    path = tmp_path / "a.gguf"
    file = Crafted(0, 1).key(b"k", STRING).mark().u64(2**33)
    path.write_bytes(file.raw)
    with path.open("r+b") as handle:
        handle.truncate(2**34)

    with pytest.raises(GGUFError, match="the limit is") as caught:
        open_gguf(path)
    assert caught.value.offset == file.at


@pytest.mark.slow
@pytest.mark.parametrize(("value", "count", "nbytes"), [
    (STRING, 1 << 24, 8 << 24), (ARRAY, 1 << 20, 12 << 20), (STRING, 1 << 18, 8 << 18),
])  # fmt: skip
def test_memory_is_in_proportion(tmp_path: Path, value: int, count: int, nbytes: int) -> None:
    """Whatever a header claims, opening takes no more memory than twice what the file holds."""
    path = tmp_path / "a.gguf"
    path.write_bytes(Crafted(0, 1).key(b"k", ARRAY).u32(value).u64(count).bytes(bytes(nbytes)).raw)
    tracemalloc.start()
    try:
        with contextlib.suppress(GGUFError):
            open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * path.stat().st_size


def test_what_more_bytes_would_not_mend(tmp_path: Path) -> None:
    """A length that no file has is not called a truncation."""
    path = tmp_path / "a.gguf"
    path.write_bytes(Crafted(0, 1).u64(HUGE).bytes(bytes(8)).raw)
    with pytest.raises(GGUFError, match="download or convert the model again") as caught:
        open_gguf(path)
    assert "truncated" not in str(caught.value)


def test_a_missing_key_is_nowhere(tmp_path: Path) -> None:
    """It has no offset, and none is said."""
    path = tmp_path / "a.gguf"
    path.write_bytes(Crafted().raw)
    with open_gguf(path) as file, pytest.raises(GGUFError, match="missing") as caught:
        file.integer("qwen3.block_count")
    assert caught.value.offset is None
    assert "byte" not in str(caught.value).removeprefix(str(path))


def test_an_error_crosses_to_other_processes(tmp_path: Path) -> None:
    """With its fields, as from a worker of a fleet."""
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(GGUFError) as caught:
        open_gguf(path)

    copy = pickle.loads(pickle.dumps(caught.value))

    assert str(copy) == str(caught.value)
    assert (copy.path, copy.field, copy.offset) == (path, caught.value.field, caught.value.offset)
