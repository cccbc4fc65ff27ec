"""Ops that halve a resource: lists made shorter or shared, bytes that are read and no more."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import CheckedCache, Native, Runner

from labs.bench import perturb
from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.panels import FORMATS
from triplepoint.jit.targets import detect


@pytest.fixture
def own() -> Runner:
    """Calls kernels of this machine's best feature set."""
    return Native(detect(), CheckedCache(None))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_pair_up(own: Runner) -> None:
    """With -2 every odd entry becomes its neighbor's; with -1 nothing changes."""
    for mask, want in ((-2, [7, 7, 3, 3, 5, 5]), (-1, [7, 1, 3, 9, 5, 2])):
        active = np.array([7, 1, 3, 9, 5, 2], np.int32)
        kernel = spec(perturb.alias, count=6, mask=mask)
        own.call(kernel, [active], 0, 1)
        assert active.tolist() == want


def test_thin(own: Runner) -> None:
    """Of each expert's pairs the first half is kept, and one at least; undivided they stay."""
    lists = [0, 1, 3, 8], [4, 0, 2, 9, 8, 7, 6, 5]
    for divide, starts_want, pairs_want in (
        (1, *lists),
        (2, [0, 1, 2, 4], [4, 0, 9, 8]),
    ):
        starts, pairs = (np.array(values, np.int32) for values in lists)
        units = np.array([0, 0, 3], np.int64)
        own.call(spec(perturb.subsample, divide=divide), [starts, pairs, units], 0, 1)
        assert starts.tolist() == starts_want
        assert pairs[: len(pairs_want)].tolist() == pairs_want


def test_touch(own: Runner, rng: np.random.Generator) -> None:
    """Every vector of the units is read once: their sum by exclusive or says so."""
    lanes = own.target.lanes
    data = rng.integers(-(2**31), 2**31, (6, 2, lanes)).astype(np.int32)
    sink = np.zeros(lanes, np.int32)
    own.call(spec(perturb.stream_only), [data, sink, 2 * 4 * lanes], 1, 5)
    assert np.array_equal(sink, np.bitwise_xor.reduce(data[1:5].reshape(-1, lanes)))


def test_touch_experts(own: Runner, rng: np.random.Generator) -> None:
    """The panels of the experts on the list, in its order, and no others."""
    lanes = own.target.lanes
    words = FORMATS["q4_0"].panel_block_bytes(lanes) // (4 * lanes)
    data = rng.integers(-(2**31), 2**31, (4, 3, words, lanes)).astype(np.int32)
    active, sink = np.array([2, 0, 0], np.int32), np.zeros(lanes, np.int32)
    kernel = spec(perturb.stream_experts_only, fmt="q4_0", blocks=1)
    own.call(kernel, [data, sink, 3, active], 1, 6)  # all but the first panel of two experts

    want = np.bitwise_xor.reduce(np.concatenate([data[2, 1:], data[0]]).reshape(-1, lanes))
    assert np.array_equal(sink, want)
