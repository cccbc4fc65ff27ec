"""Greedy choice under a mask."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.argmax import PARTS, argmax_final, argmax_part, reference

SIZES = (1, 31, 33, 511, 513, 1000, 5000)


def _choose(runner: Runner, logits: np.ndarray, allowed: np.ndarray | None = None) -> int:
    count = len(logits)
    padded = -(-count // (32 * PARTS)) * 32 * PARTS
    # What lies in the padding must not matter: the largest float would win if it were looked at.
    rows = np.full((3, padded), np.finfo(np.float32).max, np.float32)
    rows[1, :count] = logits
    mask = np.zeros(padded // 32, np.int32)
    if allowed is not None:
        bits = np.ones(padded, bool)
        bits[:count] = allowed
        mask = np.packbits(bits, bitorder="little").view(np.int32).copy()
    best, where = np.zeros(PARTS, np.float32), np.zeros(PARTS, np.int64)
    chosen = np.full(1, -7, np.int64)
    use = np.array([allowed is not None], np.int64)
    args = [rows, np.array([1]), padded, mask, use, best, where, count]
    runner.call(spec(argmax_part), args, 0, PARTS)
    runner.call(spec(argmax_final), [best, where, chosen], 0, 1)
    return int(chosen[0])


def test_largest(runner: Runner, rng: np.random.Generator) -> None:
    """The largest logit wins, in vocabularies of awkward sizes, with and without a mask."""
    for size in SIZES[4:5] if runner.emulated else SIZES:
        logits = rng.standard_normal(size).astype(np.float32)
        assert _choose(runner, logits) == reference(logits)
        allowed = rng.random(size) < 0.2
        assert _choose(runner, logits, allowed) == reference(logits, allowed)


def test_every_place_can_win(native: Native) -> None:
    """The winner is found wherever it is: in any lane, word or slice, first and last included."""
    size = 1030
    for at in [*range(0, 70), *range(480, 560), *range(1000, size)]:
        logits = np.full(size, -5.0, np.float32)
        logits[at] = -4.0
        assert _choose(native, logits) == at


def test_ties_take_the_first(runner: Runner) -> None:
    """Equal logits: the smallest id, whichever lanes and slices they are in."""
    for first, others in ((3, [700, 4]), (40, [44, 41, 1023]), (600, [601, 900])):
        logits = np.zeros(1024, np.float32)
        logits[[first, *others]] = 1.0
        assert _choose(runner, logits) == first
        assert _choose(runner, np.zeros(1024, np.float32)) == 0


def test_one_allowed(native: Native, rng: np.random.Generator) -> None:
    """With a single id allowed it is chosen, however small its logit."""
    logits = rng.standard_normal(777).astype(np.float32)
    for at in (0, 31, 32, 500, 776):
        allowed = np.zeros(777, bool)
        allowed[at] = True
        logits[at] = -1e30
        assert _choose(native, logits, allowed) == at


def test_nothing_allowed(runner: Runner, rng: np.random.Generator) -> None:
    """An empty mask gives -1, not some id; bits past the vocabulary do not count as allowed."""
    logits = rng.standard_normal(777).astype(np.float32)
    assert _choose(runner, logits, np.zeros(777, bool)) == -1


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_broken_logits_are_not_chosen(native: Native, broken: float) -> None:
    """NaN and -Inf lose against any number; if there is nothing else, the answer is -1."""
    logits = np.full(600, broken, np.float32)
    assert _choose(native, logits) == -1
    logits[432] = -3e38
    assert _choose(native, logits) == 432


def test_infinity_wins(native: Native) -> None:
    """+Inf is the largest."""
    logits = np.zeros(600, np.float32)
    logits[99] = np.inf
    assert _choose(native, logits) == 99
