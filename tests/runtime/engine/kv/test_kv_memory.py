"""A budget for all KV caches: who does not fit waits or is computed again, nobody fails for it."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.alone import decode_alone, read_alone

from triplepoint.errors import ContextOverflowError, SettingError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime import checked_files
from triplepoint.runtime.engine import session_files
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.pending import PendingRequest
from triplepoint.runtime.engine.passes.request import Request, StepResult
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.forward.kv import Page
from triplepoint.runtime.memory import HUGE_PAGE

CHANCE = np.random.default_rng(4)
PAGES = 6  # that the budget has room for
PROMPTS = [CHANCE.integers(0, 2000, 3 * PAGE - 40 - 20 * n).tolist() for n in range(5)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """nano with memory for six pages: two of the sessions here."""
    with Engine.load("nano", threads=2, context=2048, kv_memory=PAGES * HUGE_PAGE) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _empty(engine: Engine) -> None:
    engine.core.prefix_cache.clear()
    gc.collect()
    assert engine.loaded.layout.memory.used == 0


@pytest.mark.slow
def test_a_first_token_waits_for_no_page_yet_to_come() -> None:
    """A short prompt touches nothing ahead; its decode does, and finds the page when it is due."""
    with Engine.load("nano", threads=2, context=1024) as engine:
        memory, session = engine.loaded.layout.memory, engine.session()
        session.phases.drafting.settings = SpeculativeConfig(jump_forward=False, draft_tokens=0)
        session.prefill(PROMPTS[0][:36])
        assert not memory._spares
        steps = session.decode(max_tokens=PAGE, stop=())
        for _ in range(100):
            next(steps)
        (spare,) = memory._spares
        assert 0 < spare.touched < engine.loaded.layout.page_bytes
        for _ in range(112):
            next(steps)
        assert spare.touched == engine.loaded.layout.page_bytes
        for _ in range(10):
            next(steps)
        assert len(session.sequence.cache.held) == 2
        assert spare not in memory._spares


@pytest.mark.parametrize("alone", [True, False])
def test_nobody_takes_what_a_pass_is_promised(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """From its choice on, until its pages are there: another one may read some from disk."""
    memory, run = engine.loaded.layout.memory, engine.core.scheduler.run
    lacking: list[int] = []

    def looked(*given: Any, **more: Any) -> list[StepResult]:
        lacking.append(memory.lacks(PAGES * HUGE_PAGE))
        return run(*given, **more)

    monkeypatch.setattr(engine.core.scheduler, "run", looked)
    if not alone:
        monkeypatch.setattr(engine.core.scheduler, "_run_alone", lambda _: None)
    session = engine.session()
    session.prefill(PROMPTS[0][: PAGE - 10])

    assert lacking[0] == HUGE_PAGE
    assert (memory.used, memory.promised) == (HUGE_PAGE, 0)


def test_who_writes_behind_a_common_prompt_in_one_pass(engine: Engine) -> None:
    """One of them fills the page up that nobody else does; the copies of the others count."""
    prompt, cache = PROMPTS[0][: PAGE + 100], engine.core.prefix_cache
    first = engine.session()
    first.sequence.shares = True
    first.prefill(prompt)
    first.sequence.keep_prefix()
    first.close()
    waiting: list[tuple[PendingRequest, int]] = []
    promised = 0
    sessions = [engine.session() for _ in range(7)]
    for n, session in enumerate(sessions):
        session.sequence.shares = True
        session.sequence.append([*prompt, n])
        session.sequence.adopt_prefix(len(session.tokens))
        pending = PendingRequest(Request(session.sequence, session.n_cached, [n]))
        needed = engine.core.scheduler._needed(pending, 1, promised, waiting)
        if needed is not None:
            waiting.append((pending, 1))
            promised += needed
    memory, before = engine.loaded.layout.memory, engine.loaded.layout.memory.used
    for pending, _ in waiting:
        sequence = pending.request.sequence
        sequence.cache.make_writable(sequence.n_cached, sequence.n_cached + 1)

    assert promised == memory.used - before == 4 * HUGE_PAGE
    assert memory.used == memory.budget
    assert len(waiting) == 5, "the others have no room"
    for session in sessions:
        session.close()
    cache.clear()


@pytest.mark.slow
def test_pages_are_counted(engine: Engine) -> None:
    """Each page once, however many have it, until the last one lets go."""
    memory = engine.loaded.layout.memory
    session = engine.session()
    session.prefill(PROMPTS[0])
    assert memory.used == sum(page.nbytes for page in session.sequence.cache.held) > 0
    other, used = session.fork(), memory.used
    assert memory.used == used
    del session
    gc.collect()
    assert memory.used == used
    del other
    gc.collect()
    assert memory.used == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(GREEDY, id="greedy"),
        pytest.param(Sampling(1.5, mirostat=2, mirostat_tau=3.0), id="mirostat"),
        pytest.param(Sampling(0.9, dry_multiplier=0.5), id="dry"),
    ],
)
def test_more_than_fit_at_once(engine: Engine, sampling: Sampling) -> None:
    """Five sessions where two fit: all write what they write alone, and memory keeps its bound."""
    want = [decode_alone(engine, prompt, 60, sampling=sampling) for prompt in PROMPTS]
    gc.collect()
    before, most = engine.core.scheduler.pages.preempted, 0
    ready, make = threading.Barrier(len(PROMPTS)), Page.__init__

    def watched(page: Page, *args: Any) -> None:
        nonlocal most
        make(page, *args)
        most = max(most, engine.loaded.layout.memory.used)

    def work(prompt: list[int]) -> list[int]:
        session = read_alone(engine, prompt)
        ready.wait()  # until all have asked for pages
        return list(session.decode(max_tokens=60, sampling=sampling))

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(PROMPTS)) as threads:
        patch.setattr(Page, "__init__", watched)
        got = list(threads.map(work, PROMPTS))
    assert got == want
    assert engine.core.scheduler.pages.preempted > before
    assert most <= PAGES * HUGE_PAGE


@pytest.mark.slow
def test_who_is_preempted_is_not_in_the_same_pass(engine: Engine) -> None:
    """Nor does it count as admitted again: it has no pages."""
    first, second = engine.session(), engine.session()
    first.prefill(PROMPTS[0][:PAGE])
    second.prefill(CHANCE.integers(0, 2000, 5 * PAGE - 40).tolist())
    scheduler = engine.core.scheduler
    waiting = [
        PendingRequest(Request(first.sequence, PAGE, [5], 1)),
        PendingRequest(Request(second.sequence, second.n_cached, list(range(100)), 1)),
    ]
    with scheduler.mutex:
        scheduler._waiting += waiting
        try:
            picked, changed, _ = scheduler._pick()
        finally:
            scheduler._waiting.clear()

    assert picked == [(waiting[0], 1)]
    assert changed == [waiting[1]]
    assert (second.n_cached, second.sequence.admitted) == (0, 0.0)
    assert first.sequence.admitted > 0


@pytest.mark.slow
def test_nobody_is_preempted_in_vain(engine: Engine) -> None:
    """Pages are taken back where they are enough; else they stay until others come to rest."""
    scheduler, size = engine.core.scheduler, PAGES * PAGE
    first, last, busy = (engine.session() for _ in range(3))
    texts = CHANCE.integers(0, 2000, size).tolist()
    for session, start, end in ((first, 0, PAGE), (last, PAGE, 2 * PAGE), (busy, 2 * PAGE, size)):
        session.prefill(texts[start:end])
    pending = PendingRequest(Request(first.sequence, PAGE, texts[: 2 * PAGE], 1))
    phases = scheduler.phase(first.sequence), scheduler.phase(busy.sequence)
    with phases[0], phases[1], scheduler.mutex:
        scheduler._waiting += [pending, PendingRequest(Request(last.sequence, PAGE, [5], 1))]
        try:
            assert scheduler._needed(pending, 2 * PAGE, 0, []) is None
            assert last.n_cached == PAGE
            assert scheduler._needed(pending, PAGE, 0, []) == HUGE_PAGE
            assert last.n_cached == 0
        finally:
            scheduler._waiting.clear()
            scheduler._preempted.clear()


@pytest.mark.slow
def test_who_rests_goes_first(engine: Engine) -> None:
    """A session that nobody asks loses its pages before a busy one, and goes on all the same."""
    resting = engine.session()
    resting.prefill(PROMPTS[0])
    want = decode_alone(engine, PROMPTS[1], 10)
    sessions = []
    for prompt in PROMPTS[1:3]:
        session = engine.session()
        session.prefill(prompt)
        sessions.append(session)
    assert resting.n_cached == 0
    assert list(sessions[0].decode(max_tokens=10)) == want
    alone = engine.session()
    alone.prefill([*PROMPTS[0], 5])
    expected = alone.logits.copy()
    del alone
    phase = resting.prefill([5])
    assert np.array_equal(resting.logits, expected)
    assert phase.recomputed_tokens == len(PROMPTS[0])


@pytest.mark.slow
def test_what_nobody_has_goes_before_sessions(engine: Engine) -> None:
    """Pages of the prefix cache are let go of before anybody's are taken back."""
    before = engine.core.scheduler.pages.preempted
    for prompt in PROMPTS[:2]:
        session = engine.session()
        session.sequence.shares = True
        session.prefill(prompt)
        del session
    gc.collect()
    held = engine.core.prefix_cache.nbytes
    busy = engine.session()
    busy.prefill(PROMPTS[2])
    assert engine.core.prefix_cache.nbytes < held
    assert engine.core.scheduler.pages.preempted == before
    assert busy.n_cached == len(PROMPTS[2])


