"""Small kernels of which tests make tapes, and their reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from triplepoint.jit.compile import Library, ObjectCache, spec
from triplepoint.jit.pool import Pool
from triplepoint.jit.simd import I64, I64s, Kernel, kernel
from triplepoint.jit.targets import detect


@kernel
def neighbors(k: Kernel, a: I64s, b: I64s, size: I64) -> None:
    """b[unit] = 3 * a[unit] + a[unit + 1] + 1, round a ring: needs what other threads wrote."""
    with k.units() as unit:
        b.store(unit, a.load(unit) * 3 + a.load((unit + 1) % size) + 1)


@kernel
def visit(k: Kernel, times: I64s, who: I64s) -> None:
    """Count each unit, and note which thread did it last."""
    with k.units() as unit:
        times.store(unit, times.load(unit) + 1)
        who.store(unit, k.tid)


@kernel
def count(k: Kernel, mine: I64s) -> None:
    """Count calls and units in memory of the thread's own."""
    mine.store(0, mine.load(0) + 1)
    with k.units():
        mine.store(1, mine.load(1) + 1)


@kernel
def spin(k: Kernel, loops: I64s, sink: I64s) -> None:
    """Keep a thread busy for about loops[0] x 1 ns; the chain of sums cannot be skipped."""
    with k.units(), k.range(0, loops.load(0)) as i:
        sink.store(0, sink.load(0) * 3 + i)


MakePool = Callable[[int], Pool]
NEIGHBORS, VISIT, COUNT, SPIN = (spec(s) for s in (neighbors, visit, count, spin))


def fresh_library() -> Library:
    """A library that keeps nothing on disk: the cache's key does not cover the kernels above."""
    return Library(detect(), ObjectCache(None))


def neighbors_reference(a: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        a = 3 * a + np.roll(a, -1) + 1
    return a
