"""Rows kept in pages, and the row before read back: against numpy, however a sequence is cut."""

from __future__ import annotations

import numpy as np
from helpers.kv import descriptor
from helpers.runners import Runner, Table

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.jit.kernels.stored_rows import keep_rows, layer_bytes, reference, rows_before

ASKS = ()  # see helpers/feature_sets.py

WIDTH, OFFSET = 64, 128  # values of a row, and bytes of a page before the rows


def test_rows_of_the_positions_before(runner: Runner, rng: np.random.Generator) -> None:
    """Two passes over a page's border, rounded alike; zeros before the first; nothing beside."""
    count, border = PAGE + 9, PAGE - 3
    x = rng.standard_normal((count, WIDTH)).astype(np.float32)
    pages = [np.full(OFFSET + layer_bytes(WIDTH) + 64, 0x7E, np.uint8) for _ in range(2)]
    got = np.full((count, WIDTH + 16), np.nan, np.float32)
    for start, end in ((0, border), (border, count)):
        where, _ = descriptor((start, end - start, 0), tile=32)
        part, out = np.ascontiguousarray(x[start:end]), np.full_like(got[start:end], np.nan)
        kept: list = [Table(pages), OFFSET]
        runner.call(spec(keep_rows, width=WIDTH), [part, *kept, WIDTH, where], 0, end - start)
        runner.call(
            spec(rows_before, width=WIDTH), [out, *kept, out.shape[1], where], 0, end - start
        )
        got[start:end] = out

    assert np.array_equal(got[:, :WIDTH], reference(x))
    assert np.isnan(got[:, WIDTH:]).all()
    for page in pages:
        assert (page[:OFFSET] == 0x7E).all()
        assert (page[OFFSET + layer_bytes(WIDTH) :] == 0x7E).all()
