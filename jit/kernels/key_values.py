"""Values that are the first dims of keys, as in latent attention: read from the keys' storage.

A page has such values once. Scores want lane = position and values lane = dim, so on the way to the
second product the keys of a chunk are turned in registers, some dims at a time, into a piece of
scratch that lies as values do. In each int32 are `step` dims of a position before, and as many
positions of a dim after: 1 for float32, 2 for bf16, 4 for bytes. L vectors of that turn L / step
words of dims of L positions; the numbers stay as they are, and so do the bits of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..simd import Kernel, Ptr, Value, i8, i16, i32
from .kvcache import PAGE

PIECE_DIMS = 64  # at most in one piece


def piece_bytes() -> int:
    """Return the bytes of scratch for a piece of float32 values, the largest type."""
    return 4 * PAGE * PIECE_DIMS


def transposed(k: Kernel, words: Sequence[Value], step: int) -> list[Value]:
    """Transpose lanes / step int32 vectors of words of dims, lane = position.

    Of the results the n-th has positions n * step … of all dims in its lanes, in their order.
    """
    count = k.lanes // step
    assert len(words) == count, (len(words), count)
    vectors = [_within(word, step) for word in words]
    distance = 1
    while distance < count:
        for a in range(count):
            if a & distance:
                continue
            b = a + distance
            vectors[a], vectors[b] = _swapped(vectors[a], vectors[b], distance, step)
        distance *= 2
    return vectors


def _within(word: Value, step: int) -> Value:
    """Combine `step` dims of each of `step` neighboring positions, one int32 for each dim."""
    if step == 1:
        return word
    small = word.bitcast(i16 if step == 2 else i8)
    order = [
        first + position * step + dim
        for first in range(0, small.lanes, step * step)
        for dim in range(step)
        for position in range(step)
    ]
    return small.shuffle(order).bitcast(i32)


def _swapped(a: Value, b: Value, distance: int, step: int) -> tuple[Value, Value]:
    """Swap units of `step` lanes of two rows of a square: one round of its transposition."""
    units = a.lanes // step
    low, high = list[int](), list[int]()
    for unit in range(units):
        from_b = bool(unit & distance)
        low += _lanes(units + unit - distance if from_b else unit, step)
        high += _lanes(units + unit if from_b else unit + distance, step)
    return a.shuffle(low, b), a.shuffle(high, b)


def _lanes(unit: int, step: int) -> range:
    return range(unit * step, (unit + 1) * step)


def turn(
    k: Kernel,
    rows: Sequence[Ptr],
    stride: int,
    step: int,
    into: Ptr,
    at: Value,
    width: int,
    flip: int = 0,
) -> None:
    """Transpose `lanes` positions of whole vectors of dims.

    rows: of each vector of dims, where its first word lies for these positions; the next ones are
    `stride` int32 on. into: int32 [positions of the chunk / step, width], of which rows from `at`
    on are written. flip: bits of each word that are changed.
    """
    count = k.lanes // step
    for n, row in enumerate(rows):
        words = [row.load(w * stride, k.lanes) for w in range(count)]
        words = [word ^ flip for word in words] if flip else words
        for group, vector in enumerate(transposed(k, words, step)):
            into.store((at + group) * width + n * k.lanes, vector)
