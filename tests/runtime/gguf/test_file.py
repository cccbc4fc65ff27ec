"""GGUF files as others write them read back exactly; the `gguf` package is the oracle."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from triplepoint.errors import GGUFError, ModelError
from triplepoint.runtime.gguf.file import GGMLType, GGUFFile, StringArray
from triplepoint.runtime.gguf.open import open_gguf

VOCABULARIES = Path(__file__).parents[4] / "shared" / "reference" / "vocab"

SCALARS: dict[str, Any] = {
    "uint8": 200,
    "int8": -100,
    "uint16": 60_000,
    "int16": -30_000,
    "uint32": 4_000_000_000,
    "int32": -2_000_000_000,
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float32": 0.5,
    "float64": 0.1,
    "bool": True,
    "string": "Grüße, 世界 🦙\n\t",
}


def write_with_oracle(path: Path, fill: Any) -> Path:
    """A file written by the `gguf` package; `fill` gets its writer."""
    writer = gguf.GGUFWriter(path, "test")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", SCALARS)
def test_scalar_of_every_type(tmp_path: Path, kind: str) -> None:
    """A single value of every metadata type comes back equal and as the right Python type."""
    value = SCALARS[kind]
    path = write_with_oracle(
        tmp_path / "a.gguf", lambda w: getattr(w, f"add_{kind}")("key.of.it", value)
    )

    with open_gguf(path) as file:
        assert file.metadata == {"general.architecture": "test", "key.of.it": value}
        assert type(file.metadata["key.of.it"]) is type(value)


@pytest.mark.parametrize("kind", SCALARS)
def test_array_of_every_type(tmp_path: Path, kind: str) -> None:
    """An array of every metadata type comes back equal; numeric ones with the dtype of the file."""
    value = SCALARS[kind]
    values = [value, value, False if kind == "bool" else value]
    element = gguf.GGUFValueType[kind.upper()]
    path = write_with_oracle(
        tmp_path / "a.gguf",
        lambda w: w.add_key_value("key", values, gguf.GGUFValueType.ARRAY, sub_type=element),
    )

    with open_gguf(path) as file:
        array: Any = file.metadata["key"]
        assert list(array) == values
        if kind == "string":
            assert isinstance(array, StringArray)
        else:
            assert isinstance(array, np.ndarray)
            assert array.dtype == np.dtype(kind)


def test_arrays_of_arrays(tmp_path: Path) -> None:
    """Nested arrays come back as lists of arrays."""
    nested = [[[1, 2], [3]], [[4, 5, 6]]]
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_array("key", nested))

    with open_gguf(path) as file:
        read: Any = file.metadata["key"]
    assert [[inner.tolist() for inner in outer] for outer in read] == nested


def test_string_array_is_a_sequence(tmp_path: Path) -> None:
    """A string array has length, indices, slices, iteration and equality with a list."""
    words = ["", "a", "ΑΩ", "a" * 300]
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_array("key", words))

    with open_gguf(path) as file:
        array = file.strings("key")
        assert array is not None
        assert (len(array), array[2], array[-1], array[1:3]) == (4, "ΑΩ", "a" * 300, ["a", "ΑΩ"])
        assert array == words
        assert array != words[:3]
        assert "ΑΩ" in array


@pytest.mark.parametrize("strange", [0.0, 0.01, 0.5, 1.0])
def test_strings_are_found_whatever_is_in_them(
    tmp_path: Path, rng: np.random.Generator, strange: float
) -> None:
    """Many strings, some empty, long, or with what looks like the length of another one."""
    oddities = ["", "\0", "\0" * 9, "\5" + "\0" * 7 + "hello", "a" * 255, "a" * 256, "ä" * 400]
    words = [
        oddities[i % len(oddities)] if rng.random() < strange else f"wort{i}ü" for i in range(9000)
    ]
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_array("key", words))

    with open_gguf(path) as file:
        array = file.strings("key")
        assert array is not None
        assert array == words
        texts = array.copied()
        assert texts.all() == words
        assert [*texts.starting(b"w")] == [i for i, word in enumerate(words) if word[:1] == "w"]


def test_strings_beyond_the_file_are_still_found_out(tmp_path: Path) -> None:
    """An array whose count is one too many ends in an error that names the string."""
    words = [f"token{i}" for i in range(300)]
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_array("key", words))
    data = path.read_bytes()
    end = data.index(b"token299") + len("token299")
    at = data.index((300).to_bytes(8, "little"))
    path.write_bytes(data[:at] + (301).to_bytes(8, "little") + data[at + 8 : end])
    with pytest.raises(GGUFError, match=r"key\W+\[300\]"):
        open_gguf(path)


@pytest.mark.slow
def test_opening_does_not_decode_strings(tmp_path: Path) -> None:
    """A vocabulary of 150,000 tokens takes 8 bytes for each, and a little to find them with: its
    strings, of 55 bytes and more each, are not made yet.
    """
    words = [f"token{i}" for i in range(150_000)]
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_array("key", words))

    tracemalloc.start()
    try:
        file = open_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 18 * len(words), f"{peak} bytes were allocated"
    assert file.metadata["key"] == words


def test_types_are_those_of_the_oracle() -> None:
    """Every tensor type of the `gguf` package is known, with its block and type size."""
    ours = {t.name: (t.value, t.block_size, t.type_size) for t in GGMLType}
    theirs = {t.name: (t.value, *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
    missing = {name: sizes for name, sizes in theirs.items() if ours.get(name) != sizes}
    assert not missing


@pytest.mark.parametrize("alignment", [None, 8, 256])
def test_tensors_of_every_type(tmp_path: Path, alignment: int | None) -> None:
    """Tensors of all types: shape, type, place and bytes are what the oracle says and wrote."""
    rng = np.random.default_rng(5)
    stored: dict[str, np.ndarray[Any, Any]] = {}

    def fill(writer: gguf.GGUFWriter) -> None:
        if alignment is not None:
            writer.add_custom_alignment(alignment)
        for kind, (_, size) in gguf.GGML_QUANT_SIZES.items():
            raw = rng.integers(0, 256, (2, 3, 2 * size), np.uint8)
            stored[f"t.{kind.name}"] = raw
            writer.add_tensor(f"t.{kind.name}", raw, raw_dtype=kind)

    path = write_with_oracle(tmp_path / "a.gguf", fill)

    oracle = {t.name: t for t in gguf.GGUFReader(path).tensors}
    with open_gguf(path) as file:
        assert list(file.tensors) == list(oracle)
        assert file.alignment == (alignment or 32)
        for name, info in file.tensors.items():
            expected = oracle[name]
            assert info.shape == tuple(reversed(expected.shape.tolist()))
            assert (info.type.value, info.offset) == (expected.tensor_type, expected.data_offset)
            assert info.nbytes == expected.n_bytes
            assert info.offset % file.alignment == 0
            np.testing.assert_array_equal(file.data(name), stored[name].ravel())


def test_version_2(tmp_path: Path) -> None:
    """Version 2 has the same layout as version 3 and reads the same."""
    path = write_with_oracle(
        tmp_path / "a.gguf", lambda w: w.add_tensor("t", np.arange(6, dtype=np.float32))
    )
    raw = bytearray(path.read_bytes())
    raw[4:8] = (2).to_bytes(4, "little")
    path.write_bytes(raw)

    with open_gguf(path) as file:
        assert file.version == 2
        assert file.data("t").view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.skipif(not VOCABULARIES.is_dir(), reason="no ../shared/reference/vocab here")
@pytest.mark.parametrize("name", ["gpt-2", "llama-spm"])
def test_real_vocabulary(name: str) -> None:
    """A real file: every metadata value is what the oracle reads."""
    path = VOCABULARIES / f"ggml-vocab-{name}.gguf"
    oracle = gguf.GGUFReader(path)
    expected = {k: f.contents() for k, f in oracle.fields.items() if not k.startswith("GGUF.")}

    with open_gguf(path) as file:
        assert list(file.metadata) == list(expected)
        for key, value in expected.items():
            read = file.metadata[key]
            assert (read.tolist() if isinstance(read, np.ndarray) else read) == value, key


def test_views_are_read_only_and_outlive_close(tmp_path: Path) -> None:
    """Tensor data is a read-only view; it stays valid after close, new views are refused."""
    path = write_with_oracle(
        tmp_path / "a.gguf", lambda w: w.add_tensor("t", np.arange(6, dtype=np.float32))
    )
    file = open_gguf(path)
    data = file.data("t")
    file.close()

    assert data.view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert not data.flags.writeable
    with pytest.raises(ModelError, match="closed"):
        file.data("t")


def test_unknown_tensor(tmp_path: Path) -> None:
    """Asking for a tensor that is not there names it."""
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: None)
    with open_gguf(path) as file, pytest.raises(ModelError, match=r"no tensor 'blk\.0'"):
        file.data("blk.0")


# --- what is not a readable file --------------------------------------------------------------


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    """A missing file, a folder, a FIFO and a path with a NUL are errors with the path, no hang."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for path in (tmp_path / "none.gguf", tmp_path, fifo, f"{tmp_path}/a\0b"):
        with pytest.raises(ModelError, match=r"cannot open|not a regular file"):
            open_gguf(path)


