"""Sessions that share passes are stopped one by one, and nobody else is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.alone import decode_alone
from helpers.threads import together

from triplepoint.errors import PassCancelledError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import Batch, Request, StepResult
from triplepoint.runtime.engine.passes.runner import Runner
from triplepoint.runtime.engine.session import Session

pytestmark = pytest.mark.usefixtures("often")
CHANCE = np.random.default_rng(11)
PROMPTS = [CHANCE.integers(0, 2000, size).tolist() for size in (5, 40, 300, 90, 700)]


def test_stop_ends_its_own_session(engine: Engine) -> None:
    """A session that is stopped ends; its neighbors write to their ends."""
    want = [decode_alone(engine, PROMPTS[n], 120) for n in range(4)]
    sessions = [engine.session() for _ in range(4)]

    def work(n: int) -> list[int]:
        ids: list[int] = []
        try:
            sessions[n].prefill(PROMPTS[n])
            for token in sessions[n].decode(max_tokens=120):
                ids.append(token)
                if n == 0 and len(ids) == 10:
                    sessions[1].stop()
                if n == 2 and len(ids) == 20:
                    sessions[2].stop()
        except PassCancelledError:
            ids.append(-1)
        return ids

    got = together(work, 4)
    assert got[0] == want[0]
    assert got[3] == want[3]
    assert got[2] == [*want[2][:20], -1]
    # The one that another thread stopped kept what it had; it may just have been done.
    assert got[1][:-1] == want[1][: len(got[1]) - 1]


class Held:
    """Holds up the first pass of one session until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        run = Runner.run

        def held(runner: Runner, batch: Batch, plan: Any = None) -> list[StepResult]:
            mine = any(one.sequence is session.sequence for one, _ in batch.parts)
            if mine and not self.begun.is_set():
                self.begun.set()
                assert self.go_on.wait(60)
            return run(runner, batch, plan)

        monkeypatch.setattr(Runner, "run", held)


def _until(fact: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not fact():
        assert time.monotonic() - started < 60
        time.sleep(0.001)


def _prefill(session: Session, prompt: list[int]) -> str:
    try:
        session.prefill(prompt)
    except PassCancelledError:
        return "stopped"
    return "done"


def test_stop_takes_back_rows_that_wait(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that waits for its turn ends when it is stopped, not after its pass."""
    busy, waits = engine.session(), engine.session()
    held = Held(monkeypatch, busy)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(_prefill, busy, PROMPTS[3])
        try:
            assert held.begun.wait(60)
            second = threads.submit(_prefill, waits, PROMPTS[4])
            _until(lambda: bool(engine.core.scheduler._waiting))
            waits.stop()
            assert second.result(60) == "stopped"
            assert not first.done()
        finally:
            held.go_on.set()
        assert first.result(60) == "done"
    assert waits.n_cached == 0
    assert _prefill(waits, []) == "done"


def test_the_lead_is_handed_on_by_who_was_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is stopped in the moment in which it is to lead does not leave the others waiting."""
    busy, stopped, last = (engine.session() for _ in range(3))
    held = Held(monkeypatch, busy)
    scheduler = engine.core.scheduler
    hand_over = scheduler._hand_over

    def and_stop() -> None:
        with scheduler.mutex:
            hand_over()
            if any(t.leads and t.request.sequence is stopped.sequence for t in scheduler._waiting):
                stopped.stop()

    monkeypatch.setattr(scheduler, "_hand_over", and_stop)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(_prefill, busy, PROMPTS[3])
        others = []
        try:
            assert held.begun.wait(60)
            for n, session in enumerate((stopped, last), 1):
                others.append(threads.submit(_prefill, session, PROMPTS[n]))
                _until(lambda n=n: len(scheduler._waiting) == n)
        finally:
            held.go_on.set()
        assert first.result(60) == "done"
        assert [one.result(60) for one in others] == ["stopped", "done"]
    assert not scheduler._leading


def test_a_shared_pass_ends_when_nobody_waits_for_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two in a pass the first that is stopped leaves it to the other; the second ends it."""
    pair = [engine.session() for _ in range(2)]
    for session, prompt in zip(pair, PROMPTS, strict=False):
        session.prefill(prompt)
        session.tokens.append(1)
    run_tape = Runner._run_tape

    def stopped_meanwhile(runner: Runner, tape: Any, times: Any) -> None:
        pair[0].stop()
        assert not engine.loaded.pool.stopped
        pair[1].stop()
        assert engine.loaded.pool.stopped
        run_tape(runner, tape, times)

    scheduler = engine.core.scheduler
    with scheduler.phase(pair[0].sequence), scheduler.phase(pair[1].sequence):
        batch = Batch.whole(*(Request(s.sequence, s.n_cached, [1], 1) for s in pair))
        monkeypatch.setattr(Runner, "_run_tape", stopped_meanwhile)
        with engine.loaded.lock, pytest.raises(PassCancelledError):
            scheduler.run(batch)
    assert not engine.loaded.pool.stopped
    assert [session.n_cached for session in pair] == [len(prompt) for prompt in PROMPTS[:2]]


@pytest.mark.slow
def test_stopping_an_idle_session_ends_nobody(engine: Engine) -> None:
    """`stop` of a session that does nothing leaves the one that works alone."""
    idle, busy = engine.session(), engine.session()
    idle.prefill(PROMPTS[0])
    want = decode_alone(engine, PROMPTS[4], 60)
    over = threading.Event()

    def stop_again_and_again() -> None:
        while not over.is_set():
            idle.stop()

    thread = threading.Thread(target=stop_again_and_again)
    thread.start()
    try:
        for _ in range(5):
            busy.truncate(0)
            busy.prefill(PROMPTS[4])
            assert list(busy.decode(max_tokens=60)) == want
    finally:
        over.set()
        thread.join()
