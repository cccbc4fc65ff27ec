"""Forks of a session: shared pages, copies on writing, and the same bits as without."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.alone import read_alone

from triplepoint.errors import EngineError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session

IDS = np.random.default_rng(5).integers(0, tiny.VOCAB, 700).tolist()
LEFT, RIGHT = IDS[600:640], IDS[640:700]


@pytest.fixture(scope="module", params=["bf16", "k16v8", "q8", "f32"])
def engine(request: pytest.FixtureRequest, tiny_model: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine.load(tiny_model("q8_0"), threads=2, kv=request.param) as engine:
        yield engine


def _same_as_alone(engine: Engine, session: Session) -> None:
    """Its next logits and tokens are those of a session that reads all of it anew."""
    alone = read_alone(engine, list(session.tokens))
    expected = alone.logits.copy()
    said = list(alone.decode(max_tokens=4))
    session.prefill([])
    assert np.array_equal(session.logits, expected)
    assert list(session.decode(max_tokens=4)) == said


@pytest.mark.parametrize("at", [600, 512, 300, 256, 1])
def test_both_sides_are_as_if_alone(engine: Engine, at: int) -> None:
    """Whatever either side appends, both give the bits of a session that read everything."""
    session = read_alone(engine, IDS[:600])
    other = session.fork(at)
    assert other.tokens == IDS[:at]
    assert other.n_cached == at

    other.prefill(RIGHT)
    session.prefill(LEFT)
    _same_as_alone(engine, other)
    _same_as_alone(engine, session)
    assert session.tokens[:640] == IDS[:640]
    assert other.tokens[: at + 60] == IDS[:at] + RIGHT


def test_whole_pages_are_shared(engine: Engine) -> None:
    """A fork brings no page; the first write brings one, where it goes on within a page."""
    session = read_alone(engine, IDS[:600])
    other = session.fork()
    assert other.sequence.cache.pages.tolist() == session.sequence.cache.pages.tolist()
    assert other.sequence.cache.shared_nbytes == session.sequence.cache.nbytes

    assert other.prefill(RIGHT).tokens == 60
    shared = other.sequence.cache.pages[:3] == session.sequence.cache.pages[:3]
    assert shared.tolist() == [True, True, False]
    before = session.sequence.cache.pages.tolist()
    assert session.prefill(LEFT).tokens == 40  # now alone on the third page: no copy
    assert session.sequence.cache.pages.tolist() == before


def test_truncate_and_write_on_either_side(engine: Engine) -> None:
    """A side that goes back and writes over what was shared changes nothing for the other."""
    session = read_alone(engine, IDS[:600])
    first, second = session.fork(), session.fork()
    session.truncate(100)
    session.prefill(RIGHT)
    first.truncate(300)
    list(first.decode(max_tokens=5))

    for one in (session, first, second):
        _same_as_alone(engine, one)
    assert second.tokens[:600] == IDS[:600]


def test_a_fork_within_a_decode(engine: Engine) -> None:
    """The last sampled token, not yet computed, goes along; the decode goes on undisturbed."""
    session = read_alone(engine, IDS[:250])
    expected = list(read_alone(engine, IDS[:250]).decode(max_tokens=12))
    decoding = session.decode(max_tokens=12)
    said = [next(decoding) for _ in range(5)]
    other = session.fork()
    theirs = list(other.decode(max_tokens=7))

    assert said + list(decoding) == expected
    assert said + theirs == expected


def test_pages_are_let_go(engine: Engine) -> None:
    """A fork that is gone shares no more: nothing is copied for it."""
    session = read_alone(engine, IDS[:300])
    other = session.fork()
    forks = [other.fork(), session.fork(200)]
    assert session.sequence.cache.shared_nbytes == session.sequence.cache.nbytes
    del other, forks
    gc.collect()
    assert session.sequence.cache.shared_nbytes == 0


def test_going_back_lets_go_too(engine: Engine) -> None:
    """Pages behind the place that one went back to belong to the other alone."""
    session = read_alone(engine, IDS[:600])
    other = session.fork()
    other.truncate(10)
    assert other.sequence.cache.nbytes == session.sequence.cache.nbytes // 3
    assert session.sequence.cache.shared_nbytes == session.sequence.cache.nbytes // 3


def test_forks_in_threads(engine: Engine) -> None:
    """Forks that go on in threads of their own, together with their origin, do not meet."""
    session = read_alone(engine, IDS[:300])
    expected = list(read_alone(engine, IDS[:300]).decode(max_tokens=6))
    said: list[list[int]] = []
    sessions = [session, *(session.fork() for _ in range(3))]
    threads = [
        threading.Thread(target=lambda one=one: said.append(list(one.decode(max_tokens=6))))
        for one in sessions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert said == [expected] * 4


@pytest.mark.parametrize("n", [-1, 601])
def test_fork_out_of_range(engine: Engine, n: int) -> None:
    """A place that the session does not have is refused."""
    session = read_alone(engine, IDS[:600])
    with pytest.raises(EngineError, match=f"cannot fork at token {n} of 600"):
        session.fork(n)


def test_forks_of_nothing(engine: Engine) -> None:
    """A fork of an empty session is an empty one."""
    other = engine.session().fork()
    other.prefill(IDS[:20])
    _same_as_alone(engine, other)
