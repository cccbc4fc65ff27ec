"""Every refusal of a model names the file (of a split one the part), and the field where it is."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers import tiny_qwen3
from helpers.lies import Lie, T, lies, told
from helpers.splits import split_gguf

from triplepoint import Engine
from triplepoint.errors import GGUFError, ModelError, SettingError, TriplepointError
from triplepoint.runtime.cli import main
from triplepoint.runtime.gguf.file import GGUFFile
from triplepoint.runtime.gguf.open import open_gguf

NAME = re.compile(r"(?:metadata|tensor) '(?P<name>[^']+)'(?P<element>\[\d+\])?")


def hold(error: TriplepointError, path: Path) -> None:
    """What every refusal of the file at `path` must be."""
    said = str(error)
    if isinstance(error, SettingError):
        return  # of what was asked for, not of the file
    assert isinstance(error, ModelError), said
    assert str(path) in said
    assert "cannot keep -1" not in said
    if not isinstance(error, GGUFError):
        return
    assert error.path == path
    assert error.field in said
    if error.offset is None:
        assert "missing" in said or "no tensor" in said or "no embedding table" in said
        assert ", byte " not in said
        return
    raw, match = path.read_bytes(), NAME.match(error.field)
    assert 0 <= error.offset <= len(raw)
    assert f"byte {error.offset}" in said
    if match is None or "data" in error.field:
        return
    name = match["name"].encode()
    if match["element"] and match["name"].startswith("tokenizer"):
        (length,) = struct.unpack_from("<Q", raw, error.offset)
        assert error.offset + 8 + length <= len(raw)
        return
    # Between the name and the field are a few numbers, or the name is the field.
    near = raw[max(0, error.offset - len(name) - 56) : error.offset + 8 + len(name)]
    assert name in near, (error.field, error.offset)


def refusal(path: Path) -> TriplepointError | None:
    """How `Engine.load` refuses the file, if it does."""
    try:
        Engine.load(path, threads=1).close()
    except TriplepointError as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_walk_over_the_metadata(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """Keys that lie, through the API, `show` and `run`."""
    path, refused = tmp_path / "lie.gguf", 0
    tiny.write_model(tmp_path / "truth.gguf", name)
    with open_gguf(tmp_path / "truth.gguf") as truth:
        every = list(lies(truth))
        some = random.Random(11).sample(every, 80)
        some += [Lie(key, None, None) for key in truth.metadata]  # left out
        some += [Lie(key, T.BOOL, 1) for key in truth.metadata]  # of another type
        for n, lie in enumerate(some):
            path.write_bytes(told(truth, lie))
            error = refusal(path)
            if error is None:
                continue
            refused += 1
            hold(error, path)
            if n % 16 == 0 and isinstance(error, ModelError):
                assert main(["run", "-m", str(path), "hi"]) == 3
                assert str(path) in capfd.readouterr().err
                main(["show", str(path)])
                out, err = capfd.readouterr()
                assert str(path) in out + err
                assert "this model runs here" not in out
    assert refused > 60


Change = Callable[[bytearray, GGUFFile], None]


def _number(at: Callable[[GGUFFile], int], value: int, width: int = 8) -> Change:
    def change(raw: bytearray, gguf: GGUFFile) -> None:
        raw[at(gguf) : at(gguf) + width] = value.to_bytes(width, "little")

    return change


def _cut(share: float) -> Change:
    def change(raw: bytearray, gguf: GGUFFile) -> None:
        del raw[int(len(raw) * share) :]

    return change


# Some tensors of which each part of the split model has one.
TENSORS = ("blk.0.attn_q.weight", "blk.1.ffn_up.weight", "blk.2.ffn_norm.weight")
CHANGES: dict[str, Callable[[str], Change]] = {
    "shape": lambda t: _number(lambda g: g.tensors[t].shape_at, 32),
    "zero": lambda t: _number(lambda g: g.tensors[t].shape_at, 0),
    "type": lambda t: _number(lambda g: g.tensors[t].type_at, 99, 4),
    "offset": lambda t: _number(lambda g: g.tensors[t].type_at + 4, 1 << 40),
    "name": lambda t: _number(lambda g: g.tensors[t].at + 8, 0xFF, 1),
    "renamed": lambda t: _number(lambda g: g.tensors[t].at + 8, ord("x"), 1),
    "nan": lambda t: _number(lambda g: g.tensors[t].offset, 0x7FC00000, 4),
    "half": lambda t: _cut(0.5),
    "end": lambda t: _cut(0.99),
    "begin": lambda t: _cut(0.001),
    "empty": lambda t: _cut(0),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_a_walk_over_the_tensors(tmp_path: Path, split: bool, what: str) -> None:
    """Shapes, types, places, names, numbers and ends; the part that is wrong is the one named."""
    source = tmp_path / "tiny.gguf"
    tiny_qwen3.write_tiny(source, "f32")
    paths = split_gguf(source, tmp_path, "part", tensors=14) if split else [source]
    for tensor in TENSORS:
        for path in paths:
            with GGUFFile.open_one(path) as gguf:
                if tensor not in gguf.tensors:
                    continue
                whole = path.read_bytes()
                raw = bytearray(whole)
                CHANGES[what](tensor)(raw, gguf)
            path.write_bytes(raw)
            error = refusal(paths[0])
            assert error is not None, (what, tensor)
            # Of a tensor that is missing nobody can say in which part it should be.
            hold(error, paths[0] if what == "renamed" else path)
            if what in ("half", "end", "begin", "empty"):
                assert "looks truncated: download it again" in str(error)
            path.write_bytes(whole)
    assert refusal(paths[0]) is None


def test_a_key_of_a_part(tmp_path: Path) -> None:
    """Metadata of the first part, told by the first part."""
    source = tmp_path / "tiny.gguf"
    tiny_qwen3.write_tiny(source, "f32")
    first, *_ = split_gguf(source, tmp_path, "part", tensors=14)
    with GGUFFile.open_one(first) as gguf:
        at = gguf._offsets["qwen3.block_count"]
    raw = bytearray(first.read_bytes())
    raw[at : at + 4] = np.uint32(1 << 31).tobytes()
    first.write_bytes(raw)
    error = refusal(first)
    assert isinstance(error, GGUFError)
    assert (error.path, error.offset) == (first, at)
