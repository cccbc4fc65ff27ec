"""Prefixes on disk: what memory has no room for comes back bit for bit, or is computed."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from triplepoint.errors import SettingError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.result import RunResult
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.kv import spill
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces import Trace
from triplepoint.traces.events import PhaseEvent

OPENING = PAGE + 150  # tokens, of which the second page has some
IDS = np.random.default_rng(8).integers(0, 2000, 4 * PAGE).tolist()
TEXT = IDS[: 3 * PAGE + 100]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", threads=1, context=2048) as engine:
        yield engine


@pytest.fixture
def folder(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where pages go: a disk that is always quicker than computing, with nothing on it yet."""
    monkeypatch.setattr(spill, "folder", lambda: tmp_path / "prefixes")
    monkeypatch.setattr(spill, "READ_RATE", 1e15)
    monkeypatch.setattr(spill, "WEIGHT", 0.0)
    monkeypatch.setattr(spill, "MIN_S", 0.0)
    monkeypatch.setattr(engine.core, "spill", spill.Spill(engine.loaded, 1 << 30))
    monkeypatch.setattr(engine.core.prefix_cache, "_evicted", engine.core.spill.offer)
    yield tmp_path / "prefixes"
    engine.core.spill.close()
    engine.core.prefix_cache.clear()


def _prefill(
    engine: Engine, ids: list[int], *, shares: bool = True
) -> tuple[PhaseEvent, np.ndarray]:
    session = engine.session()
    session.sequence.shares = shares
    phase = session.prefill(ids)
    return phase, session.logits.copy()


def _open(engine: Engine, ids: list[int], opening: int = OPENING) -> tuple[PhaseEvent, np.ndarray]:
    """Read `ids` as another process would that has nothing in memory, and write the opening."""
    gc.collect()
    engine.core.prefix_cache.clear()
    session = engine.session()
    session.sequence.shares, session.sequence.opening = True, opening
    phase = session.prefill(ids)
    engine.core.spill.flush()
    return phase, session.logits.copy()


def _evict(engine: Engine) -> None:
    gc.collect()  # the sessions that are gone hold nothing
    engine.core.prefix_cache.evict(1 << 40)
    engine.core.spill.flush()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_what_was_evicted_comes_back(engine: Engine, folder: Path) -> None:
    """Full pages are read and not computed, the rest is computed; the bits are the same."""
    _, want = _prefill(engine, TEXT)
    _evict(engine)
    assert len(_files(folder)) == 3
    phase, got = _prefill(engine, TEXT)

    assert np.array_equal(got, want)
    assert phase.recalled_bytes == 3 * engine.loaded.layout.page_bytes == engine.core.spill.recalled
    assert (phase.shared_tokens, phase.tokens) == (3 * PAGE, len(TEXT))
    other, got = _prefill(engine, [*TEXT[: 2 * PAGE + 9], 5])
    assert (other.recalled_bytes, other.shared_tokens) == (0, 2 * PAGE + 9), "they are in memory"
    assert np.array_equal(got, _prefill(engine, [*TEXT[: 2 * PAGE + 9], 5], shares=False)[1])


@pytest.mark.slow
def test_namespaces(engine: Engine, folder: Path) -> None:
    """Pages on disk are found by their own namespace and by no other, nor by none."""

    def recalled(namespace: str) -> int:
        session = engine.session()
        session.sequence.shares, session.sequence.namespace = True, namespace
        found = session.prefill(TEXT).recalled_bytes
        session.close()
        _evict(engine)
        return found

    size = 3 * engine.loaded.layout.page_bytes
    assert [recalled(name) for name in ("a", "b", "", "a", "")] == [0, 0, 0, size, size]
    assert len(_files(folder)) == 9


@pytest.mark.slow
def test_files_are_the_users_own(engine: Engine, folder: Path) -> None:
    """Nobody else may read what was computed of a conversation."""
    _prefill(engine, TEXT)
    _evict(engine)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in _files(folder)} == {0o600}


@pytest.mark.slow
def test_another_process_finds_them(engine: Engine, folder: Path) -> None:
    """Who looks for the first time sees what lies there; another model or format does not."""
    _, want = _prefill(engine, TEXT)
    _evict(engine)
    with Engine.load("nano", threads=1, context=2048, spill=1 << 30) as second:
        phase, got = _prefill(second, TEXT)
        assert phase.recalled_bytes == 3 * engine.loaded.layout.page_bytes
        assert np.array_equal(got, want)
    with Engine.load("nano", threads=1, context=2048, kv="q8", spill=1 << 30) as other:
        assert _prefill(other, TEXT)[0].recalled_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["bit", "short", "gone"])
