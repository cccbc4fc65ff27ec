"""A session is closed beside its own phase: no page goes while a pass may write on it."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.alone import decode_alone

from triplepoint.errors import PassCancelledError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session

MakeModel = Callable[[str], Path]
PROMPT = np.random.default_rng(2).integers(0, tiny.VOCAB, 40).tolist()
LONG = np.random.default_rng(3).integers(0, tiny.VOCAB, tiny.CONTEXT - 8).tolist()


def _for_ever(session: Session, errors: list[BaseException]) -> None:
    """Read and write until somebody closes the session."""
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            session.truncate(0)
            session.prefill(PROMPT)
            for _ in session.decode(max_tokens=8):
                pass
    except BaseException as error:
        errors.append(error)


class Held:
    """Holds up passes in their midst."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        real = engine.core.runner._run_tape

        def run(tape: Any, times: Any) -> None:
            self.inside.set()
            assert self.go.wait(30)
            real(tape, times)

        monkeypatch.setattr(engine.core.runner, "_run_tape", run)


class ClosesFirst:
    """The scheduler's mutex, before which somebody else closes the session."""

    def __init__(self, session: Session) -> None:
        self.session, self.mutex = session, session.phases.core.scheduler.mutex

    def __enter__(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()
        self.mutex.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.mutex.__exit__(*error)


def test_nothing_is_taken_over_after_a_close(
    tiny_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is closed while it asks what others know stays empty."""
    with Engine.load(tiny_model("q8_0"), threads=2) as engine:
        first, second = engine.session(), engine.session()
        first.sequence.shares = second.sequence.shares = True
        first.prefill(LONG)
        second.sequence.append(LONG)
        monkeypatch.setattr(engine.core.prefix_cache, "lock", ClosesFirst(second))

        second.sequence.adopt_prefix(len(LONG))

        assert (second.tokens, second.n_cached, list(second.sequence.cache.held)) == ([], 0, [])
        second.prefill(LONG[:60])
        assert list(second.decode(max_tokens=6)) == decode_alone(engine, LONG[:60], 6)


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "in company"])
def test_pages_stay_until_the_pass_has_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """The pass goes on with its pages; then they are let go of, and its phase ends."""
    wanted = decode_alone(engine, LONG[:60], 6)
    memory = engine.loaded.layout.memory
    assert memory.used == 0
    session, other = engine.session(), engine.session()
    errors: list[BaseException] = []
    found: list[int] = []

    def beside() -> None:
        other.prefill(LONG[:60])
        found.extend(other.decode(max_tokens=6))

    threads = [threading.Thread(target=_for_ever, args=(session, errors))]
    threads += [threading.Thread(target=beside)] * shared
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while time.monotonic() < until and not session.n_cached:
        time.sleep(0.001)
    held = Held(engine, monkeypatch)
    while True:  # a pass with its rows
        assert held.inside.wait(20)
        if session.sequence.computing:
            break
        held.inside.clear()
        held.go.set()
        time.sleep(0.001)
        held.go.clear()
    pages = list(session.sequence.cache.held)

    session.close()

    assert pages
    assert [*session.sequence.cache.held][: len(pages)] == pages
    assert all(page.refcount for page in pages)
    held.go.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(errors[0], PassCancelledError)
    assert (session.tokens, session.n_cached, [*session.sequence.cache.held]) == ([], 0, [])
    assert found == (wanted if shared else [])
    other.close()
    assert memory.used == 0


def test_it_stays_usable(engine: Engine) -> None:
    """What is closed can be used again, also where its phase was ended by that."""
    wanted = decode_alone(engine, PROMPT, 6)
    session = engine.session()
    session.prefill(PROMPT)
    tokens = session.decode(max_tokens=6)
    next(tokens)
    session.close()
    with pytest.raises(PassCancelledError, match="closed"):
        list(tokens)

    session.prefill(PROMPT)
    assert list(session.decode(max_tokens=6)) == wanted
    session.close()
    session.close()
    assert engine.loaded.layout.memory.used == 0


def test_closed_before_the_first_token(engine: Engine) -> None:
    """A decode that was asked for before the close ends by its name, and leaves no token."""
    session = engine.session()
    session.prefill(PROMPT)
    tokens = session.decode(max_tokens=6)
    session.close()
    with pytest.raises(PassCancelledError, match="closed"):
        next(tokens)
    assert session.tokens == []


def test_closed_at_any_moment(engine: Engine) -> None:
    """Whoever goes on gets what it gets alone; nothing else is raised, and no page stays."""
    chance = random.Random(7)
    wanted = decode_alone(engine, LONG[:50], 40)
    errors: list[BaseException] = []
    stays = engine.session()
    found: list[list[int]] = []
    closed: list[Session] = []
    ended = threading.Event()

    def goes_on() -> None:
        while not ended.is_set():
            stays.truncate(0)
            stays.prefill(LONG[:50])
            found.append(list(stays.decode(max_tokens=40)))

    staying = threading.Thread(target=goes_on)
    staying.start()
    for _ in range(40):
        session = engine.session()
        thread = threading.Thread(target=_for_ever, args=(session, errors))
        thread.start()
        time.sleep(0.02 * chance.random())
        while thread.is_alive():  # one before the first phase ends nothing
            session.close()
            thread.join(0.01)
        closed.append(session)
    ended.set()
    staying.join(30)

    assert len(errors) == 40
    cancelled = [error for error in errors if isinstance(error, PassCancelledError)]
    assert cancelled
    # Between its two phases there is no pass to cancel: then the decode finds that all is gone.
    between = [error for error in errors if error not in cancelled]
    assert all(str(error).startswith("nothing to decode from") for error in between)
    assert all(session.tokens == [] for session in closed)
    assert found
    assert all(one == wanted for one in found)
    stays.close()
    assert engine.loaded.layout.memory.used == 0


def test_its_logits_are_nobodys(engine: Engine) -> None:
    """The next pass copies no logits of a session that is closed."""
    session, other = engine.session(), engine.session()
    session.prefill(PROMPT)
    logits = session.sequence.last_logits
    session.close()
    other.prefill(PROMPT[::-1])

    assert logits.first >= 0
    assert logits.released


def test_a_decode_waits_for_no_garbage_collector(engine: Engine) -> None:
    """What constrains it goes as soon as it has ended: a matcher takes much, in few objects."""

    class Free:
        def mask(self) -> None:
            pass

        def advance(self, token: int) -> None:
            pass

    session, constraint = engine.session(), Free()
    session.prefill(PROMPT)
    gone = weakref.ref(constraint)
    gc.disable()
    try:
        assert len(list(session.decode(max_tokens=4, constraint=constraint))) == 4
        del constraint
        assert gone() is None
    finally:
        gc.enable()
