"""Beginnings of texts in common: found to the token, never mixed up, let go of by age."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from helpers.alone import logits_alone

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.kv.prefix_cache import KEPT_SHARE
from triplepoint.runtime.engine.session import Session

IDS = np.random.default_rng(8).integers(0, 2000, 3 * PAGE).tolist()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Engine]:
    with Engine.load("nano", threads=1, context=2048) as engine:
        yield engine


@pytest.fixture
def engine(loaded: Engine) -> Iterator[Engine]:
    """With nothing in its prefix cache."""
    yield loaded
    loaded.core.prefix_cache.clear()


def _sharing(engine: Engine) -> Session:
    session = engine.session()
    session.sequence.shares = True
    return session


@pytest.mark.parametrize("common", [1, 100, PAGE, PAGE + 1, 2 * PAGE + 77])
def test_found_to_the_token(engine: Engine, common: int) -> None:
    """As much as two texts have in common is taken over, and gives the bits of computing it."""
    first = _sharing(engine)
    first.prefill(IDS)
    text = [*IDS[:common], *(token ^ 1 for token in IDS[common:])]
    second = _sharing(engine)
    phase = second.prefill(text)

    assert phase.shared_tokens == common
    assert phase.tokens == len(text)
    assert np.array_equal(second.logits, logits_alone(engine, text))
    first.truncate(0)
    first.prefill(IDS[:700])
    assert np.array_equal(first.logits, logits_alone(engine, IDS[:700]))


def test_the_same_text_computes_its_last_token(engine: Engine) -> None:
    """Logits come with a token: the last one is computed, whatever is known."""
    _sharing(engine).prefill(IDS[:400])
    session = _sharing(engine)
    phase = session.prefill(IDS[:400])
    assert phase.shared_tokens == 399
    assert phase.cached_tokens == 399
    assert np.array_equal(session.logits, logits_alone(engine, IDS[:400]))


def test_only_those_that_share(engine: Engine) -> None:
    """A session that does not share neither gives nor takes."""
    _sharing(engine).prefill(IDS[:300])
    plain = engine.session()
    assert plain.prefill(IDS[:300]).shared_tokens == 0
    engine.core.prefix_cache.clear()
    plain.truncate(0)
    plain.prefill(IDS[:300])
    assert _sharing(engine).prefill(IDS[:300]).shared_tokens == 0


def test_a_finished_session_is_found(engine: Engine) -> None:
    """Also what was decoded: a text goes on where another session has ended."""
    session = _sharing(engine)
    session.prefill(IDS[:250])
    said = list(session.decode(max_tokens=30))
    text = list(session.tokens)
    del session
    other = _sharing(engine)

    assert other.prefill([*text, 5]).shared_tokens == 250 + len(said) - 1
    assert np.array_equal(other.logits, logits_alone(engine, [*text, 5]))


def test_the_owner_goes_on_without_a_copy(engine: Engine) -> None:
    """Who made a page fills it up, though others have its beginning; they copy it to go on."""
    first, second = _sharing(engine), _sharing(engine)
    first.prefill(IDS[:100])
    second.prefill(IDS[:101])
    pages = first.sequence.cache.pages[:1].tolist()
    first.prefill(IDS[100:120])
    assert first.sequence.cache.pages[:1].tolist() == pages
    assert second.sequence.cache.pages[:1].tolist() != pages
    for session in (first, second):
        assert np.array_equal(session.logits, logits_alone(engine, list(session.tokens)))


@pytest.mark.slow
def test_memory_is_let_go_by_age(engine: Engine) -> None:
    """The leaf that was not used for longest goes first; what sessions have stays."""
    texts = [[n, *IDS[: PAGE + 50]] for n in range(4)]
    kept = _sharing(engine)
    kept.prefill(texts[0])
    for text in texts[1:]:
        _sharing(engine).prefill(text)
    _sharing(engine).prefill([*texts[1], 7])  # used again
    gc.collect()  # the sessions that are gone hold nothing
    cache = engine.core.prefix_cache
    before, page = cache.nbytes, kept.sequence.cache.page_bytes
    assert cache.evict(1) >= page
    assert cache.nbytes < before
    assert cache.find(texts[2])[1] == PAGE, "the oldest leaf is gone, its beginning is not"
    assert cache.find(texts[1])[1] == len(texts[1])
    cache.evict(1 << 40)
    assert cache.find(texts[1])[1] == 0
    assert cache.find(texts[0])[1] == len(texts[0])
    kept.prefill([9])
    assert np.array_equal(kept.logits, logits_alone(engine, list(kept.tokens)))


@pytest.mark.slow
@pytest.mark.parametrize("namespace", ["", "mine"])
def test_a_page_that_two_nodes_hold_is_let_go_of(engine: Engine, namespace: str) -> None:
    """One is where its writer is gone and who fills it up has company, or a namespace."""
    gc.collect()  # sessions of other tests hold nothing
    cache, memory = engine.core.prefix_cache, engine.loaded.layout.memory
    before = memory.used
    first, second, third = (_sharing(engine) for _ in range(3))
    first.prefill(IDS[:100])
    first.close()
    second.sequence.namespace = third.sequence.namespace = namespace
    second.prefill(IDS[:101])
    page = second.sequence.cache.held[0]
    third.prefill([*IDS[:110], 7])
    second.sequence.shares = False  # as in a decode, which takes nothing over
    second.prefill(IDS[101:150])
    second.sequence.shares = True
    second.sequence.keep_prefix()

    assert second.sequence.cache.held[0] is page
    assert page.refcount >= 3, "two nodes and a session"
    assert cache.nbytes == memory.used - before, "a page counts once"
    for session in (second, third):
        session.close()
    del first, second, third, page
    gc.collect()
    held = memory.used - before
    assert cache.evict(1 << 40) == held > 0
    assert memory.used == before


@pytest.mark.slow
def test_random_texts(engine: Engine) -> None:
    """Many texts with beginnings in common, forks and steps back: always the bits of one alone."""
    chance = random.Random(3)
    stems = [IDS[:500], IDS[:260], [*IDS[:255], 1, 2, 3], IDS[40:90]]
    sessions: list[Session] = []
    for _ in range(40):
        move = chance.random()
        if move < 0.5 or not sessions:
            session = _sharing(engine)
            stem = chance.choice(stems)
            session.prefill(
                [*stem[: chance.randrange(1, len(stem))], *IDS[: chance.randrange(30)], 4]
            )
            sessions.append(session)
        elif move < 0.7:
            session = chance.choice(sessions)
            session.truncate(chance.randrange(len(session.tokens)))
            session.prefill(IDS[600 : 601 + chance.randrange(40)])
        elif move < 0.85:
            session = chance.choice(sessions).fork()
            session.prefill([chance.randrange(2000)])
            sessions.append(session)
        else:
            sessions.pop(chance.randrange(len(sessions)))
            engine.core.prefix_cache.evict(chance.choice((1, 1 << 22)))
            continue
        assert np.array_equal(session.logits, logits_alone(engine, list(session.tokens)))


def test_drafts_are_not_kept(engine: Engine) -> None:
    """A text that ends with its page has drafts on the next one: that is nobody's beginning yet."""
    first = _sharing(engine)
    first.prefill(IDS[:PAGE])
    first.sequence.cache.make_writable(PAGE, PAGE + 4)
    engine.core.prefix_cache.add(first.sequence.cache, first.tokens, PAGE + 4)
    engine.core.prefix_cache.add(first.sequence.cache, first.tokens, PAGE + 4)
    second = _sharing(engine)

    assert second.prefill(IDS).shared_tokens == PAGE
    assert np.array_equal(second.logits, logits_alone(engine, IDS))


