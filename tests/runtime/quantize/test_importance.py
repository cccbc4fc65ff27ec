"""Importance matrices from files of both kinds."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from triplepoint.errors import ModelError
from triplepoint.runtime.quantize.importance import FLOOR, Importance

NAME, EXPERTS = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"


def write_gguf(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    w = gguf.GGUFWriter(path, "imatrix")
    w.add_type("imatrix")
    for name, values in tensors.items():
        w.add_tensor(name, np.asarray(values, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def old_entry(name: str, calls: int, values: np.ndarray) -> bytes:
    raw = name.encode()
    head = struct.pack("<i", len(raw)) + raw + struct.pack("<ii", calls, len(values))
    return head + values.astype("<f4").tobytes()


def _same(got: np.ndarray | None, want: np.ndarray) -> bool:
    return got is not None and np.allclose(got, want)


def test_gguf(tmp_path: Path) -> None:
    """Mean squares relative to their mean, for each expert; one that saw nothing is even."""
    path = write_gguf(
        tmp_path / "i.gguf",
        {
            f"{NAME}.in_sum2": np.array([[2.0, 6.0, 4.0, 4.0]]),
            f"{NAME}.counts": np.array([[2.0]]),
            f"{EXPERTS}.in_sum2": np.array([[1.0, 3.0], [0.0, 0.0]]),
            f"{EXPERTS}.counts": np.array([[7.0], [0.0]]),
        },
    )
    found = Importance.read(path)

    assert _same(found.of(NAME, 1, 4), np.array([[0.5, 1.5, 1, 1]]) + FLOOR)
    assert _same(found.of(EXPERTS, 2, 2), np.array([[0.5, 1.5], [1, 1]]) + FLOOR)
    assert found.of("blk.1.attn_q.weight", 1, 4) is None


def test_old_form(tmp_path: Path) -> None:
    """llama.cpp's older files, whose values are mean squares times calls."""
    path = tmp_path / "i.dat"
    entries = old_entry(NAME, 3, np.array([3.0, 9.0])) + old_entry("b", 1, np.array([1.0, 1.0]))
    path.write_bytes(struct.pack("<i", 2) + entries)

    assert _same(Importance.read(path).of(NAME, 1, 2), np.array([[0.5, 1.5]]) + FLOOR)


def test_another_model(tmp_path: Path) -> None:
    """A matrix of another width is refused."""
    path = tmp_path / "i.dat"
    path.write_bytes(struct.pack("<i", 1) + old_entry(NAME, 3, np.array([3.0, 9.0])))
    with pytest.raises(ModelError, match="made from another model"):
        Importance.read(path).of(NAME, 1, 4)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not an imatrix",
        struct.pack("<i", 1) + old_entry(NAME, 3, np.array([1.0, 2.0]))[:-2],
        struct.pack("<i", 1) + old_entry(NAME, 3, np.array([np.nan, 2.0])),
        struct.pack("<i", 0),
        struct.pack("<ii", 1, 1 << 30),
    ],
    ids=["empty", "text", "cut", "nan", "nothing", "long name"],
)
def test_damaged(tmp_path: Path, raw: bytes) -> None:
    """Refused with the file's name."""
    path = tmp_path / "i.dat"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=r"i\.dat"):
        Importance.read(path)


def test_damaged_gguf(tmp_path: Path) -> None:
    """Sums without counts, and impossible sums, are refused."""
    path = write_gguf(tmp_path / "i.gguf", {f"{NAME}.in_sum2": np.ones((1, 4))})
    with pytest.raises(ModelError, match="no sound"):
        Importance.read(path)
    bad = {f"{NAME}.in_sum2": np.array([[1.0, -1.0]]), f"{NAME}.counts": np.ones((1, 1))}
    with pytest.raises(ModelError, match="impossible sums"):
        Importance.read(write_gguf(tmp_path / "j.gguf", bad))


def test_missing(tmp_path: Path) -> None:
    """No such file."""
    with pytest.raises(ModelError, match="cannot open the imatrix"):
        Importance.read(tmp_path / "none")