def test_a_damaged_page_is_computed(engine: Engine, folder: Path, damage: str) -> None:
    """From the first page that is not as it was written on all is computed, without an error."""
    _, want = _prefill(engine, TEXT)
    _evict(engine)
    keys = [name[:64] for name in engine.core.spill.keys(TEXT)]
    (second,) = (path for path in _files(folder) if path.name.startswith(keys[1]))
    data = bytearray(second.read_bytes())
    data[1234] ^= 4
    second.unlink()
    if damage != "gone":
        second.write_bytes(data if damage == "bit" else data[:-1])
    phase, got = _prefill(engine, TEXT)

    assert np.array_equal(got, want)
    assert phase.recalled_bytes == engine.loaded.layout.page_bytes
    assert not second.exists()


@pytest.mark.slow
def test_no_disk_where_computing_is_quicker(engine: Engine, folder: Path) -> None:
    """Pages are neither written nor read at a rate at which that takes longer."""
    engine.core.spill.rate = 1.0
    _prefill(engine, TEXT)
    _evict(engine)
    assert _files(folder) == []
    engine.core.spill.rate = 1e15
    _prefill(engine, TEXT)
    _evict(engine)
    engine.core.spill.rate = 1.0
    assert _prefill(engine, TEXT)[0].recalled_bytes == 0


@pytest.mark.slow
def test_files_are_bounded(engine: Engine, folder: Path) -> None:
    """They take no more than was allowed; what was used of late and is dear to compute stays."""
    size = engine.loaded.layout.page_bytes
    engine.core.spill.most_bytes = 3 * size
    for first in range(3):
        _prefill(engine, [first, *TEXT[: 2 * PAGE]])
        _evict(engine)
        assert sum(path.stat().st_size for path in _files(folder)) <= 3 * size
    last = [name[:64] for name in engine.core.spill.keys([2, *TEXT[: 2 * PAGE - 1]])]
    assert {path.name[:64] for path in _files(folder)} >= set(last)