@pytest.mark.slow
def test_what_is_kept_until_a_time(engine: Engine) -> None:
    """It outlives what was used later, until its time is over; and goes last where it has to."""
    cache = engine.core.prefix_cache
    first, second, third = ([n, *IDS[: PAGE + 50]] for n in range(3))
    for text in (first, second, third):
        _sharing(engine).prefill(text)
    gc.collect()
    cache.keep(first, time.monotonic() + 3600)
    cache.keep(second, time.monotonic() - 1)
    cache.evict(1 << 40)
    assert [cache.find(text)[1] for text in (first, second, third)] == [len(first), 0, 0]
    _sharing(engine).prefill(third)
    gc.collect()
    cache.evict(1, kept=True)
    assert cache.find(first)[1] == len(first)
    cache.evict(1 << 40, kept=True)
    assert cache.nbytes == 0


@pytest.mark.slow
def test_what_is_kept_is_bounded(engine: Engine) -> None:
    """It takes its share of the memory at most: what would go first anyway is given up."""
    cache, memory = engine.core.prefix_cache, engine.loaded.layout.memory
    texts = [[n, *IDS[: 2 * PAGE - 1]] for n in range(3)]
    for text in texts:
        _sharing(engine).prefill(text)
    gc.collect()
    page, budget = cache.nbytes // 6, memory.budget
    try:
        memory.budget = int(3 * page / KEPT_SHARE)
        for n, text in enumerate(texts):
            cache.keep(text, time.monotonic() + 1000 + n)
        cache.evict(1 << 40)
    finally:
        memory.budget = budget
    assert [cache.find(text)[1] for text in texts] == [0, PAGE, 2 * PAGE]


