"""What an interrupt, or one session's mistake, leaves to the others of an engine: nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from triplepoint.errors import EngineError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import Request
from triplepoint.runtime.engine.passes.scheduler import PendingRequest

PROMPTS = [np.random.default_rng(11).integers(0, 2000, 40).tolist()]


def test_what_an_interrupt_left_of_a_lead_is_taken_back(engine: Engine) -> None:
    """Ctrl-C may come where a thread has just begun to lead, or to wait: it asks again later."""
    session, scheduler = engine.session(), engine.core.scheduler
    session.prefill(PROMPTS[0])
    scheduler._leading = threading.get_ident()
    engine.loaded.trying.add(threading.get_ident())
    engine.loaded.lock.acquire()
    scheduler._waiting.append(PendingRequest(Request(engine.session().sequence, 0, [1, 2], 1)))
    assert len(list(session.decode(max_tokens=3))) == 3
    assert (scheduler._leading, scheduler._waiting) == (0, [])
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(engine.loaded.lock.acquire, timeout=10).result()
        thread.submit(engine.loaded.lock.release).result()


def test_a_phase_that_an_interrupt_ended_in_part_ends_no_others(engine: Engine) -> None:
    """A sequence that is left in one of the books only is not looked up in the other."""
    gone = engine.session().sequence
    engine.core.scheduler._left[gone] = time.perf_counter() + 60
    try:
        sessions = [engine.session() for _ in range(3)]
        for session in sessions:
            session.prefill(PROMPTS[0])
        with ThreadPoolExecutor(3) as threads:
            found = list(threads.map(lambda s: list(s.decode(max_tokens=8)), sessions))
        assert found[0] == found[1] == found[2]
    finally:
        del engine.core.scheduler._left[gone]


def test_prefixes_have_the_lock_of_the_scheduler(engine: Engine) -> None:
    """The collector may close a decode where either is held: with two they would wait for each
    other."""
    assert engine.core.prefix_cache.lock is engine.core.scheduler.mutex


def test_a_mask_that_does_not_fit_ends_its_own_decode_only(engine: Engine) -> None:
    """Others in the same pass go on."""

    class Short:
        def mask(self) -> np.ndarray:
            return np.zeros(1, np.uint32)

        def advance(self, token: int) -> None:
            pass

    session = engine.session()
    session.prefill(PROMPTS[0])
    with pytest.raises(EngineError, match="words of 32 bits"):
        list(session.decode(max_tokens=2, constraint=Short()))
    assert len(list(session.decode(max_tokens=2))) == 2


FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # 3.12


@FORKS
@pytest.mark.parametrize("threads", [1, 2])
def test_a_fork_in_the_midst_of_a_pass(threads: int) -> None:
    """A child has none of the threads that computed: it is told so, and waits for none of them."""
    with Engine.load("nano", threads=threads, context=1024) as engine:
        assert exit_of_a_child(engine) == 0


def exit_of_a_child(engine: Engine) -> int:
    """The status of one that is forked in the midst of a pass, and asks for another."""
    ends = threading.Event()

    def compute() -> None:
        while not ends.is_set():
            engine.session().prefill(PROMPTS[0] * 5)

    asks = engine.session()
    with ThreadPoolExecutor(1) as thread:
        computes = thread.submit(compute)
        while not engine.core.scheduler._leading:
            time.sleep(0.001)
        child = os.fork()
        if not child:
            signal.alarm(30)  # ends a child that waits
            status = 1
            try:
                asks.prefill(PROMPTS[0])
            except EngineError as error:
                engine.close()
                status = 0 if "before this process was forked" in str(error) else 2
            finally:
                os._exit(status)
        ended = os.waitpid(child, 0)[1]
        ends.set()
        computes.result()

    return os.waitstatus_to_exitcode(ended)


@FORKS
def test_a_fork_while_nothing_is_computed() -> None:
    """An engine of one thread has none that a child would lack: it answers there as here."""
    with Engine.load("nano", threads=1, context=1024) as engine:
        session = engine.session()
        session.prefill(PROMPTS[0])
        child = os.fork()
        if not child:
            signal.alarm(30)
            status = 1
            try:
                own = engine.session()
                own.prefill(PROMPTS[0])
                status = 0 if np.array_equal(own.logits, session.logits) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
