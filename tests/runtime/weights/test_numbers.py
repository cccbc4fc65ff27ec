"""NaN and infinite weights and scales are refused in packing, with tensor, row and block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.matrices import put_number, stored_number

from triplepoint import Engine
from triplepoint.errors import GGUFError
from triplepoint.jit.compile import Library
from triplepoint.jit.kernels.panels import FORMATS, Format
from triplepoint.jit.pool import Pool
from triplepoint.runtime.gguf.file import GGMLType
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.hub.model_info import read_model_info
from triplepoint.runtime.weights.loader import WeightLoader

ROWS, BLOCKS = 70, 4


def bad_numbers(form: Format) -> list[bytes]:
    """NaN, infinity and minus infinity, as they are stored."""
    size = form.scale_bytes
    sign = 1 << (8 * size - 1)
    numbers = (form.exponent | 1, form.exponent, form.exponent | sign)
    return [number.to_bytes(size, "little") for number in numbers]


def write(path: Path, form: Format, spoiled: str, at: int, number: bytes) -> None:
    """Three matrices [ROWS, BLOCKS blocks] of a type, zeros but for `number` at byte `at`."""
    shape = ROWS, BLOCKS * form.block
    data = np.zeros(ROWS * BLOCKS * form.file_bytes, np.uint8)
    with GGUFWriter(path) as writer:
        for name in ("gate", "up", "table"):
            writer.declare(name, shape, GGMLType[form.name.upper()])
        for name in ("gate", "up", "table"):
            raw = data.copy()
            if name == spoiled:
                put_number(raw, form, at, number)
            writer.write(name, raw)


def packed(path: Path, form: Format, library: Library, pool: Pool) -> None:
    """Pack a fused pair; the table is for passes that read its rows."""
    with open_gguf(path) as gguf:
        loader = WeightLoader(gguf, library)
        loader.gate_up("gate", "up", ROWS, BLOCKS * form.block)
        loader.table("table")
        loader.pack_all(pool)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_type(library: Library, pool: Pool, tmp_path: Path, kind: str) -> None:
    """Each scale and min of a block, or the weight itself; in what is packed and what is not."""
    form, path = FORMATS[kind], tmp_path / "a.gguf"
    rng = np.random.default_rng(1)
    for number in bad_numbers(form):
        for scale in form.scales:
            for name in ("gate", "up", "table"):
                row, block = int(rng.integers(ROWS)), int(rng.integers(BLOCKS))
                at = (row * BLOCKS + block) * form.file_bytes + scale
                write(path, form, name, at, number)
                with pytest.raises(GGUFError, match="is NaN or infinite") as caught:
                    packed(path, form, library, pool)

                error = caught.value
                what = f"a scale of block {block}" if form.quantized else f"weight {block}"
                assert f"{path}: {what} of row {row} is NaN or infinite" in str(error)
                assert error.field == f"tensor '{name}' data"
                assert error.offset is not None
                mask, bits = stored_number(form, number)
                there = np.fromfile(path, np.uint8, len(mask), offset=error.offset)
                assert np.array_equal(there & mask, bits)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_largest_number_is_fine(
    library: Library, pool: Pool, tmp_path: Path, kind: str
) -> None:
    """One less than an infinity is finite, also where all other bits of a block are set."""
    form, path = FORMATS[kind], tmp_path / "a.gguf"
    size = form.scale_bytes
    raw = np.full((ROWS, BLOCKS, form.file_bytes), 0xFF, np.uint8)
    for scale in form.scales:
        for block in raw.reshape(-1, form.file_bytes):
            put_number(block, form, scale, (form.exponent - 1).to_bytes(size, "little"))
    with GGUFWriter(path) as writer:
        for name in ("gate", "up", "table"):
            writer.declare(name, (ROWS, BLOCKS * form.block), GGMLType[kind.upper()])
        for name in ("gate", "up", "table"):
            writer.write(name, raw)
    packed(path, form, library, pool)


Spoil = Callable[[Path], str]


def _spoiled(path: Path, name: str, index: int) -> None:
    """Make the float32 `index` of a tensor NaN."""
    with open_gguf(path) as gguf:
        info = gguf.tensors[name]
        assert info.type is GGMLType.F32
        at = info.offset + 4 * index
    with path.open("r+b") as file:
        file.seek(at)
        file.write(np.float32(np.nan).tobytes())


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen2", "llama", "phi3-long"])
def test_every_tensor_of_a_model(tmp_path: Path, model: str) -> None:
    """Norms, biases, rotary factors, the embedding and every matrix: none is let through."""
    path = tmp_path / "whole.gguf"
    tiny.write_model(path, model)
    with open_gguf(path) as gguf:
        tensors = dict(gguf.tensors)
    whole = path.read_bytes()
    rng = np.random.default_rng(2)
    spoiled = tmp_path / "spoiled.gguf"
    for name, info in tensors.items():
        if name.startswith("blk.1."):
            continue  # as in the other layers
        index = int(rng.integers(np.prod(info.shape)))
        spoiled.write_bytes(whole)
        _spoiled(spoiled, name, index)
        with pytest.raises(GGUFError) as caught:
            Engine.load(spoiled, threads=1)
        assert caught.value.field == f"tensor '{name}' data", name
        assert caught.value.offset == info.offset + 4 * index
        row, weight = divmod(index, info.shape[-1])
        assert f"{spoiled}: weight {weight} of row {row} is NaN or infinite" in str(caught.value)


def test_show_sees_a_norm(tmp_path: Path) -> None:
    """What is read without packing is told by the header's reader too."""
    path = tmp_path / "a.gguf"
    tiny.write_model(path, "llama")
    assert not read_model_info(path).problems
    _spoiled(path, "blk.2.ffn_norm.weight", 5)
    (problem,) = read_model_info(path).problems
    assert problem.startswith("weight 5 of row 0 is NaN or infinite")