@pytest.mark.slow
def test_without_a_thread_to_write_memory_is_free_all_the_same(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have none left; and the engine may be closed in that moment."""
    _prefill(engine, TEXT)
    gc.collect()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    before = engine.loaded.layout.memory.used
    assert engine.core.prefix_cache.evict(1 << 40) > 0
    assert engine.loaded.layout.memory.used < before
    assert engine.core.spill._pending == 0


def test_what_nobody_goes_on_writing_is_removed(engine: Engine, folder: Path) -> None:
    """A process that was killed leaves a file with a name of its own; one that writes has one."""
    folder.mkdir(parents=True)
    old, new = (folder / f".{digit * 64}-{digit * 64}-12.kv.1.0123abcd" for digit in "01")
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    _prefill(engine, TEXT)
    _evict(engine)
    assert not old.exists()
    assert new.exists()


def test_an_opening_comes_back_to_the_token(engine: Engine, folder: Path) -> None:
    """What follows it is computed alone, with the same bits; its files hold nothing of that."""
    first, want = _open(engine, TEXT)
    alone = engine.session()
    alone.prefill(TEXT[:OPENING])
    pages = [alone.sequence.cache.page(number).tobytes() for number in range(2)]

    assert (first.shared_tokens, first.recalled_bytes) == (0, 0)
    assert sorted(path.read_bytes() for path in _files(folder)) == sorted(pages)
    assert np.array_equal(want, _prefill(engine, TEXT, shares=False)[1])

    again, got = _open(engine, TEXT)
    assert (again.shared_tokens, again.recalled_bytes) == (OPENING, sum(map(len, pages)))
    assert np.array_equal(got, want)
    question = [*TEXT[:OPENING], 7, 8, 9]
    other, got = _open(engine, question)
    assert (other.shared_tokens, other.tokens, len(_files(folder))) == (OPENING, OPENING + 3, 2)
    assert np.array_equal(got, _prefill(engine, question, shares=False)[1])


def test_an_opening_of_less_than_a_page(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found too; a few tokens are not worth a file, nor is what is computed at once."""
    ids, few = IDS[:200], spill.MIN_TOKENS - 1
    _open(engine, ids, few)
    assert _files(folder) == []
    _open(engine, ids, few + 1)
    assert len(_files(folder)) == 1
    assert _open(engine, ids, few + 1)[0].shared_tokens == few + 1
    monkeypatch.setattr(spill, "MIN_S", 60.0)
    _open(engine, IDS, OPENING)
    assert len(_files(folder)) == 1


@pytest.mark.slow
def test_an_opening_is_written_behind_pages_that_are_there(engine: Engine, folder: Path) -> None:
    """Two agents with the same tools and other words: only the pages that differ are computed."""
    _open(engine, TEXT)
    other = [*TEXT[: PAGE + 20], *IDS[:200]]
    assert _open(engine, other)[0].shared_tokens == PAGE
    assert len(_files(folder)) == 3
    assert [_open(engine, ids)[0].shared_tokens for ids in (TEXT, other)] == [OPENING, OPENING]


@pytest.mark.slow
def test_an_opening_that_shares_memory_is_not_written(engine: Engine, folder: Path) -> None:
    """A copied page may hold what somebody else said behind their common beginning."""
    held = engine.session()
    held.sequence.shares = True
    held.prefill([*TEXT[:20], *IDS[:200]])
    session = engine.session()
    session.sequence.shares, session.sequence.opening = True, OPENING
    assert session.prefill(TEXT).shared_tokens == 20
    engine.core.spill.flush()
    assert _files(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["bit", "short", "foreign"])
def test_a_damaged_opening_is_computed_and_written_again(
    engine: Engine, folder: Path, damage: str
) -> None:
    """From the page on that is not as it was written, without an error."""
    _, want = _open(engine, TEXT)
    key = engine.core.spill.keys(TEXT[:OPENING])[-1]
    (last,) = folder.glob(f"{key}-*")
    data = bytearray(last.read_bytes())
    data[1234] ^= 4
    wrong = {"bit": bytes(data), "short": bytes(data[:-1]), "foreign": b"something else"}
    last.write_bytes(wrong[damage])
    (folder / "notes.txt").write_text("no page")
    phase, got = _open(engine, TEXT)

    assert phase.shared_tokens == PAGE
    assert np.array_equal(got, want)
    assert _open(engine, TEXT)[0].shared_tokens == OPENING


@pytest.mark.slow
def test_an_opening_is_of_one_model_one_format_and_one_kernel(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Path]
) -> None:
    """Another process of the same finds it, nobody else does."""
    ids = [n % 200 for n in TEXT]
    _open(engine, ids)
    with Engine.load("nano", threads=1, context=2048, spill=1 << 30) as same:
        assert _open(same, ids)[0].shared_tokens == OPENING
    with Engine.load("nano", threads=1, context=2048, kv="q8", spill=1 << 30) as other:
        assert _open(other, ids)[0].shared_tokens == 0
    with Engine.load(tiny_model("q8_0"), threads=1, context=1024, spill=1 << 30) as other:
        assert _open(other, ids)[0].shared_tokens == 0
    monkeypatch.setattr(spill, "source_hash", lambda: "of kernels that were changed")
    assert _open(engine, ids)[0].shared_tokens == 0


@pytest.mark.slow
def test_a_second_process_answers_the_same_and_computes_less(folder: Path, tmp_path: Path) -> None:
    """Of an agent's first question its own tokens alone are computed, and that is told."""

    def ask(name: str) -> tuple[RunResult[str], Trace]:
        with Engine.load("nano", threads=1, spill=1 << 30) as engine:
            path = tmp_path / name
            with Agent(engine, workspace=files, system=system, trace=path) as agent:
                result = agent.run("What is in notes.txt?")
        return result, Trace.load(path)

    files = tmp_path / "files"
    files.mkdir()
    (files / "notes.txt").write_text("The port is 5432.\n")
    system = "You answer questions about the files in one folder. " * 20
    (first, before), (second, after) = ask("a.jsonl"), ask("b.jsonl")

    assert second.output == first.output
    assert [p.token_ids for p in after.phases] == [p.token_ids for p in before.phases]
    spared = after.phases[0].shared_tokens
    assert spared > 256
    assert spared % PAGE
    assert second.usage.cached_tokens == first.usage.cached_tokens + spared
    with Engine.load("nano", threads=1, spill=0) as engine:
        assert all(phase.same for phase in verify(after, engine).phases)


def test_the_embedded_model_leaves_the_disk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages are computed at once."""
    monkeypatch.setattr(spill, "MOST_BYTES", 1 << 30)
    with Engine.load("nano", threads=1, context=512) as engine:
        assert engine.core.spill.most_bytes == 0


def test_it_can_be_turned_off(engine: Engine, folder: Path) -> None:
    """0 bytes: nothing is written, nothing is read, nothing is made."""
    engine.core.spill.most_bytes = 0
    _open(engine, TEXT)
    _evict(engine)
    assert not folder.exists()
    with pytest.raises(SettingError, match="spill must be"):
        Engine.load("nano", spill=-1)
