"""ContentionMonitor: which threads run while another process has a core."""

from __future__ import annotations

import os
import threading

import pytest

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.policy import contention as module
from triplepoint.runtime.engine.policy.contention import (
    LOOK_S,
    PATIENCE_S,
    ContentionMonitor,
    delay_of,
)


class ThreadSet:
    """Three threads: the caller and two workers, of which the listed ones wait for a core."""

    def __init__(self) -> None:
        self.threads = self.active = 3
        self.elastic = False
        self.caller = threading.get_native_id()
        self.worker_ids = [-1, -2]
        self.starved: set[int] = set()
        self.now = 100.0
        self.lost = dict.fromkeys([self.caller, -1, -2], 0)

    def put_last(self, worker: int) -> None:
        """The starved core goes to the last worker that runs."""
        last = self.active - 2
        here, there = self.worker_ids[worker], self.worker_ids[last]
        if here in self.starved and there not in self.starved:
            self.starved = self.starved - {here} | {there}

    def passes(self, contention: ContentionMonitor, seconds: float) -> None:
        """Passes for so long; starved active threads lose half of their time."""
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_S / 4
            active_threads = [self.caller, *self.worker_ids[: self.active - 1]]
            for tid in self.starved.intersection(active_threads):
                self.lost[tid] += int(LOOK_S / 8 * 1e9)
            contention.look()


@pytest.fixture
def thread_set() -> ThreadSet:
    return ThreadSet()


@pytest.fixture
def contention(thread_set: ThreadSet, monkeypatch: pytest.MonkeyPatch) -> ContentionMonitor:
    """Three threads are too many for elastic passes."""
    monkeypatch.setattr(module, "ELASTIC_MOST", 2)
    return elastic_contention(thread_set)


def elastic_contention(thread_set: ThreadSet) -> ContentionMonitor:
    return ContentionMonitor(
        thread_set, delay=lambda tid: thread_set.lost[tid], clock=lambda: thread_set.now
    )


def test_nothing_changes_while_all_have_cores(
    thread_set: ThreadSet, contention: ContentionMonitor
) -> None:
    """Without anyone starved, all threads run on."""
    thread_set.passes(contention, 60)
    assert thread_set.active == 3
    assert contention.changes == []


def test_a_starved_worker_is_left_out(thread_set: ThreadSet, contention: ContentionMonitor) -> None:
    """The core that another process has goes to the last worker, and that one rests."""
    thread_set.starved = {-1}
    thread_set.passes(contention, 4 * LOOK_S)
    assert thread_set.active == 2
    assert thread_set.starved == {-2}
    assert contention.changes[-1].starved == pytest.approx(0.5, abs=0.1)


def test_a_starved_caller_gets_a_workers_core(
    thread_set: ThreadSet, contention: ContentionMonitor
) -> None:
    """The caller cannot rest: one worker does, and so the caller may move."""
    thread_set.starved = {thread_set.caller}
    thread_set.passes(contention, 4 * LOOK_S)
    assert thread_set.active == 2


def test_one_blink_changes_nothing(thread_set: ThreadSet, contention: ContentionMonitor) -> None:
    """A thread must starve for two looks in a row."""
    thread_set.passes(contention, 1)
    for _ in range(20):
        thread_set.starved = {-2}
        thread_set.passes(contention, LOOK_S)
        thread_set.starved = set()
        thread_set.passes(contention, 2 * LOOK_S)
    assert contention.changes == []


def test_all_threads_return_when_the_core_is_free(
    thread_set: ThreadSet, contention: ContentionMonitor
) -> None:
    """After its patience all run again, and stay."""
    thread_set.starved = {-2}
    thread_set.passes(contention, 0.5)
    assert thread_set.active == 2
    thread_set.starved = set()
    thread_set.passes(contention, PATIENCE_S + 1)
    assert thread_set.active == 3
    changes = len(contention.changes)
    thread_set.passes(contention, 30)
    assert len(contention.changes) == changes


