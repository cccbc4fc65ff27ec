"""Layers with a sliding window let go of what they cannot see; whatever is asked stays exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models
from helpers.alone import logits_alone

from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.forward import kv
from triplepoint.runtime.hub.model_info import read_model_info

LONG = 7 * PAGE + 20
IDS = np.random.default_rng(4).integers(0, tiny_models.VOCAB, 2 * LONG).tolist()


ARCHITECTURE = {"gemma3": "gemma3", "mistral": "llama"}


@pytest.fixture(scope="module", params=list(ARCHITECTURE))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """One with windows in most layers, one in all; both of 40 positions or so."""
    path = tmp_path_factory.mktemp("windows") / f"{request.param}.gguf"
    longer = {f"{ARCHITECTURE[request.param]}.context_length": 2 * LONG}
    tiny_models.write_model(path, request.param, "q8_0", metadata=longer)
    with Engine.load(path, threads=1, context=2 * LONG) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _no_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "SLACK", 0)


def _whole(session: Session) -> list[bool]:
    return [page.whole for page in session.sequence.cache.held]


def test_memory_of_a_long_context(engine: Engine) -> None:
    """Pages behind the windows lose those layers' share, and the pool gets it back."""
    layout, memory = engine.loaded.layout, engine.loaded.layout.memory
    before = memory.used
    session = engine.session()
    session.prefill(IDS[:LONG])

    assert _whole(session) == [False] * 6 + [True] * 2
    local = session.sequence.cache.held[-1].nbytes - layout.far_bytes
    assert memory.used - before == session.sequence.cache.nbytes
    whole = engine.session()
    whole.sequence.cache.reserve(LONG)
    assert whole.sequence.cache.nbytes - session.sequence.cache.nbytes == 6 * local
    del whole


def test_a_context_in_steps(engine: Engine) -> None:
    """Read in pieces and decoded behind pages that were let go of: the bits of one alone."""
    session = engine.session()
    for at in range(0, LONG, 300):
        session.prefill(IDS[at : min(at + 300, LONG)])
    assert np.array_equal(session.logits, logits_alone(engine, IDS[:LONG]))
    ids = list(session.decode(max_tokens=20))
    assert np.array_equal(session.logits_for([3])[0], logits_alone(engine, [*IDS[:LONG], *ids, 3]))


@pytest.mark.parametrize("keep", [0, 1, PAGE - 1, 3 * PAGE, 6 * PAGE + 50, LONG - 1])
def test_going_back(engine: Engine, keep: int) -> None:
    """Cut back to anywhere, a session goes on as one that never was longer; so do its forks."""
    session = engine.session()
    session.prefill(IDS[:LONG])
    fork = session.fork(keep)
    session.truncate(keep)
    want = logits_alone(engine, [*IDS[:keep], 5, 6, 7])
    for one in (session, fork):
        one.prefill([5, 6, 7])
        assert one.n_cached == keep + 3
        assert np.array_equal(one.logits, want)


def test_forks_keep_what_they_see(engine: Engine) -> None:
    """What one of two forks has left behind stays for the other, until that one leaves it too."""
    early = engine.session()
    early.prefill(IDS[: 2 * PAGE + 10])
    late = early.fork()
    late.prefill(IDS[2 * PAGE + 10 : LONG])
    assert _whole(early) == [False, True, True]
    assert early.sequence.cache.held[1] is late.sequence.cache.held[1]
    early.prefill([1])
    assert np.array_equal(early.logits, logits_alone(engine, [*IDS[: 2 * PAGE + 10], 1]))
    early.prefill(IDS[:PAGE])
    assert not late.sequence.cache.held[1].whole
    assert np.array_equal(late.logits, logits_alone(engine, IDS[:LONG]))


@pytest.fixture
def sharing(engine: Engine) -> Iterator[Callable[[], Session]]:
    """Makes sessions that share beginnings; the engine forgets them afterwards."""

    def make() -> Session:
        session = engine.session()
        session.sequence.shares = True
        return session

    yield make
    engine.core.prefix_cache.clear()


def test_prefixes(engine: Engine, sharing: Callable[[], Session]) -> None:
    """Texts are taken over to the token, also behind pages that their session has left."""
    first = sharing()
    first.prefill(IDS[:LONG])
    assert _whole(first) == [True] * 8, "others may begin like it"
    for at in (3 * PAGE, LONG - 1, 100):
        other = sharing()
        assert other.prefill([*IDS[:at], 7]).shared_tokens == at
        assert np.array_equal(other.logits, logits_alone(engine, [*IDS[:at], 7]))


@pytest.mark.slow
def test_windows_go_first_when_memory_is_wanted(
    engine: Engine, sharing: Callable[[], Session]
) -> None:
    """Pages amid a text lose their windows; who begins there computes, and brings them back."""
    first = sharing()
    first.prefill(IDS[:LONG])
    used = engine.loaded.layout.memory.used
    freed = engine.core.prefix_cache.evict(1)
    assert used - engine.loaded.layout.memory.used == freed > 0
    assert _whole(first).count(False) == 1
    engine.core.prefix_cache.evict(1 << 40)
    assert _whole(first) == [False] * 6 + [True] * 2
    for at in (3 * PAGE, LONG - 1):
        other = sharing()
        assert other.prefill([*IDS[:at], 7]).shared_tokens == (at if at > 3 * PAGE else 0)
        assert np.array_equal(other.logits, logits_alone(engine, [*IDS[:at], 7]))
    assert sharing().prefill([*IDS[: 3 * PAGE], 8]).shared_tokens == 3 * PAGE


@pytest.mark.slow
def test_on_disk(engine: Engine, tmp_path: Path) -> None:
    """A saved session has no more on disk than in memory, and goes on with the same bits."""
    session = engine.session()
    session.prefill(IDS[:LONG])
    saved = session.save(tmp_path / "kept")
    layout = engine.loaded.layout
    assert saved.written == 2 * layout.page_bytes + 6 * layout.far_bytes
    assert session.save(tmp_path / "kept").written == 0
    loaded = engine.load_session(tmp_path / "kept")
    assert (loaded.restore_error, loaded.n_cached) == ("", LONG)
    loaded.prefill([9])
    want = logits_alone(engine, [*IDS[:LONG], 9])
    assert np.array_equal(loaded.logits, want)
    loaded.truncate(3 * PAGE)
    loaded.prefill([9])
    assert np.array_equal(loaded.logits, logits_alone(engine, [*IDS[: 3 * PAGE], 9]))
    damaged = sorted((tmp_path / "kept").glob("*.kv"))[3]
    damaged.write_bytes(b"x" * damaged.stat().st_size or b"x")
    again = engine.load_session(tmp_path / "kept")
    assert again.restore_error
    again.prefill([9])
    assert np.array_equal(again.logits, want)


def test_what_is_shown_beforehand(engine: Engine) -> None:
    """`show` counts of layers with windows what a sequence keeps of them, not the whole context."""
    memory = read_model_info(engine.model.path).memory
    assert memory is not None
    grown = memory.total(20 * PAGE, "bf16") - memory.total(10 * PAGE, "bf16")
    assert abs(grown - 10 * engine.loaded.layout.far_bytes) <= 1
    assert memory.total(PAGE, "bf16") - memory.weights == engine.loaded.layout.page_bytes
