"""States of recurrent layers: where a sequence can go back to, and what the copies take."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from triplepoint.errors import EngineError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.forward.kv import KVCache, KVLayout
from triplepoint.runtime.forward.state import LATEST, MAX_COPIES, StateLayout
from triplepoint.runtime.forward.tensors import HeadShape

SIZES = [(0, 40), (3, 16)]


def make(states: StateLayout | None = None) -> KVCache:
    states = states or StateLayout.of(SIZES)
    heads = HeadShape(1, 1, 32)
    layout = KVLayout("f32", [None, heads, heads, None], 16384, states=states)
    return KVCache(layout, 16384)


def compute(cache: KVCache, start: int, end: int) -> None:
    """A pass that leaves the number of its last token in the state."""
    cache.make_writable(start, end)
    assert cache.state is not None
    own = cache.state._own  # what kernels find by its address
    assert own is not None
    own[:] = end
    cache.computed(end)


def value(cache: KVCache) -> float:
    """What the next pass would read."""
    assert cache.state is not None
    return float(cache.state.keep().data[0])


def test_layout() -> None:
    """Parts of layers begin on cache lines; a state before the first token is zeros."""
    layout = StateLayout.of(SIZES)

    assert layout.offsets == {0: 0, 3: 48}
    assert layout.floats == 64
    assert layout.empty.position == 0
    assert not layout.empty.data.any()


def test_goes_back_to_the_last_copy() -> None:
    """At, before, between and behind copies: never to a place whose state is not known."""
    cache = make()
    assert cache.state is not None
    for start in range(0, 400, 100):
        compute(cache, start, start + 100)
        if start != 200:
            cache.state.keep()
    copies = [100, 200, 400]

    assert [one.position for one in cache.state.checkpoints] == copies
    assert cache.seek(400) == 400
    assert cache.seek(399) == 200
    assert value(cache) == 200
    assert cache.seek(399) == 200
    assert cache.seek(150) == 100
    compute(cache, 100, 150)
    assert (cache.seek(150), value(cache)) == (150, 150)
    assert cache.seek(99) == 0
    assert value(cache) == 0


def test_a_pass_must_go_on_where_the_state_is() -> None:
    """Another place is refused, and so is the same after a pass that did not end."""
    cache = make()
    compute(cache, 0, 10)
    with pytest.raises(EngineError, match="is at position 10; cannot continue at 8"):
        cache.make_writable(8, 12)
    cache.make_writable(10, 12)  # and then it was stopped
    with pytest.raises(EngineError, match="cannot continue at 10"):
        cache.make_writable(10, 12)

    assert cache.seek(10) == 0
    compute(cache, 0, 10)
    assert value(cache) == 10


def test_a_copy_outlives_a_pass_that_did_not_end() -> None:
    """The first pass behind a copy reads the copy: stopped, it can be run again."""
    cache = make()
    assert cache.state is not None
    compute(cache, 0, 10)
    cache.state.keep()
    compute(cache, 10, 20)
    assert cache.seek(15) == 10
    cache.make_writable(10, 20)

    assert cache.seek(10) == 10
    assert value(cache) == 10


def test_a_pass_that_may_be_taken_back() -> None:
    """The state before it stays until the next pass, and can be gone back to."""
    cache = make()
    compute(cache, 0, 10)
    for end in (14, 13):
        cache.make_writable(10, end, undo=True)
        assert cache.state is not None
        assert cache.state._spare is not None
        cache.state._spare[:] = end
        cache.computed(end)
        if end == 14:
            assert cache.seek(12) == 10
    assert value(cache) == 13
    cache.make_writable(13, 20, undo=True)  # and then it was stopped

    assert (cache.seek(13), value(cache)) == (13, 13)


def test_forks_share_copies_and_not_what_passes_change() -> None:
    """Both go on by themselves; a fork behind a place that is not known begins before it."""
    cache = make()
    compute(cache, 0, 300)
    other = cache.fork(300)
    compute(cache, 300, 310)
    compute(other, 300, 320)

    assert (value(cache), value(other)) == (310, 320)
    third = cache.fork(305)
    assert third.seek(305) == 300
    assert len(third.held) == -(-300 // PAGE)
    assert value(third) == 300


@pytest.mark.slow
def test_memory_is_counted_and_given_back() -> None:
    """States count beside pages, copies by themselves, those of several owners once."""
    states = StateLayout.of(SIZES)
    cache = make(states)
    memory = cache.layout.memory
    assert cache.wants(0, 1) > states.nbytes
    compute(cache, 0, 10)
    with_state = memory.used
    assert states.copies.used == 0
    other = cache.fork(10)
    assert states.copies.used == states.nbytes
    cache.clear()

    assert memory.used < with_state
    assert states.copies.used == states.nbytes
    assert value(cache) == 0
    del other
    gc.collect()
    assert states.copies.used == 0


def test_which_copies_stay() -> None:
    """The first and the last ones always; those between lie the farther apart the older."""
    cache = make()
    assert cache.state is not None
    for n in range(1, 61):
        compute(cache, 100 * n - 100, 100 * n)
        cache.state.keep()
    places = [one.position for one in cache.state.checkpoints]

    assert len(places) == MAX_COPIES
    assert places[0] == 100
    assert places[-LATEST:] == [5700, 5800, 5900, 6000]
    gaps = np.diff(places)
    assert gaps.max() <= 2400
    assert gaps[: len(gaps) // 2].mean() > gaps[len(gaps) // 2 :].mean()


def test_a_budget_for_copies() -> None:
    """Where they take more than they may, older ones go; the last one stays."""
    states = StateLayout.of(SIZES)
    states.copies.budget = 3 * states.nbytes
    cache = make(states)
    assert cache.state is not None
    for n in range(1, 9):
        compute(cache, 10 * n - 10, 10 * n)
        cache.state.keep()

    assert states.copies.used <= states.copies.budget
    assert cache.state.checkpoints[-1].position == 80
    assert len(cache.state.checkpoints) == 3


def test_the_state_before_a_pass_is_counted_before_it_is_taken() -> None:
    """What a pass wants is what it takes: nothing for the second state once that is there."""
    cache = make()
    memory = cache.layout.memory
    for start, undo in ((0, False), (10, True), (11, True), (12, False)):
        ready = cache.ready(start, start + 1, undo=undo)
        wanted, before = cache.wants(start, start + 1, undo=undo), memory.used
        assert ready == (not wanted)
        cache.make_writable(start, start + 1, undo=undo)
        assert memory.used - before == wanted
        cache.computed(10 if start == 0 else start + 1)
        if start == 0:
            memory.budget = cache.needs(PAGE, undo=True)
            assert cache.can_undo(PAGE)
            assert not cache.can_undo(PAGE + 1)
    assert cache.needs(PAGE, undo=True) == memory.used
