"""Pages that are yet to come: touched ahead, in equal parts, and only where there is room."""

from __future__ import annotations

import numpy as np
import pytest

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.forward.kv_memory import MANY, SOON, KVMemory
from triplepoint.runtime.memory import HUGE_PAGE


def test_a_page_is_touched_ahead_by_passes_of_few_rows() -> None:
    """What a pass needs next is there before it does; only where the budget has room for it."""
    memory, size = KVMemory(), 3 * HUGE_PAGE

    memory.prepare(size, [(0, MANY), (0, 1)])
    assert not memory._spares, "many rows touch what they need themselves"
    touched = []
    for end in range(1, PAGE):
        memory.prepare(size, [(end, 1)])
        touched.append(memory._spares[0].touched)
    (spare,) = memory._spares
    assert touched[-1] == touched[-2] == size
    assert max(np.diff(touched)) <= size / (PAGE - 2) + 1, "the same part by each pass"
    assert memory.take(size) is spare.arena
    assert not memory._spares
    assert not spare.arena.take(size).any()

    memory.used, memory.budget = 1, size
    memory.prepare(size, [(1, 1)])
    assert not memory._spares
    memory.used = 0
    memory.prepare(size, [(1, 1)])
    assert memory.take(2 * size).nbytes >= 2 * size, "another layout's page is larger"


def test_sequences_that_want_a_page_at_once() -> None:
    """Eight that share a prompt: each finds its page touched, no pass touches more than its part.

    A sequence that needs its page in the next pass has it touched whole.
    """
    memory, size, left = KVMemory(), 3 * HUGE_PAGE, 12
    ends = [PAGE - left - n % 3 for n in range(8)]
    found = []
    for step in range(left - 1):
        memory.prepare(size, [(end + step, 1) for end in ends])
        found.append(sum(spare.touched for spare in memory._spares))
    touched = [spare.touched for spare in memory._spares]
    assert touched[:3] == [size] * 3, "those that need theirs in two passes"
    assert 6 * size < sum(touched) < 8 * size
    assert touched == sorted(touched, reverse=True), "one after the other"
    assert max(np.diff(found)) <= 8 * size / (left - 3)

    memory = KVMemory(budget=3 * size)
    memory.prepare(size, [(end, 1) for end in (PAGE, 5, 6)])
    assert [spare.touched for spare in memory._spares] == [size, 0, 0]
    memory.prepare(size, [(end, 1) for end in (5, 6, 7)])
    assert [spare.touched for spare in memory._spares] == [size, -(-2 * size // (SOON - 1)), 0]


def test_a_page_ahead_that_the_system_refuses() -> None:
    """The pass that was run is not to blame: whoever needs the page is told."""
    memory = KVMemory()
    memory.prepare(1 << 60, [(1, 1)])
    assert not memory._spares
    with pytest.raises((OSError, MemoryError)):
        memory.take(1 << 60)
