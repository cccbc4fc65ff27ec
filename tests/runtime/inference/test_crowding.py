"""Crowding: which threads play while another process has a core."""

from __future__ import annotations

import os
import threading

import pytest

from triplepoint.runtime.inference.crowding import LOOK_S, PATIENCE_S, Crowding, delay_of
from triplepoint.runtime.inference.engine import Engine


class Crew:
    """Three threads: the caller and two workers, of which the listed ones wait for a core."""

    def __init__(self) -> None:
        self.threads = self.active = 3
        self.caller = threading.get_native_id()
        self.worker_ids = [-1, -2]
        self.starved: set[int] = set()
        self.now = 100.0
        self.lost = dict.fromkeys([self.caller, -1, -2], 0)

    def put_last(self, worker: int) -> None:
        """The starved core goes to the last worker that plays."""
        last = self.active - 2
        here, there = self.worker_ids[worker], self.worker_ids[last]
        if here in self.starved and there not in self.starved:
            self.starved = self.starved - {here} | {there}

    def passes(self, crowding: Crowding, seconds: float) -> None:
        """Passes for so long; starved players lose half of their time."""
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_S / 4
            active_threads = [self.caller, *self.worker_ids[: self.active - 1]]
            for tid in self.starved.intersection(active_threads):
                self.lost[tid] += int(LOOK_S / 8 * 1e9)
            crowding.look()


@pytest.fixture
def crew() -> Crew:
    return Crew()


@pytest.fixture
def crowding(crew: Crew) -> Crowding:
    return Crowding(crew, delay=lambda tid: crew.lost[tid], clock=lambda: crew.now)


def test_nothing_changes_while_all_have_cores(crew: Crew, crowding: Crowding) -> None:
    """Without anyone starved, all threads play on."""
    crew.passes(crowding, 60)
    assert crew.active == 3
    assert crowding.changes == []


def test_a_starved_worker_is_left_out(crew: Crew, crowding: Crowding) -> None:
    """The core that another process has goes to the last worker, and that one rests."""
    crew.starved = {-1}
    crew.passes(crowding, 4 * LOOK_S)
    assert crew.active == 2
    assert crew.starved == {-2}
    assert crowding.changes[-1].starved == pytest.approx(0.5, abs=0.1)


def test_a_starved_caller_gets_a_workers_core(crew: Crew, crowding: Crowding) -> None:
    """The caller cannot rest: one worker does, and so the caller may move."""
    crew.starved = {crew.caller}
    crew.passes(crowding, 4 * LOOK_S)
    assert crew.active == 2


def test_one_blink_changes_nothing(crew: Crew, crowding: Crowding) -> None:
    """A thread must starve for two looks in a row."""
    crew.passes(crowding, 1)
    for _ in range(20):
        crew.starved = {-2}
        crew.passes(crowding, LOOK_S)
        crew.starved = set()
        crew.passes(crowding, 2 * LOOK_S)
    assert crowding.changes == []


def test_all_threads_return_when_the_core_is_free(crew: Crew, crowding: Crowding) -> None:
    """After its patience all play again, and stay."""
    crew.starved = {-2}
    crew.passes(crowding, 0.5)
    assert crew.active == 2
    crew.starved = set()
    crew.passes(crowding, PATIENCE_S + 1)
    assert crew.active == 3
    changes = len(crowding.changes)
    crew.passes(crowding, 30)
    assert len(crowding.changes) == changes


def test_the_number_of_threads_does_not_swing(crew: Crew, crowding: Crowding) -> None:
    """While the core stays taken, attempts become rare: under 15 in five minutes."""
    crew.starved = {-2}
    crew.passes(crowding, 300)
    attempts = [change for change in crowding.changes if change.threads == 3]
    assert 3 <= len(attempts) < 15
    assert crew.active == 2


def test_one_thread_always_plays(crew: Crew, crowding: Crowding) -> None:
    """With every core taken, the caller still plays."""
    crew.starved = {crew.caller, -1, -2}
    crew.passes(crowding, 0.9)
    assert crew.active == 1


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
    """A pass in the middle of a text may be played by fewer threads; its accounts say so."""
    ids = list(range(40, 90))
    with Engine.load("nano", threads=2) as engine:
        engine.crowding.on = False
        session = engine.session(256)
        session.prefill(ids)
        want = list(session.decode(max_tokens=8))
        assert session.last_phase is not None
        assert session.last_phase.threads == 2
        session.prefill([])
        logits = session.logits.copy()
        session.truncate(0)
        session.prefill(ids[:20])
        engine.crew.active = 1
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
        pool = engine.pool
        before = [os.sched_getaffinity(tid) for tid in pool.worker_ids]
        engine.crew.put_last(0)
        assert [os.sched_getaffinity(tid) for tid in pool.worker_ids] == before[::-1]
