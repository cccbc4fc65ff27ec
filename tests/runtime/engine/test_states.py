"""Sessions of models with recurrent layers: the bits of a session that read everything anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.alone import remembered
from helpers.few_tokens import FewTokens

from triplepoint.errors import PassCancelledError
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.kv.prefix_cache import MOST_STATES
from triplepoint.runtime.engine.passes.request import Batch, Request
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.memory import HUGE_PAGE

IDS = np.random.default_rng(9).integers(0, tiny.VOCAB, 400).tolist()
OTHER = np.random.default_rng(10).integers(0, tiny.VOCAB, 60).tolist()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("states") / "qwen35.gguf"
    tiny.write_model(path, "qwen35")
    return path


@pytest.fixture(scope="module")
def engine(path: Path) -> Iterator[Engine]:
    with Engine.load(path, threads=2, draft_tokens=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def expected(path: Path) -> Iterator[Callable[[list[int]], np.ndarray]]:
    """Logits after some tokens, by an engine that does nothing else."""
    with Engine.load(path, threads=2) as engine:
        yield remembered(engine)


Expected = Callable[[list[int]], np.ndarray]


def _bordered(engine: Engine) -> Session:
    """IDS, with copies of the state behind 100, 200 and 300 tokens."""
    session = engine.session()
    session.prefill(IDS, borders=[100, 200, 300])
    state = session.sequence.cache.state
    assert state is not None
    assert [one.position for one in state.checkpoints] == [100, 200, 300]
    return session


@pytest.mark.slow
@pytest.mark.parametrize("at", [400, 399, 301, 300, 250, 101, 100, 99, 1])
def test_truncate(engine: Engine, expected: Expected, at: int) -> None:
    """At, before and between copies: what follows is computed again, and counted."""
    session = _bordered(engine)
    session.truncate(at)
    known = 400 if at == 400 else at // 100 * 100
    assert session.n_cached == known
    phase = session.prefill(OTHER)

    assert phase.recomputed_tokens == at - known
    assert phase.cached_tokens == known
    assert np.array_equal(session.logits, expected([*IDS[:at], *OTHER]))


def test_copies_are_kept_where_a_prompt_ends(engine: Engine) -> None:
    """A turn behind a long text computes its own tokens, also after it was taken back."""
    session = engine.session()
    session.prefill(IDS)
    said = list(session.decode(max_tokens=20))
    session.truncate(len(IDS))
    phase = session.prefill(OTHER)

    assert len(said) == 20
    assert phase.cached_tokens == len(IDS)
    assert phase.tokens == len(OTHER)


def test_decoded_is_prefilled(engine: Engine, expected: Expected) -> None:
    """Tokens that were decoded leave the state that prefilling them leaves."""
    session = engine.session()
    session.prefill(IDS[:60] * 3)
    said = list(session.decode(max_tokens=30))
    phase = session.last_phase
    session.prefill(OTHER)

    assert phase is not None
    assert np.array_equal(session.logits, expected([*IDS[:60] * 3, *said, *OTHER]))


def test_drafts(engine: Engine) -> None:
    """Drafts that are refused leave nothing behind: the same tokens come without them."""
    prompt = IDS[:9]
    seen = []
    for drafts in (0, 4):
        engine.core.drafting.settings = SpeculativeConfig(draft_tokens=drafts)
        session = engine.session()
        session.prefill(prompt)
        said = list(session.decode(max_tokens=120, constraint=FewTokens()))
        phase = session.last_phase
        assert phase is not None
        seen.append((said, phase.drafted_tokens, phase.accepted_tokens))
        session.prefill(OTHER)
        seen[-1] = (*seen[-1], session.logits.copy())
    (plain, none, _, before), (drafted, made, right, after) = seen

    assert none == 0
    assert made > right > 0
    assert drafted == plain
    assert np.array_equal(after, before)


def _drafted(path: Path, pages: int, states: int, ids: list[int], steps: int) -> int:
    """How many tokens are drafted where so many pages and states fit, which are never exceeded."""
    with Engine.load(path, threads=1) as engine:
        assert engine.loaded.layout.states is not None
        room = pages * HUGE_PAGE + states * engine.loaded.layout.states.nbytes
    with Engine.load(path, threads=1, draft_tokens=4, kv_memory=room, spill=0) as engine:
        session = engine.session()
        session.prefill(ids)
        decoded = session.decode(max_tokens=steps, constraint=FewTokens())
        used = [engine.loaded.layout.memory.used for _ in decoded]
        assert session.last_phase is not None

    assert max(used) <= room
    assert len(used) == steps
    return session.last_phase.drafted_tokens


@pytest.mark.parametrize("states", [1, 2])
def test_drafts_keep_to_the_budget(path: Path, states: int) -> None:
    """The second state that they take counts; where there can be no room for it, none are made."""
    assert (_drafted(path, 1, states, IDS[:9], 120) > 0) == (states == 2)


def test_a_text_goes_on_where_drafts_have_no_room_any_more(path: Path) -> None:
    """The second state is given up for the page that follows."""
    assert _drafted(path, 2, 1, IDS[:150], 200) > 0


def test_nobody_loses_pages_for_a_draft(path: Path) -> None:
    """Room for the second state is made of what no session has, or nothing is drafted."""
    with Engine.load(path, threads=1) as engine:
        assert engine.loaded.layout.states is not None
        room = 2 * HUGE_PAGE + 2 * engine.loaded.layout.states.nbytes
    with Engine.load(path, threads=1, draft_tokens=4, kv_memory=room, spill=0) as engine:
        first, second = engine.session(), engine.session()
        first.prefill(IDS[:9])
        second.prefill(IDS[:9])
        for closed in (False, True):
            list(second.decode(max_tokens=60, constraint=FewTokens()))
            assert second.last_phase is not None
            assert (second.last_phase.drafted_tokens > 0) == closed
            assert engine.core.scheduler.pages.preempted == 0
            first.close()


def test_a_decode_that_is_left_within_a_draft(engine: Engine, expected: Expected) -> None:
    """Tokens that nobody took are not in the state."""
    engine.core.drafting.settings = SpeculativeConfig(draft_tokens=4)
    for wanted in range(20, 60, 3):
        session = engine.session()
        session.prefill(IDS[:9])
        tokens = session.decode(max_tokens=120, constraint=FewTokens())
        for _ in range(wanted):
            next(tokens)
        tokens.close()  # pyright: ignore
        assert session.n_cached <= len(session.tokens)
        session.prefill(OTHER[:3])
        assert np.array_equal(session.logits, expected(session.tokens))


def test_forks(engine: Engine, expected: Expected) -> None:
    """Both sides go on as if they were alone, whoever computes first; so do forks further back."""
    session = _bordered(engine)
    right = session.fork()
    between = session.fork(250)
    assert right.n_cached == 400
    assert between.n_cached == 200
    assert np.array_equal(right.logits, session.logits)
    right.prefill(OTHER)
    session.prefill(OTHER[:7])
    between.prefill(OTHER[:9])

    assert np.array_equal(right.logits, expected([*IDS, *OTHER]))
    assert np.array_equal(session.logits, expected([*IDS, *OTHER[:7]]))
    assert np.array_equal(between.logits, expected([*IDS[:250], *OTHER[:9]]))


def test_a_fork_decodes_at_once(engine: Engine) -> None:
    """What a fork says is what the session says that it came from."""
    session = engine.session()
    session.prefill(IDS[:150])
    other = session.fork()
    said = list(other.decode(max_tokens=10))

    assert list(session.decode(max_tokens=10)) == said


def test_in_company(engine: Engine, expected: Expected) -> None:
    """Rows of several sequences in one pass: each has its own state."""
    parts = (IDS[:40], IDS[40:41], IDS[:17])
    sessions = [engine.session() for _ in parts]
    sessions[1].prefill(IDS[:40])
    for session, part in zip(sessions, parts, strict=True):
        session.sequence.tokens += part
    batch = Batch.whole(
        *(
            Request(session.sequence, session.n_cached, part, 1)
            for session, part in zip(sessions, parts, strict=True)
        )
    )
    for result, session in zip(engine.core.scheduler.run(batch), sessions, strict=True):
        assert result.logits is not None
        assert np.array_equal(result.logits.rows[-1], expected(session.tokens))


def test_a_stopped_pass(engine: Engine, expected: Expected) -> None:
    """A pass that was ended in the midst leaves no half state behind."""
    session = engine.session()
    session.prefill(IDS[:100])
    session.prefill(OTHER[:5])
    session.truncate(105)
    run_tape = engine.core.runner._run_tape

    def cut(tape, times):  # the pass has run, and it is as if it had been stopped then
        run_tape(tape, times)
        raise PassCancelledError("stopped")

    engine.core.runner._run_tape = cut
    try:
        with pytest.raises(PassCancelledError):
            session.prefill(IDS[200:260])
    finally:
        engine.core.runner._run_tape = run_tape
    assert session.n_cached in (100, 105)
    session.truncate(105)
    session.prefill(OTHER[5:])

    assert np.array_equal(session.logits, expected([*IDS[:100], *OTHER]))


def test_shared_prefixes_need_a_state(engine: Engine, expected: Expected) -> None:
    """Pages that another session has computed are taken only up to where a state is known."""
    first = engine.session()
    first.sequence.shares = True
    first.prefill(IDS, borders=[120])
    second = engine.session()
    second.sequence.shares = True
    phase = second.prefill([*IDS[:300], *OTHER])
    third = engine.session()
    third.sequence.shares = True
    alone = third.prefill([*IDS[:110], *OTHER])

    assert phase.shared_tokens == 120
    assert alone.shared_tokens == 0
    assert np.array_equal(second.logits, expected([*IDS[:300], *OTHER]))
    assert np.array_equal(third.logits, expected([*IDS[:110], *OTHER]))


def test_saved_and_loaded(engine: Engine, expected: Expected, tmp_path: Path) -> None:
    """A session that was kept goes on at once, and can be cut where it could before."""
    session = _bordered(engine)
    session.save(tmp_path)
    other = engine.load_session(tmp_path)
    assert (other.n_cached, other.restore_error) == (400, "")
    other.prefill(OTHER)
    assert np.array_equal(other.logits, expected([*IDS, *OTHER]))
    other.truncate(300)
    assert other.n_cached == 300
    other.prefill(OTHER)
    assert np.array_equal(other.logits, expected([*IDS[:300], *OTHER]))
    assert session.save(tmp_path).written == 0


@pytest.mark.parametrize("lost", [1, 3, 4])
def test_damaged_states(engine: Engine, expected: Expected, tmp_path: Path, lost: int) -> None:
    """Without a whole state pages are worth nothing: it goes on at the last one that is."""
    session = _bordered(engine)
    session.save(tmp_path)
    files = sorted(tmp_path.glob("*.state"), key=lambda path: path.stat().st_mtime_ns)
    assert len(files) == 4
    for file in files[4 - lost :]:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    other = engine.load_session(tmp_path)

    assert other.n_cached == [400, 300, 200, 100, 0][lost]
    assert "damaged" in other.restore_error
    other.prefill(OTHER)
    assert np.array_equal(other.logits, expected([*IDS, *OTHER]))


def test_pages_that_were_taken_back(engine: Engine, expected: Expected) -> None:
    """A session whose memory others needed computes everything again."""
    session = _bordered(engine)
    with engine.loaded.lock:
        session.sequence.evict()
    assert session.n_cached == 0
    session.prefill(OTHER)

    assert np.array_equal(session.logits, expected([*IDS, *OTHER]))


def test_states_that_are_kept(path: Path, expected: Expected) -> None:
    """A state that is kept until a time outlives those of many others; later it does not."""
    with Engine.load(path, threads=2) as engine:

        def prefill(ids: list[int]) -> Session:
            session = engine.session()
            session.sequence.shares = True
            session.prefill(ids, borders=[len(ids) - 10])
            return session

        def others(first: int) -> None:
            for n in range(first, first + 2 * MOST_STATES):
                prefill([n, *OTHER]).close()

        prefill(IDS).close()
        engine.core.prefix_cache.keep(IDS, time.monotonic() + 3600)
        others(0)
        assert engine.core.prefix_cache.count(IDS) == len(IDS) - 10
        session = prefill([*IDS, 1])
        assert session.last_phase is not None
        assert session.last_phase.shared_tokens == len(IDS) - 10
        assert np.array_equal(session.logits, expected([*IDS, 1]))
        session.close()
        other = IDS[::-1]
        prefill(other).close()
        engine.core.prefix_cache.keep(other, time.monotonic() - 1)
        others(50)
        assert engine.core.prefix_cache.count(other) == 0
