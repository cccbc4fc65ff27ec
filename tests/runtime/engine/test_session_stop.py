"""A pass is stopped, from another thread or by Ctrl-C, and told of while it runs."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.alone import decode_alone, logits_alone

from triplepoint.errors import EngineError, PassCancelledError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session

MakeModel = Callable[[str], Path]
PROMPT = np.random.default_rng(2).integers(0, tiny.VOCAB, 40).tolist()
LONG = np.random.default_rng(3).integers(0, tiny.VOCAB, tiny.CONTEXT).tolist()


@pytest.fixture(scope="module")
def slow(tiny_model: MakeModel) -> Iterator[Engine]:
    """An engine whose prefill of LONG takes a second or so: there is time to stop it."""
    with Engine.load(tiny_model("f32"), threads=2, target="generic", kv="f32") as engine:
        yield engine


def _prefill_for_ever(session: Session, ids: list[int], keep: int = 0) -> None:
    """Compute the same again and again, until another thread ends it; but not really for ever."""
    started = time.monotonic()
    while time.monotonic() - started < 30:
        session.truncate(keep)
        session.prefill(ids)


def test_stop_ends_a_prefill(slow: Engine) -> None:
    """stop() from another thread ends a long prefill soon; what was computed stays."""
    session = slow.session()
    times: list[float] = []

    def stop() -> None:
        times.append(time.perf_counter())
        session.stop()

    timer = threading.Timer(0.05, stop)
    timer.start()
    with pytest.raises(PassCancelledError):
        _prefill_for_ever(session, LONG)
    took = time.perf_counter() - times[0]
    timer.join()

    assert took < 2.0  # the promise is 0.2 s; a busy machine may be late
    assert session.n_cached < len(session.tokens)
    session.truncate(len(PROMPT))
    session.prefill([1, 2])
    assert np.array_equal(session.logits.copy(), logits_alone(slow, [*LONG[: len(PROMPT)], 1, 2]))


def test_a_stopped_prefill_is_finished_by_the_next(slow: Engine) -> None:
    """The tokens stay in the session: the next call computes those that are missing."""
    session = slow.session()
    calls: list[int] = []

    def stop_once(done: int, total: int, rate: float) -> None:
        calls.append(done)
        if len(calls) == 1:
            session.stop()

    session.phases.on_progress = stop_once
    with pytest.raises(PassCancelledError):
        session.prefill(LONG[:1200])
    assert session.tokens == LONG[:1200]
    assert 0 < session.n_cached < 1200
    session.prefill([])

    assert session.n_cached == 1200
    assert np.array_equal(session.logits.copy(), logits_alone(slow, LONG[:1200]))


def test_stop_ends_a_decode(engine: Engine, session: Session) -> None:
    """stop() between two tokens ends the decode; what was sampled is kept and can go on."""
    session.prefill(PROMPT)
    ids: list[int] = []

    def stop_after_four(token: int) -> None:
        ids.append(token)
        if len(ids) == 4:
            session.stop()

    with pytest.raises(PassCancelledError):
        list(map(stop_after_four, session.decode(max_tokens=100)))

    assert session.tokens == PROMPT + ids
    assert len(ids) == 4
    assert ids + list(session.decode(max_tokens=4)) == decode_alone(engine, PROMPT, 8)


def test_a_cancelled_pass_leaves_no_logits(slow: Engine) -> None:
    """Logits that a stopped pass may have begun to overwrite are not taken for those before it."""
    session = slow.session()
    session.prefill(PROMPT)
    want = list(session.decode(max_tokens=1))
    session.truncate(len(PROMPT))

    timer = threading.Timer(0.02, session.stop)
    timer.start()
    with pytest.raises(PassCancelledError):
        _prefill_for_ever(session, LONG[:2000], keep=len(PROMPT))
    timer.join()
    session.truncate(len(PROMPT))
    with pytest.raises(EngineError, match="not been computed"):
        _ = session.logits
    assert list(session.decode(max_tokens=1)) == want


# The interrupt may come between `open` and its `with`: the file is closed then, but not by that.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_keyboard_interrupt(slow: Engine) -> None:
    """Ctrl-C during a pass comes out as KeyboardInterrupt, soon, and leaves the session usable."""
    session = slow.session()
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _prefill_for_ever(session, LONG)
    timer.join()
    session.truncate(0)
    session.prefill(PROMPT)

    assert np.array_equal(session.logits.copy(), logits_alone(slow, PROMPT))


def test_a_stop_that_comes_too_early_is_forgotten(engine: Engine, session: Session) -> None:
    """stop() while nothing runs does not end what is started later."""
    session.stop()
    session.prefill(PROMPT)
    session.stop()
    assert session.logits_for([1, 2]).shape == (2, tiny.VOCAB)
    session.truncate(len(PROMPT))
    session.stop()
    assert list(session.decode(max_tokens=3)) == decode_alone(engine, PROMPT, 3)


def test_progress(engine: Engine) -> None:
    """Between the chunks of a long prefill the caller hears how far it is and how fast."""
    session = engine.session()
    heard: list[tuple[int, int, float]] = []
    session.phases.on_progress = lambda done, total, rate: heard.append((done, total, rate))
    chunk = engine.loaded.tuning.chunk
    total = 2 * chunk + 10
    session.prefill(LONG[:total])

    assert len(heard) == 2
    assert all(n == total for _, n, _ in heard)
    first, second = (done for done, *_ in heard)
    assert 0 < second - first <= first <= chunk, "passes alike"
    assert all(rate > 0 for *_, rate in heard)
    heard.clear()
    session.prefill([1])
    assert not heard
