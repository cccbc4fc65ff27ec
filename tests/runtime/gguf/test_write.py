"""Files written here are read by the `gguf` package, and by our own reader, as they were meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from triplepoint.runtime.gguf.file import GGMLType, ValueType
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.write import GGUFWriter

NUMERIC = [kind for kind in ValueType if kind not in (ValueType.STRING, ValueType.ARRAY)]
SCALARS: dict[ValueType, Any] = {
    ValueType.UINT8: 200,
    ValueType.INT8: -100,
    ValueType.UINT16: 60_000,
    ValueType.INT16: -30_000,
    ValueType.UINT32: 4_000_000_000,
    ValueType.INT32: -2_000_000_000,
    ValueType.UINT64: 2**64 - 1,
    ValueType.INT64: -(2**63),
    ValueType.FLOAT32: 0.5,
    ValueType.FLOAT64: 0.1,
    ValueType.BOOL: True,
    ValueType.STRING: "Grüße, 世界 🦙\n\t",
}


def oracle_metadata(path: Path) -> dict[str, Any]:
    fields = gguf.GGUFReader(path).fields
    return {k: f.contents() for k, f in fields.items() if not k.startswith("GGUF.")}


def oracle_types(path: Path) -> dict[str, list[str]]:
    fields = gguf.GGUFReader(path).fields
    return {k: [t.name for t in f.types] for k, f in fields.items() if not k.startswith("GGUF.")}


def test_metadata_of_every_type(tmp_path: Path) -> None:
    """Single values and arrays of every type come back from the oracle with type and value."""
    path = tmp_path / "a.gguf"
    with GGUFWriter(path) as writer:
        for kind, value in SCALARS.items():
            writer.add(f"one.{kind.name}", value, kind)
            writer.add(f"many.{kind.name}", [value, value], kind)

    read, types = oracle_metadata(path), oracle_types(path)
    for kind, value in SCALARS.items():
        assert read[f"one.{kind.name}"] == value
        assert read[f"many.{kind.name}"] == [value, value]
        assert types[f"one.{kind.name}"] == [kind.name]
        assert types[f"many.{kind.name}"] == ["ARRAY", kind.name]


def test_types_without_a_name(tmp_path: Path) -> None:
    """Without a named type the value decides: the narrowest usual type that holds it."""
    path = tmp_path / "a.gguf"
    cases: list[tuple[Any, list[str]]] = [
        (True, ["BOOL"]),
        (7, ["UINT32"]),
        (-7, ["INT32"]),
        (2**40, ["UINT64"]),
        (-(2**40), ["INT64"]),
        (0.5, ["FLOAT32"]),
        ("text", ["STRING"]),
        (np.float64(0.5), ["FLOAT32"]),
        (np.int64(3), ["UINT32"]),
        ([1, 2], ["ARRAY", "UINT32"]),
        ([1, -2], ["ARRAY", "INT32"]),
        (["a", "b"], ["ARRAY", "STRING"]),
        ([True], ["ARRAY", "BOOL"]),
        (np.arange(3, dtype=np.int16), ["ARRAY", "INT16"]),
        (np.arange(3, dtype=np.uint8), ["ARRAY", "UINT8"]),
        (np.array([0.5]), ["ARRAY", "FLOAT64"]),
        (np.array([True, False]), ["ARRAY", "BOOL"]),
    ]
    with GGUFWriter(path) as writer:
        for number, (value, _) in enumerate(cases):
            writer.add(f"key.{number}", value)

    read, types = oracle_metadata(path), oracle_types(path)
    for number, (value, kinds) in enumerate(cases):
        assert types[f"key.{number}"] == kinds
        plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        assert read[f"key.{number}"] == plain


def test_nested_arrays(tmp_path: Path) -> None:
    """Lists of lists become arrays of arrays."""
    path = tmp_path / "a.gguf"
    with GGUFWriter(path) as writer:
        writer.add("nested", [[1, 2], [3]])
    with open_gguf(path) as file:
        read: Any = file.metadata["nested"]
    assert [part.tolist() for part in read] == [[1, 2], [3]]


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_tensors_of_every_type(tmp_path: Path, alignment: int) -> None:
    """The oracle finds every tensor with its type, shape and bytes; offsets are aligned."""
    path = tmp_path / "a.gguf"
    rng = np.random.default_rng(6)
    stored = {
        kind: rng.integers(0, 256, 15 * kind.type_size, np.uint8).tobytes() for kind in GGMLType
    }
    with GGUFWriter(path, alignment=alignment) as writer:
        for kind in GGMLType:
            writer.declare(f"t.{kind.name}", (5, 3 * kind.block_size), kind)
        for kind, raw in stored.items():
            writer.write(f"t.{kind.name}", raw)

    tensors = gguf.GGUFReader(path).tensors
    assert [t.name for t in tensors] == [f"t.{kind.name}" for kind in GGMLType]
    for tensor, kind in zip(tensors, GGMLType, strict=True):
        assert tensor.tensor_type == kind
        assert tensor.shape.tolist() == [3 * kind.block_size, 5]
        assert tensor.data_offset % alignment == 0
        assert tensor.data.tobytes() == stored[kind]


def test_tensor_in_pieces(tmp_path: Path) -> None:
    """A tensor may come in pieces of any size and type of buffer."""
    path = tmp_path / "a.gguf"
    values = np.arange(10, dtype=np.float32)
    with GGUFWriter(path) as writer:
        writer.declare("t", (2, 5), GGMLType.F32)
        writer.write("t", values[:3])
        writer.write("t", values[3:4].data)
        writer.write("t", values[4:].tobytes())
    with open_gguf(path) as file:
        assert file.data("t").view(np.float32).tolist() == values.tolist()


def test_no_tensors(tmp_path: Path) -> None:
    """A file with metadata alone is whole; so is one with nothing at all."""
    for fill in (lambda w: w.add("a", 1), lambda w: None):
        path = tmp_path / "a.gguf"
        with GGUFWriter(path) as writer:
            fill(writer)
        with open_gguf(path) as file:
            assert not file.tensors


def test_error_removes_the_file(tmp_path: Path) -> None:
    """A block that ends in an error, or before all is written, leaves no half-written file."""
    path = tmp_path / "a.gguf"

    def write(error: Exception | None) -> None:
        with GGUFWriter(path) as writer:
            writer.declare("t", (8,), GGMLType.F32)
            writer.write("t", bytes(8))
            if error is not None:
                raise error

    with pytest.raises(RuntimeError, match="stop"):
        write(RuntimeError("stop"))
    assert not path.exists()
    with pytest.raises(ValueError, match="not written"):
        write(None)
    assert not path.exists()


def test_misuse_is_refused(tmp_path: Path) -> None:
    """Wrong order, sizes, shapes and types are errors that name the tensor or key."""
    writer = GGUFWriter(tmp_path / "a.gguf")
    writer.add("key", 1)
    writer.declare("t", (2, 4), GGMLType.F32)
    writer.declare("u", (4,), GGMLType.F32)

    with pytest.raises(ValueError, match="'key' already exists"):
        writer.add("key", 2)
    with pytest.raises(TypeError, match="mixed types"):
        writer.add("mixed", [1, "a"])
    with pytest.raises(TypeError, match="cannot hold a object"):
        writer.add("object", object())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="'t' already exists"):
        writer.declare("t", (4,), GGMLType.F32)
    for shape in ((), (0,), (1, 1, 1, 1, 1)):
        with pytest.raises(ValueError, match="1 to 4 dimensions"):
            writer.declare("v", shape, GGMLType.F32)
    with pytest.raises(ValueError, match="blocks of 32"):
        writer.declare("v", (48,), GGMLType.Q8_0)
    with pytest.raises(ValueError, match=r"'u' is not next: \['t'\]"):
        writer.write("u", bytes(16))
    with pytest.raises(ValueError, match="1 bytes too many"):
        writer.write("t", bytes(33))
    writer.write("t", bytes(32))
    with pytest.raises(ValueError, match="1 tensors were not written, first 'u'"):
        writer.close()
    writer.write("u", bytes(16))
    with pytest.raises(ValueError, match="all are written"):
        writer.write("u", bytes(1))
    writer.close()


def test_holes(tmp_path: Path) -> None:
    """A tensor that is skipped, or the rest of one, is zeros: at the end of the file, too."""
    path = tmp_path / "holes.gguf"
    with GGUFWriter(path) as writer:
        for name in ("a", "b", "c"):
            writer.declare(name, (3,), GGMLType.F32)
        writer.skip("a")
        writer.write("b", np.ones(1, np.float32))
        writer.skip("b")
        with pytest.raises(ValueError, match="'a' is not next"):
            writer.skip("a")
        writer.skip("c")

    with open_gguf(path) as found:
        values = [found.data(name).view("<f4").tolist() for name in ("a", "b", "c")]
    assert values == [[0, 0, 0], [1, 0, 0], [0, 0, 0]]