def test_empty_file(tmp_path: Path) -> None:
    """An empty file cannot be mapped; it is named as empty."""
    path = tmp_path / "a.gguf"
    path.touch()
    with pytest.raises(GGUFError, match="empty") as caught:
        open_gguf(path)
    assert (caught.value.field, caught.value.offset) == ("magic", 0)


def test_change_while_open_is_noticed(tmp_path: Path) -> None:
    """Growing, shrinking and rewriting the file are noticed; replacing and deleting do no harm."""
    path = write_with_oracle(
        tmp_path / "a.gguf", lambda w: w.add_tensor("t", np.arange(6, dtype=np.float32))
    )
    raw = path.read_bytes()

    def grow() -> None:
        path.write_bytes(raw + b"x")

    def shrink() -> None:
        os.truncate(path, len(raw) - 1)

    def rewrite() -> None:
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))

    def swap() -> None:
        (tmp_path / "b.gguf").write_bytes(bytes(len(raw)))
        (tmp_path / "b.gguf").replace(path)

    for harmless in (swap, path.unlink):
        path.write_bytes(raw)
        with open_gguf(path) as file:
            harmless()
            file.check_unchanged()
            assert file.sha256() == hashlib.sha256(raw).hexdigest()
    for change, message in ((grow, "size"), (shrink, "size"), (rewrite, "time")):
        path.write_bytes(raw)
        with open_gguf(path) as file:
            file.check_unchanged()
            change()
            with pytest.raises(ModelError, match=message):
                file.check_unchanged()
            with pytest.raises(ModelError, match=message):
                file.sha256()


