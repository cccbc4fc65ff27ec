"""Embedding rows of K-quants."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kquants import KQUANTS, LARGEST, FileMatrix, even_k, random_k
from helpers.runners import Runner
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import embed

ASKS = ()  # see helpers/feature_sets.py


def _rows(runner: Runner, table: FileMatrix, ids: list[int], stride: int) -> np.ndarray:
    out = np.full((len(ids), stride), 3.0, np.float32)
    wanted = np.array(ids, np.int32)
    args = [table.raw, wanted, out, table.raw.shape[1], table.blocks, stride]
    runner.call(spec(embed.embed, fmt=table.fmt), args, 0, len(ids))
    return out


@pytest.mark.parametrize("fmt", KQUANTS)
@pytest.mark.parametrize("width", [256, 768])
def test_rows(runner: Runner, rng: np.random.Generator, fmt: str, width: int) -> None:
    """Each id gives its dequantized row; what lies past the row's width is not written."""
    table, ids = random_k(rng, 40, width, fmt), [0, 39, 7, 7, 12]
    got = _rows(runner, table, ids, width + 64)

    assert_close(got[:, :width], embed.reference(table.values, np.array(ids)), "k embedding")
    assert (got[:, width:] == 3.0).all()


@pytest.mark.parametrize("fmt", KQUANTS)
def test_extremes(runner: Runner, fmt: str) -> None:
    """The largest and least quants, scales and mins, d of 0 and below 0: exact integers."""
    q = np.stack([np.full(256, n) for n in (0, LARGEST[fmt], 1)])
    scales = (127, -128, 0) if fmt == "q6_k" else (63, 1, 0)
    for scale in scales:
        for least in (0, 63):
            for d in (1.0, -2.0, 0.0):
                table = even_k(fmt, q, scale, least, d)

                assert np.array_equal(_rows(runner, table, [0, 1, 2], 256), table.values)
                if runner.emulated:
                    break