def test_the_number_of_threads_does_not_swing(
    thread_set: ThreadSet, contention: ContentionMonitor
) -> None:
    """While the core stays taken, attempts become rare: under 15 in five minutes."""
    thread_set.starved = {-2}
    thread_set.passes(contention, 300)
    attempts = [change for change in contention.changes if change.threads == 3]
    assert 3 <= len(attempts) < 15
    assert thread_set.active == 2


def test_one_thread_always_plays(thread_set: ThreadSet, contention: ContentionMonitor) -> None:
    """With every core taken, the caller still runs."""
    thread_set.starved = {thread_set.caller, -1, -2}
    thread_set.passes(contention, 0.9)
    assert thread_set.active == 1


@pytest.mark.parametrize("who", [0, -1, -2], ids=["caller", "first", "last"])
def test_few_threads_run_elastic_passes(thread_set: ThreadSet, who: int) -> None:
    """Whoever starves: all run on, as long as that lasts and for some patience more."""
    contention = elastic_contention(thread_set)
    thread_set.starved = {who or thread_set.caller}
    thread_set.passes(contention, 4 * LOOK_S)
    assert (thread_set.active, thread_set.elastic) == (3, True)
    (change,) = contention.changes
    assert (
        change.text
        == f"threads: 3, elastic passes, {change.starved:.0%} of the time without a core"
    )
    thread_set.passes(contention, 60)
    assert len(contention.changes) == 1
    thread_set.starved = set()
    thread_set.passes(contention, PATIENCE_S / 2)
    assert thread_set.elastic
    thread_set.passes(contention, PATIENCE_S)
    assert (thread_set.active, thread_set.elastic) == (3, False)
    assert [change.text for change in contention.changes[1:]] == ["threads: 3, again"]


def test_elastic_passes_do_not_swing(thread_set: ThreadSet) -> None:
    """A core that is taken for a second every three: ever longer are passes elastic."""
    contention = elastic_contention(thread_set)
    for _ in range(100):
        thread_set.starved = {-1}
        thread_set.passes(contention, 1)
        thread_set.starved = set()
        thread_set.passes(contention, 2)
    assert len(contention.changes) < 220
    assert thread_set.active == 3


@pytest.mark.skipif(delay_of(threading.get_native_id()) is None, reason="no schedstat here")
def test_the_system_counts_the_time_without_a_core() -> None:
    """The number only grows, and threads that do not exist have none."""
    first = delay_of(threading.get_native_id())
    again = delay_of(threading.get_native_id())
    assert first is not None
    assert again is not None
    assert 0 <= first <= again
    assert delay_of(2**22 + 1) is None


def test_fewer_threads_give_the_same_bits() -> None:
    """A pass in the middle of a text may be run by fewer threads; its accounts say so."""
    ids = list(range(40, 90))
    with Engine.load("nano", threads=2) as engine:
        engine.loaded.contention.on = False
        session = engine.session(256)
        session.prefill(ids)
        want = list(session.decode(max_tokens=8))
        assert session.last_phase is not None
        assert session.last_phase.threads == 2
        session.prefill([])
        logits = session.logits.copy()
        session.truncate(0)
        session.prefill(ids[:20])
        engine.loaded.active_threads.active = 1
        session.prefill(ids[20:])
        assert list(session.decode(max_tokens=8)) == want
        assert session.last_phase.threads == 1
        assert 0 <= session.last_phase.dispatch_share <= 1
        session.prefill([])
        assert (session.logits == logits).all()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 3, reason="needs three cores to swap two")
def test_put_last_swaps_cores() -> None:
    """The worker that is put last has the other's core."""
    with Engine.load("nano", threads=3) as engine:
        pool = engine.loaded.pool
        before = [os.sched_getaffinity(tid) for tid in pool.worker_ids]
        engine.loaded.active_threads.put_last(0)
        assert [os.sched_getaffinity(tid) for tid in pool.worker_ids] == before[::-1]