@pytest.mark.slow
@pytest.mark.parametrize("common", [100, PAGE, 2 * PAGE + 77])
def test_namespaces(engine: Engine, common: int) -> None:
    """A session finds what its own namespace and those without one have, and no more."""
    text = [*IDS[:common], *(token ^ 1 for token in IDS[common:])]

    def found(namespace: str, ids: list[int]) -> int:
        session = _sharing(engine)
        session.sequence.namespace = namespace
        shared = session.prefill(ids).shared_tokens
        assert np.array_equal(session.logits, logits_alone(engine, ids))
        return shared

    assert found("", IDS[:common]) == 0
    assert found("a", IDS) == min(common, len(IDS) - 1)
    assert found("b", IDS) == min(common, len(IDS) - 1)
    assert found("b", [*IDS, 3]) == len(IDS)
    assert found("", IDS) == common
    assert found("c", text) == common
    assert found("c", text) == len(text) - 1
    assert found("a", text) == common


def test_forks_stay_in_their_namespace(engine: Engine) -> None:
    """What a fork computes is its namespace's."""
    session = _sharing(engine)
    session.sequence.namespace = "a"
    session.prefill(IDS[:300])
    session.fork().prefill(IDS[300:400])
    other = _sharing(engine)
    assert other.prefill(IDS[:400]).shared_tokens == 0
    other = _sharing(engine)
    other.sequence.namespace = "a"
    assert other.prefill([*IDS[:400], 1]).shared_tokens == 400


def test_what_letting_go_would_free(engine: Engine) -> None:
    """A page that the tree needs for what follows it is not free when its last session goes."""
    cache = engine.core.prefix_cache
    first, second = _sharing(engine), _sharing(engine)
    first.prefill(IDS[: 2 * PAGE + 9])
    second.prefill(IDS[: PAGE + 9])
    held = Counter(second.sequence.cache.held)
    assert cache.freed_by(held) < sum(page.nbytes for page in held)
    both = Counter([*first.sequence.cache.held, *second.sequence.cache.held])
    assert cache.freed_by(both) == sum(page.nbytes for page in both)

    own = first.sequence.cache.held[-1]
    cache.forget(second.sequence.cache.held[0])  # two sessions have it: it stays
    assert cache.find(IDS)[1] == 2 * PAGE + 9
    cache.forget(own)
    assert cache.find(IDS)[1] == 2 * PAGE
    assert own.refcount == 1
