"""Greedy choice under a mask."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.argmax import PARTS, argmax_final, argmax_part, reference

ASKS = ()  # see helpers/feature_sets.py
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
    best, where = np.zeros((3, PARTS), np.float32), np.zeros((3, PARTS), np.int64)
    chosen, row = np.full(3, -7, np.int64), np.array([1])
    masks, use = np.zeros((3, len(mask)), np.int32), np.zeros(3, np.int64)
    masks[1], use[1] = mask, allowed is not None
    args = [rows, row, padded, masks, len(mask), use, best, where, count]
    runner.call(spec(argmax_part), args, 0, PARTS)
    runner.call(spec(argmax_final), [best, where, chosen, row], 0, 1)
    assert chosen[[0, 2]].tolist() == [-7, -7]
    return int(chosen[1])


def test_rows_with_masks_of_their_own(native: Native, rng: np.random.Generator) -> None:
    """Many rows in one call, split anyhow into units: each as if it were alone."""
    size, count = 1500, 5
    logits = np.zeros((count, -(-size // (32 * PARTS)) * 32 * PARTS), np.float32)
    logits[:, :size] = rng.standard_normal((count, size))
    allowed = rng.random((count, size)) < 0.1
    use = np.array([1, 0, 1, 1, 0])
    words = np.packbits(allowed, axis=1, bitorder="little")
    masks = np.zeros((count, logits.shape[1] // 8), np.uint8)
    masks[:, : words.shape[1]] = words
    best, where = np.zeros((count, PARTS), np.float32), np.zeros((count, PARTS), np.int64)
    chosen, row = np.full(count, -7, np.int64), np.array([0])
    args = [logits, row, logits.shape[1], masks.view(np.int32), masks.shape[1] // 4, use, best,
            where, size]  # fmt: skip
    for at in reversed(range(0, count * PARTS, 7)):
        native.call(spec(argmax_part), args, at, min(at + 7, count * PARTS))
    native.call(spec(argmax_final), [best, where, chosen, row], 0, count)

    for row, token in enumerate(chosen):
        want = reference(logits[row, :size], allowed[row] if use[row] else None)
        assert token == want, row


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