@pytest.mark.slow
def test_one_that_never_fits_is_refused(engine: Engine) -> None:
    """A sequence for which all of the memory is too little: an error with figures, nothing lost."""
    session: Session = engine.session()
    session.prefill(PROMPTS[0])
    with pytest.raises(ContextOverflowError, match=r"need [\d,]+ bytes of KV.*kv_memory") as raised:
        session.prefill(CHANCE.integers(0, 2000, 1200).tolist())
    wanted, fits = raised.value.memory or (0, 0)
    assert fits == PAGES * PAGE < wanted <= len(session.tokens)
    session.truncate(len(PROMPTS[0]))
    assert list(session.decode(max_tokens=20)) == decode_alone(engine, PROMPTS[0], 20)


@pytest.mark.slow
def test_saved_and_loaded_under_pressure(engine: Engine, tmp_path: Path) -> None:
    """A kept session is loaded where memory is short, and goes on with the same text."""
    session = engine.session()
    session.prefill(PROMPTS[0])
    session.save(tmp_path)
    want = list(session.decode(max_tokens=10))
    others = [engine.session() for _ in range(2)]
    for other, prompt in zip(others, PROMPTS[1:], strict=False):
        other.prefill(prompt)
    again = engine.load_session(tmp_path)
    assert list(again.decode(max_tokens=10)) == want


