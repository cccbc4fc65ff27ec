"""Reading safetensors, sound and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import safetensors, write_shards

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.safetensors import Checkpoint
from triplepoint.runtime.gguf.types import GGMLType


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"a": (3, 4), "b.weight": (5,), "c": (2, 3, 4), "one": ()}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_values(tmp_path: Path, weights: dict[str, np.ndarray], dtype: str) -> None:
    """Every tensor has its shape, type and values."""
    (tmp_path / "model.safetensors").write_bytes(safetensors(weights, dtype))
    found = Checkpoint(tmp_path)

    assert set(found.tensors) == set(weights)
    for name, values in weights.items():
        got = found.array(name)
        assert (got.shape, found.tensors[name].type) == (values.shape, GGMLType[dtype])
        if dtype == "BF16":
            got = (got.astype(np.uint32) << 16).view(np.float32)
        assert np.allclose(got.astype(np.float32), values, rtol=2**-7)
        found.release(name)


def test_file_of_the_format_s_own_writer(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    """What the `safetensors` package writes."""
    package = pytest.importorskip(
        "safetensors.numpy", reason="the safetensors package comes with transformers"
    )
    package.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    found = Checkpoint(tmp_path)

    assert {n: t.shape for n, t in found.tensors.items()} == {
        n: v.shape for n, v in weights.items()
    }
    assert all(np.array_equal(found.array(name), values) for name, values in weights.items())


def test_shards(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    """Several files by their index."""
    write_shards(tmp_path, weights, "F32", 3)
    found = Checkpoint(tmp_path)

    assert all(np.array_equal(found.array(name), values) for name, values in weights.items())


def header(entry: Any, data: bytes = bytes(48)) -> bytes:
    text = json.dumps({"w": entry}).encode()
    return len(text).to_bytes(8, "little") + text + data


SOUND = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
DAMAGED = {
    "empty": (b"1234", "not even the length"),
    "long header": ((1 << 40).to_bytes(8, "little") + b"{}", "its header would have"),
    "no json": ((4).to_bytes(8, "little") + b"{{{{", "not JSON"),
    "nested": ((200_000).to_bytes(8, "little") + b"[" * 200_000, "not JSON"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
    "cut": (header(SOUND, bytes(40)), "it is cut"),
    "no shape": (header({"dtype": "F32", "data_offsets": [0, 48]}), "no sound dtype"),
    "negative": (header(SOUND | {"shape": [-3, -4]}), "no sound dtype"),
    "true": (header(SOUND | {"shape": [True, 12]}), "no sound dtype"),
    "text": (header("w"), "no sound dtype"),
    "backwards": (header(SOUND | {"data_offsets": [48, 0]}), "it is cut"),
    "wrong size": (header(SOUND | {"shape": [3, 5]}), "has 48 bytes"),
    "huge": (header(SOUND | {"shape": [1 << 62, 4]}), "has 48 bytes"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged(tmp_path: Path, name: str) -> None:
    """Refused with the file's name and what is wrong."""
    raw, words = DAMAGED[name]
    (tmp_path / "model.safetensors").write_bytes(raw)
    with pytest.raises(ModelError, match=words) as caught:
        Checkpoint(tmp_path)
    assert "model.safetensors" in str(caught.value)


def test_every_cut(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    """A file cut at any byte is refused, never half read."""
    whole = safetensors(weights)
    path = tmp_path / "model.safetensors"
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            Checkpoint(tmp_path)


def test_numbers_that_have_no_type(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    """Another dtype is no reason to refuse a file, but its tensor cannot be read."""
    (tmp_path / "model.safetensors").write_bytes(safetensors(weights, "F64"))
    found = Checkpoint(tmp_path)
    with pytest.raises(UnsupportedModelError, match="tensor a is F64"):
        found.array("a")


def test_index(tmp_path: Path, weights: dict[str, np.ndarray]) -> None:
    """A shard that is missing, that lacks a tensor, or that lies outside the folder."""
    write_shards(tmp_path, weights, "F32", 2)
    index = tmp_path / "model.safetensors.index.json"
    sound = json.loads(index.read_text())

    def says(places: dict[str, str] | None) -> str:
        index.write_text(json.dumps({"weight_map": places} if places else {}))
        with pytest.raises(ModelError) as caught:
            Checkpoint(tmp_path)
        return str(caught.value)

    first, second = sorted(set(sound["weight_map"].values()))
    assert "promises" in says(sound["weight_map"] | {"more": first})
    assert "promises" in says(sound["weight_map"] | {"a": second})
    assert "outside its folder" in says(sound["weight_map"] | {"a": "../other.safetensors"})
    assert "cannot open" in says(sound["weight_map"] | {"a": "none.safetensors"})
    assert "no weight_map" in says(None)


def test_no_safetensors(tmp_path: Path) -> None:
    """Pickled weights are not opened, and it is said why."""
    with pytest.raises(ModelError, match=r"cannot open .*model\.safetensors"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="pickled weights can run any code"):
        Checkpoint(tmp_path)
