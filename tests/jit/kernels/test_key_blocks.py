"""Keys of consecutive positions that become whole vectors of the cache."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.batch import ROW_POSITION, ROW_SLOTS, ROW_TABLE
from triplepoint.jit.kernels.key_blocks import KeyBlock, store_value_pair
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.simd import I64, F32s, I32s, I64s, Kernel, i32, kernel
from triplepoint.jit.targets import detect

ASKS = ()  # see helpers/feature_sets.py


@kernel
def put_keys(
    k: Kernel, keys: I32s, part: I32s, rows: I64s, ends: I32s, count: I64, *, words: int
) -> None:
    """Rows of keys int32 [count, words], all in one table's first page; ends: what was said."""
    block = KeyBlock.empty(k, words)
    with k.units(), k.range(0, count, name="token") as token:
        row = rows.at(token * ROW_SLOTS)
        within, last = row.load(ROW_POSITION), block.ends(row, token + 1 < count)
        ends.store(token, last.select(k.const(1, i32), 0))
        size = min(k.lanes, 8)
        block.put(within, [keys.load(token * words + w, size) for w in range(0, words, size)])
        with k.if_(last):
            block.write(part, within)


@pytest.mark.parametrize("words", [8, 40, 64])
def test_keys(runner: Runner, rng: np.random.Generator, words: int) -> None:
    """Each key is a column of its block; other lanes stay as they are."""
    lanes = runner.target.lanes
    starts = ((0, 1), (5, 16), (3, 40)) if runner.emulated else [
        (start, count) for start in (0, 1, 3, 8, 13, 15) for count in (1, 2, 3, 4, 11, 16, 37)
    ]  # fmt: skip
    for start, count in starts:
        keys = rng.integers(-(2**31), 2**31, (count, words), dtype=np.int32)
        positions = np.arange(start, start + count)
        rows = np.zeros((count, ROW_SLOTS), np.int64)
        rows[:, ROW_POSITION] = positions
        part = np.full((64 // lanes, words, lanes), 0x7E7E7E7E, np.int32)
        want, ends = part.copy(), np.zeros(count, np.int32)
        want[positions // lanes, :, positions % lanes] = keys
        runner.call(spec(put_keys, words=words), [keys, part, rows, ends, count], 0, 1)

        assert np.array_equal(part, want), (start, count)
        last = ((positions + 1) % lanes == 0) | (positions == start + count - 1)
        assert np.array_equal(ends, last), (start, count)


def test_other_sequences(runner: Runner) -> None:
    """A row ends its block, too, if the next one has another table, or is not the next position."""
    rows = np.zeros((4, ROW_SLOTS), np.int64)
    rows[:, ROW_POSITION], rows[:, ROW_TABLE] = [0, 1, 2, 0], [0, 0, 9, 9]
    ends, words = np.zeros(4, np.int32), runner.target.lanes
    part = np.zeros((64, words), np.int32)
    args = [np.ones((4, words), np.int32), part, rows, ends, 4]
    runner.call(spec(put_keys, words=words), args, 0, 1)

    assert ends.tolist() == [0, 1, 1, 1]


@kernel
def write_pair(k: Kernel, x: F32s, part: I32s, within: I64) -> None:
    """Two values of 2 * lanes dims."""
    lanes = k.lanes
    with k.units():
        even, odd = ([x.load((2 * n + v) * lanes, lanes) for v in range(2)] for n in range(2))
        store_value_pair(part, within, even, odd)


@pytest.mark.parametrize("runner", [detect().name, "generic"], indirect=True)
def test_value_pair(runner: Runner, rng: np.random.Generator) -> None:
    """Two positions share each int32, the even one in its low half."""
    dims = 2 * runner.target.lanes
    x = rng.standard_normal((2, dims)).astype(np.float32)
    part = np.zeros((2, dims), np.int32)
    runner.call(spec(write_pair), [x, part, 2], 0, 1)

    assert not part[0].any()
    halves = part[1].view(np.int16).reshape(dims, 2).T
    assert np.array_equal(halves, (to_bf16(x).view(np.int32) >> 16).astype(np.int16))