@pytest.mark.parametrize("fits", [True, False])
def test_a_session_from_disk_keeps_to_the_budget(
    engine: Engine, tmp_path: Path, fits: bool
) -> None:
    """Room is made for it as for a pass; what has none is computed when it goes on."""
    session = engine.session()
    session.prefill(PROMPTS[0])
    session.save(tmp_path)
    session.close()
    want = decode_alone(engine, PROMPTS[0], 10)
    gc.collect()
    others = [engine.session() for _ in range(2)]
    for other, prompt in zip(others, PROMPTS[1:], strict=False):
        other.prefill(prompt)
    memory = engine.loaded.layout.memory
    memory.budget, before = (PAGES if fits else 1) * HUGE_PAGE, memory.budget
    try:
        again = engine.load_session(tmp_path)
        assert bool(again.restore_error) == (not fits)
        assert again.n_cached == (len(PROMPTS[0]) if fits else PAGE)
        assert memory.used <= memory.budget
        assert memory.promised == 0
    finally:
        memory.budget = before
    assert list(again.decode(max_tokens=10)) == want
    assert [other.tokens for other in others] == PROMPTS[1:3]


@pytest.mark.slow
def test_memory_is_wanted_while_a_session_is_read_from_disk(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages may be taken back in the midst of that: then it is computed again, and right."""
    first = engine.session()
    first.prefill(PROMPTS[0])
    first.save(tmp_path)
    want = list(first.decode(max_tokens=5))
    del first
    gc.collect()
    map_page, others = checked_files.map_bytes, list[Session]()
    large = CHANCE.integers(0, 2000, PAGES * PAGE - 40).tolist()

    def wanted_meanwhile(path: Path, size: int, digest: str) -> np.ndarray:
        page = map_page(path, size, digest)
        if path == last:
            started = time.monotonic()
            while sum(len(one.cache.held) for one in engine.core.scheduler.sequences) < 2:
                assert time.monotonic() - started < 60, "the pages before it come first"
                time.sleep(0.001)
            others.append(engine.session())
            others[0].prefill(large)
        return page

    index = json.loads(checked_files.read_sealed(tmp_path / session_files.INDEX))
    last = tmp_path / f"{index['pages'][-1][0]}{session_files.SUFFIX}"
    monkeypatch.setattr(checked_files, "map_bytes", wanted_meanwhile)
    before = engine.core.scheduler.pages.preempted
    session = engine.load_session(tmp_path)

    assert engine.core.scheduler.pages.preempted > before
    assert others[0].n_cached == len(large)
    others.clear()
    assert (session.tokens, session.n_cached) == (PROMPTS[0], 0)
    session.prefill([])
    assert list(session.decode(max_tokens=5)) == want


@pytest.mark.slow
def test_a_session_is_made_between_two_looks_at_all(engine: Engine) -> None:
    """Whoever looks for pages to be taken back, with the mutex, has the same sessions before it."""
    with ThreadPoolExecutor(1) as threads:
        with engine.core.scheduler.mutex:
            before = len(engine.core.scheduler.sequences)
            made = threads.submit(engine.session)
            with pytest.raises(TimeoutError):
                made.result(0.1)
            assert len(engine.core.scheduler.sequences) == before
        assert made.result(60).sequence in engine.core.scheduler.sequences


@pytest.mark.slow
def test_a_budget_that_makes_no_sense() -> None:
    """Nothing, and less, is refused."""
    for wrong in (0, -1):
        with pytest.raises(SettingError, match="kv_memory"):
            Engine.load("nano", kv_memory=wrong)


@pytest.mark.slow
def test_what_is_kept_waits_for_its_return(engine: Engine) -> None:
    """Others that come and go do not push out what is kept until a time; nobody fails for it."""
    cache, kept = engine.core.prefix_cache, PROMPTS[0]

    def run(prompt: list[int]) -> None:
        session = engine.session()
        session.sequence.shares = True
        session.prefill(prompt)
        session.close()

    run(kept)
    cache.keep(kept, time.monotonic() + 3600)
    for prompt in PROMPTS[1:]:
        run(prompt)
    assert cache.find(kept)[1] == len(kept)
    assert cache.find(PROMPTS[1])[1] < len(PROMPTS[1])
    run(CHANCE.integers(0, 2000, 5 * PAGE).tolist())
    assert cache.find(kept)[1] < len(kept)
    assert engine.loaded.layout.memory.used <= PAGES * HUGE_PAGE


def test_a_page_that_only_the_tree_has_beside_a_session_needs_no_copy() -> None:
    """A budget with room for a text, and for no page more, is enough to go back and on in it."""
    prompt, other = CHANCE.integers(0, 2000, (2, 3 * PAGE - 40)).tolist()
    with Engine.load("nano", threads=1, context=1024) as plain:
        want = plain.session()
        want.prefill(prompt[: 2 * PAGE + 9] + other[:20])
        logits = want.logits.copy()
    with Engine.load("nano", threads=1, context=1024, kv_memory=3 * HUGE_PAGE, spill=0) as engine:
        session = engine.session()
        session.sequence.shares = True
        session.prefill(prompt)
        session.truncate(2 * PAGE + 9)
        session.prefill(other[:20])
        assert np.array_equal(session.logits, logits)
        session.close()
        again = engine.session()
        again.sequence.shares = True
        again.prefill(prompt[: 2 * PAGE + 9] + other[:20] + prompt[:50])  # goes on on its page
        assert again.n_cached == 2 * PAGE + 79
        with pytest.raises(ContextOverflowError, match=f"need {4 * HUGE_PAGE:,} bytes"):
            again.prefill(prompt[:300])
