"""Looks at the logits: counts and weights by gap, and the tokens between two gaps."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.argmax import PARTS, argmax_part
from triplepoint.jit.kernels.sample import (
    LEVELS,
    reference_collect,
    reference_levels,
    sample_collect,
    sample_levels,
    slices,
)

ASKS = ()  # see helpers/feature_sets.py
SIZES = (1, 31, 33, 511, 513, 5000)


def _look(
    runner: Runner,
    logits: np.ndarray,
    levels: np.ndarray,
    scale: float,
    bounds: tuple[float, float],
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers and weights up to each level, and the ids between the bounds."""
    count = len(logits)
    padded = -(-count // (32 * PARTS)) * 32 * PARTS
    row = np.full(padded, np.finfo(np.float32).max, np.float32)  # must not matter
    row[:count] = logits
    mask = np.zeros(padded // 32, np.int32)
    if allowed is not None:
        bits = np.ones(padded, bool)
        bits[:count] = allowed
        mask = np.packbits(bits, bitorder="little").view(np.int32).copy()
    given = [row, mask, np.array([allowed is not None], np.int64)]
    best, where = np.zeros(PARTS, np.float32), np.zeros(PARTS, np.int64)
    first = [row, np.array([0]), padded, mask, 0, given[2], best, where, count]
    runner.call(spec(argmax_part), first, 0, PARTS)
    counts = np.full((PARTS, LEVELS), -1, np.int32)
    masses = np.full((PARTS, LEVELS), -1, np.float32)
    counted = [np.array([scale], np.float32), levels, counts, masses, count]
    runner.call(spec(sample_levels), [*given, best, *counted], 0, PARTS)
    ids, found = np.full(padded, -1, np.int32), np.full(PARTS, -1, np.int64)
    between = np.array(bounds, np.float32)
    runner.call(spec(sample_collect), [*given, best, between, ids, found, count], 0, PARTS)
    parts = [ids[begin : begin + n] for (begin, _), n in zip(slices(count), found, strict=True)]
    return counts.sum(0), masses.sum(0, np.float64), np.concatenate(parts)


def test_counts_weights_and_ids(runner: Runner, rng: np.random.Generator) -> None:
    """As numpy has them, for vocabularies of awkward sizes, with and without a mask."""
    levels = np.array([0, 0.1, 0.5, 1, 2, 4, 7, 3e38], np.float32)
    for size in SIZES[4:5] if runner.emulated else SIZES:
        logits = (rng.standard_normal(size) * 2).astype(np.float32)
        logits[rng.random(size) < 0.05] = -np.inf
        logits[0] = 0.0
        for allowed in (None, rng.random(size) < 0.3):
            if allowed is not None:
                allowed[0] = True
            numbers, weights, ids = _look(runner, logits, levels, 0.7, (0.1, 4.0), allowed)
            want = reference_levels(logits, levels, 0.7, allowed)
            assert numbers.tolist() == want[0].tolist()
            np.testing.assert_allclose(weights, want[1], rtol=1e-5)
            assert ids.tolist() == reference_collect(logits, 0.1, 4.0, allowed).tolist()


def test_slices_cover_the_vocabulary() -> None:
    """Every token is in one slice."""
    for size in (1, 31, 32, 5000, 151_936):
        covered = [n for begin, end in slices(size) for n in range(begin, end)]
        assert covered == list(range(size))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_temperatures(native: Native, scale: float) -> None:
    """Weights stay within 0 and 1: nothing overflows, and the likeliest token weighs 1."""
    logits = np.array([-1e30, 50, 49, -1e38, 0], np.float32)
    levels = np.full(LEVELS, 3e38, np.float32)
    numbers, weights, ids = _look(native, logits, levels, scale, (-1, 3e38))

    assert numbers[0] == 5
    assert 1 <= weights[0] <= 5
    assert ids.tolist() == [0, 1, 2, 3, 4]


def test_nothing_allowed(native: Native) -> None:
    """An empty mask, or logits that are no numbers: nothing is counted, nothing found."""
    levels = np.full(LEVELS, 3e38, np.float32)
    for logits in (np.zeros(600, np.float32), np.full(600, np.nan, np.float32)):
        allowed = np.zeros(600, bool) if logits[0] == 0 else None
        numbers, _, ids = _look(native, logits, levels, 1.0, (-1, 3e38), allowed)
        assert not numbers.any()
        assert not len(ids)
