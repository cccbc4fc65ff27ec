"""Prefixes on disk: what memory has no room for comes back bit for bit, or is computed."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from triplepoint.errors import SettingError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime.inference import spill
from triplepoint.runtime.inference.engine import Engine
from triplepoint.runtime.inference.kv_snapshot import page_keys
from triplepoint.traces.events import PhaseEvent

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
    monkeypatch.setattr(engine, "spill", spill.Spill(engine, 1 << 30))
    monkeypatch.setattr(engine.prefix_cache, "_evicted", engine.spill.offer)
    yield tmp_path / "prefixes"
    engine.spill.close()
    engine.prefix_cache.clear()


def _prefill(
    engine: Engine, ids: list[int], *, shares: bool = True
) -> tuple[PhaseEvent, np.ndarray]:
    session = engine.session()
    session.shares = shares
    phase = session.prefill(ids)
    return phase, session.logits.copy()


def _evict(engine: Engine) -> None:
    gc.collect()  # the sessions that are gone hold nothing
    engine.prefix_cache.evict(1 << 40)
    engine.spill.flush()


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_what_was_evicted_comes_back(engine: Engine, folder: Path) -> None:
    """Full pages are read and not computed, the rest is computed; the bits are the same."""
    _, want = _prefill(engine, TEXT)
    _evict(engine)
    assert len(_files(folder)) == 3
    phase, got = _prefill(engine, TEXT)

    assert np.array_equal(got, want)
    assert phase.recalled_bytes == 3 * engine.layout.page_bytes == engine.spill.recalled
    assert (phase.shared_tokens, phase.tokens) == (3 * PAGE, len(TEXT))
    other, got = _prefill(engine, [*TEXT[: 2 * PAGE + 9], 5])
    assert (other.recalled_bytes, other.shared_tokens) == (0, 2 * PAGE + 9), "they are in memory"
    assert np.array_equal(got, _prefill(engine, [*TEXT[: 2 * PAGE + 9], 5], shares=False)[1])


@pytest.mark.slow
def test_namespaces(engine: Engine, folder: Path) -> None:
    """Pages on disk are found by their own namespace and by no other, nor by none."""

    def recalled(namespace: str) -> int:
        session = engine.session()
        session.shares, session.namespace = True, namespace
        found = session.prefill(TEXT).recalled_bytes
        session.close()
        _evict(engine)
        return found

    size = 3 * engine.layout.page_bytes
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
        assert phase.recalled_bytes == 3 * engine.layout.page_bytes
        assert np.array_equal(got, want)
    with Engine.load("nano", threads=1, context=2048, kv="q8", spill=1 << 30) as other:
        assert _prefill(other, TEXT)[0].recalled_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["bit", "short", "gone"])
def test_a_damaged_page_is_computed(engine: Engine, folder: Path, damage: str) -> None:
    """From the first page that is not as it was written on all is computed, without an error."""
    _, want = _prefill(engine, TEXT)
    _evict(engine)
    keys = [name[:64] for name in page_keys(engine, TEXT)]
    (second,) = (path for path in _files(folder) if path.name.startswith(keys[1]))
    data = bytearray(second.read_bytes())
    data[1234] ^= 4
    second.unlink()
    if damage != "gone":
        second.write_bytes(data if damage == "bit" else data[:-1])
    phase, got = _prefill(engine, TEXT)

    assert np.array_equal(got, want)
    assert phase.recalled_bytes == engine.layout.page_bytes
    assert not second.exists()


@pytest.mark.slow
def test_no_disk_where_computing_is_quicker(engine: Engine, folder: Path) -> None:
    """Pages are neither written nor read at a rate at which that takes longer."""
    engine.spill.rate = 1.0
    _prefill(engine, TEXT)
    _evict(engine)
    assert _files(folder) == []
    engine.spill.rate = 1e15
    _prefill(engine, TEXT)
    _evict(engine)
    engine.spill.rate = 1.0
    assert _prefill(engine, TEXT)[0].recalled_bytes == 0


@pytest.mark.slow
def test_files_are_bounded(engine: Engine, folder: Path) -> None:
    """They take no more than was allowed; what was used of late and is dear to compute stays."""
    size = engine.layout.page_bytes
    engine.spill.most_bytes = 3 * size
    for first in range(3):
        _prefill(engine, [first, *TEXT[: 2 * PAGE]])
        _evict(engine)
        assert sum(path.stat().st_size for path in _files(folder)) <= 3 * size
    last = [name[:64] for name in page_keys(engine, [2, *TEXT[: 2 * PAGE - 1]])]
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
    before = engine.layout.memory.used
    assert engine.prefix_cache.evict(1 << 40) > 0
    assert engine.layout.memory.used < before
    assert engine.spill._pending == 0


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


def test_it_can_be_turned_off(engine: Engine, folder: Path) -> None:
    """0 bytes: nothing is written, nothing is read, nothing is made."""
    engine.spill.most_bytes = 0
    _prefill(engine, TEXT)
    _evict(engine)
    assert not folder.exists()
    with pytest.raises(SettingError, match="spill must be"):
        Engine.load("nano", spill=-1)
