"""Statistics of logits for sampling, without a sort: counts, weights and tokens by gap.

A token's gap is how far its logit is below the largest allowed one, and exp(-gap / temperature) its
weight. All tokens in order of likelihood are then a curve of count and weight over the gap:

    counts[slice, j] = number of allowed tokens with gap <= levels[j]          (sample_levels)
    masses[slice, j] = sum of their weights
    ids[slice …]     = the allowed tokens with low < gap <= high, ids rising   (sample_collect)

Slices are those of `argmax_part`, the same for any number of threads, and so are the sums.
"""

from __future__ import annotations

import numpy as np

from ..simd import I64, F32s, I32s, I64s, Kernel, Ptr, Value, f32, i32, kernel
from .argmax import PARTS
from .mathlib import exp

LEVELS = 8  # that one look at the logits counts at


@kernel
def sample_levels(
    k: Kernel,
    logits: F32s,
    mask: I32s,
    use_mask: I64s,
    best: F32s,
    scale: F32s,
    levels: F32s,
    counts: I32s,
    masses: F32s,
    count: I64,
) -> None:
    """Sum counts, masses [PARTS, LEVELS] of the slice's tokens up to each level; unit = slice.

    best [PARTS]: what `argmax_part` left. scale[0] = 1 / temperature. See there for the rest.
    """
    lanes = k.lanes
    words = (count + 31) // 32
    masked = use_mask.load(0).ne(0)
    maximum = _largest(k, best).splat(lanes)
    sharper = scale.load(0).splat(lanes)
    edges = [levels.load(j).splat(lanes) for j in range(LEVELS)]
    with k.units() as unit:
        begin, end = words * unit // PARTS, words * (unit + 1) // PARTS
        numbers = [k.var(k.zeros(i32, lanes)) for _ in range(LEVELS)]
        weights = [k.var(k.zeros(f32, lanes)) for _ in range(LEVELS)]
        with k.range(begin, end, name="word") as word:
            allowed = masked.select(mask.load(masked.select(word, 0)), -1).splat(lanes)
            for n in range(0, 32, lanes):
                at = k.iota(lanes) + (word * 32 + n).to(i32).splat(lanes)
                bit = (allowed >> (k.iota(lanes) + n)) & 1
                gap = maximum - logits.load(word * 32 + n, lanes)
                weight = exp(k, 0 - gap * sharper)
                usable = bit.ne(0) & (at < count.to(i32).splat(lanes))
                for edge, number, total in zip(edges, numbers, weights, strict=True):
                    there = usable & (gap <= edge)
                    number.set(number.value + there.select(k.const(1, number.value.type), 0))
                    total.set(total.value + there.select(weight, 0))
        for j, (number, total) in enumerate(zip(numbers, weights, strict=True)):
            counts.store(unit * LEVELS + j, number.value.fold(lambda a, b: a + b))
            masses.store(unit * LEVELS + j, total.value.hsum())


@kernel
def sample_collect(
    k: Kernel,
    logits: F32s,
    mask: I32s,
    use_mask: I64s,
    best: F32s,
    bounds: F32s,
    ids: I32s,
    found: I64s,
    count: I64,
) -> None:
    """Collect tokens with bounds[0] < gap <= bounds[1]; their number in found[unit]. Unit = slice.

    They stand in `ids`, which is as long as `logits`, from the slice's own first token on.
    """
    lanes = k.lanes
    words = (count + 31) // 32
    masked = use_mask.load(0).ne(0)
    largest = _largest(k, best)
    maximum = largest.splat(lanes)
    low, high = bounds.load(0), bounds.load(1)
    with k.units() as unit:
        begin, end = words * unit // PARTS, words * (unit + 1) // PARTS
        cursor = k.var(begin * 32)
        with k.range(begin, end, name="word") as word:
            # Most words hold nothing wanted: one look at all 32 tokens tells.
            hits = k.zeros(i32, lanes)
            for n in range(0, 32, lanes):
                gap = maximum - logits.load(word * 32 + n, lanes)
                there = (gap > low.splat(lanes)) & (gap <= high.splat(lanes))
                hits = hits | there.select(k.const(1, hits.type), 0)
            with k.if_(hits.fold(lambda a, b: a | b).ne(0)):
                allowed = masked.select(mask.load(masked.select(word, 0)), -1)
                last = (word * 32 + 32).min(count)
                with k.range(word * 32, last, name="token") as token:
                    gap = largest - logits.load(token)
                    bit = (allowed >> (token - word * 32).to(i32)) & 1
                    with k.if_(bit.ne(0) & (gap > low) & (gap <= high)):
                        ids.store(cursor.value, token.to(i32))
                        cursor.set(cursor.value + 1)
        found.store(unit, cursor.value - begin * 32)


def _largest(k: Kernel, best: Ptr) -> Value:
    """Return the largest logit of all slices."""
    largest = best.load(0)
    for n in range(1, PARTS):
        largest = largest.max(best.load(n))
    return largest


def slices(count: int) -> list[tuple[int, int]]:
    """Return the slices [begin, end) of a vocabulary of `count` tokens."""
    words = (count + 31) // 32
    return [
        (words * n // PARTS * 32, min(words * (n + 1) // PARTS * 32, count)) for n in range(PARTS)
    ]


def gaps(logits: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
    """Compute gaps to the largest: logits float32 [n], allowed bool [n]; NaN if not allowed."""
    usable = np.isfinite(logits) if allowed is None else np.isfinite(logits) & allowed
    return np.where(usable, logits[usable].max(initial=-np.inf) - logits, np.float32(np.nan))


def reference_levels(
    logits: np.ndarray, levels: np.ndarray, scale: float, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute counts int64 and masses float64 [levels] of the tokens up to each level."""
    gap = gaps(logits, allowed)
    there = [gap <= level for level in levels]
    numbers = np.array([np.count_nonzero(one) for one in there])
    return numbers, np.array([np.exp(-gap[one].astype(np.float64) * scale).sum() for one in there])


def reference_collect(
    logits: np.ndarray, low: float, high: float, allowed: np.ndarray | None = None
) -> np.ndarray:
    """Collect ids int64 of the tokens with low < gap <= high, ascending."""
    gap = gaps(logits, allowed)
    return np.flatnonzero((gap > low) & (gap <= high))
