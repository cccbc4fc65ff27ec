"""Embedding rows."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from helpers.matrices import FLOATS, QUANTIZED, random_matrix
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import embed

ASKS = ()  # see helpers/feature_sets.py


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_rows(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Each id gives its dequantized row exactly; what lies past the row's width is not written."""
    width, stride = 96, 128
    table = random_matrix(rng, 40, width, fmt)
    ids = np.array([0, 39, 7, 7, 12], np.int32)
    out = np.full((len(ids), stride), 3.0, np.float32)
    blocks = table.blocks
    args = [table.raw, ids, out, table.raw.shape[1], blocks, stride]
    runner.call(spec(embed.embed, fmt=fmt), args, 0, len(ids))

    assert np.array_equal(out[:, :width], embed.reference(table.values, ids))
    assert (out[:, width:] == 3.0).all()


def test_past_four_gigabytes(native: Native, tmp_path: Path) -> None:
    """A row's byte offset is 64-bit: the last row of a table over 4 GiB is found."""
    rows, width = (1 << 32) // 128 + 10, 32
    path = tmp_path / "table"
    with path.open("wb") as file:
        file.truncate(rows * width * 4)  # a hole: no bytes on disk
    table = np.memmap(path, np.float32, "r+", shape=(rows, width))
    table[-1] = np.arange(width)
    out = np.zeros((1, width), np.float32)
    _call_in_place(native, table, rows - 1, out)

    assert np.array_equal(out[0], np.arange(width))


def _call_in_place(native: Native, table: np.ndarray, row: int, out: np.ndarray) -> None:
    """The kernel on the mapping itself: the runner would copy it."""
    ids = np.array([row], np.int32)
    slots = np.array([table.ctypes.data, ids.ctypes.data, out.ctypes.data, 128, 32, 32], np.int64)
    address = native.library.address(spec(embed.embed, fmt="f32"))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    kind(address)(slots.ctypes.data, 0, 1, 0)