def test_sha256(tmp_path: Path) -> None:
    """The hash is that of the file's bytes."""
    path = write_with_oracle(tmp_path / "a.gguf", lambda w: w.add_string("a", "b"))
    with open_gguf(path) as file:
        assert file.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


# --- typed metadata ---------------------------------------------------------------------------


@pytest.fixture
def typed(tmp_path: Path) -> GGUFFile:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("int", 7)
        writer.add_float32("float", 0.5)
        writer.add_float32("nan", float("nan"))
        writer.add_float64("large", 1e300)
        writer.add_bool("bool", True)
        writer.add_string("string", "text")
        writer.add_array("strings", ["a"])
        writer.add_array("ints", [1, 2])

    return open_gguf(write_with_oracle(tmp_path / "a.gguf", fill))


def test_typed_values(typed: GGUFFile) -> None:
    """Values of the right type come back; defaults stand in for missing keys."""
    assert typed.integer("int") == 7
    assert typed.integer("none", 3) == 3
    assert typed.number("int") == 7.0
    assert typed.number("float") == 0.5
    assert typed.string("string") == "text"
    assert typed.boolean("bool") is True
    assert typed.boolean("none", False) is False
    assert typed.strings("none") is None
    ints = typed.numbers("ints", 2)
    assert ints is not None
    assert ints.tolist() == [1, 2]


def test_typed_values_refuse(typed: GGUFFile) -> None:
    """A value of another type or out of range is refused with its key and the place in the file."""
    raw = typed.path.read_bytes()
    for call, key, message in (
        (lambda: typed.integer("bool"), "bool", "whole number, is BOOL"),
        (lambda: typed.integer("float"), "float", "whole number, is FLOAT32"),
        (lambda: typed.integer("strings"), "strings", "whole number, is ARRAY"),
        (lambda: typed.integer("int", high=6), "int", "7 is not between 0 and 6"),
        (lambda: typed.integer("int", low=8), "int", "7 is not between 8"),
        (lambda: typed.number("nan"), "nan", "not finite"),
        (lambda: typed.number("large"), "large", "1e.300 is not finite in 32 bits"),
        (lambda: typed.number("string"), "string", "a number, is STRING"),
        (lambda: typed.number("bool"), "bool", "a number, is BOOL"),
        (lambda: typed.string("int"), "int", "a string, is UINT32"),
        (lambda: typed.boolean("int"), "int", "a boolean, is UINT32"),
        (lambda: typed.strings("ints"), "ints", "array of strings"),
        (lambda: typed.numbers("strings", 1), "strings", "array of numbers"),
        (lambda: typed.numbers("ints", 3), "ints", "has 2 elements, 3 are needed"),
    ):
        with pytest.raises(GGUFError, match=message) as caught:
            call()
        assert caught.value.field == f"metadata '{key}'"
        tagged = len(key).to_bytes(8, "little") + key.encode()
        assert caught.value.offset == raw.index(tagged) + len(tagged) + 4


def test_missing_value(typed: GGUFFile) -> None:
    """A missing key without a default is an error that names the key."""
    with pytest.raises(GGUFError, match=r"missing \(metadata 'qwen3\.block_count'"):
        typed.integer("qwen3.block_count")
