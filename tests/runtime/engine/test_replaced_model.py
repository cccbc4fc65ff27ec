"""A model's file is replaced or removed at any time after it was opened: what was loaded counts.

Each test has two files whose weights differ, with the same name and size.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.other_weights import change_weights
from helpers.splits import split_gguf

from triplepoint import Agent, Engine, Trace, replay
from triplepoint.errors import EngineError, ModelError, ReplayError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime import models
from triplepoint.runtime.agent.session_store import open_conversation
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.engine.kv import spill
from triplepoint.runtime.engine.passes.runner import LOOK_S
from triplepoint.runtime.gguf import filehash
from triplepoint.runtime.gguf.mapped_file_guard import MappedFileGuard
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.weights import packed_cache

QUESTION = "Which files are here?"
IDS = np.random.default_rng(8).integers(0, 2000, 2 * PAGE + 9).tolist()
Change = Callable[[], object]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that comes in the place of nano's."""
    return change_weights(Path(shutil.copy(NANO, tmp_path_factory.mktemp("new") / "new.gguf")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(NANO, tmp_path / "model.gguf"))


@pytest.fixture
def swap(path: Path, new: Path) -> Change:
    """Puts the other file under the name, as `mv` does."""
    return lambda: Path(shutil.copy(new, path.with_suffix(".new"))).replace(path)


@pytest.fixture(params=["replaced", "removed"])
def change(request: pytest.FixtureRequest, path: Path, swap: Change) -> Change:
    return swap if request.param == "replaced" else path.unlink


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("one\ntwo\n")
    return tmp_path / "work"


@pytest.fixture
def load() -> Iterator[Callable[..., Engine]]:
    """Loads with one thread; all are closed in the end."""
    made: list[Engine] = []

    def loaded(path: Path, **more: Any) -> Engine:
        made.append(Engine.load(path, threads=1, context=2048, **more))
        return made[-1]

    yield loaded
    for engine in made:
        engine.close()


def _logits(engine: Engine) -> np.ndarray:
    session = engine.session()
    session.prefill([1, 2, 3])
    return session.logits.copy()


def test_while_it_is_loaded(
    load: Callable[..., Engine], path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of the header and the packing: the engine is of what was opened."""
    want = _logits(load(NANO))

    def build(*given: Any, **more: Any) -> Any:
        change()
        return real(*given, **more)

    real = models.build
    monkeypatch.setattr(models, "build", build)
    engine = load(path)

    assert np.array_equal(_logits(engine), want)
    assert engine.model.sha256 == _digest(NANO)


def test_before_the_first_agent(
    load: Callable[..., Engine], path: Path, work: Path, change: Change
) -> None:
    """The trace has the hash of what was loaded, and replays with that; not with what is there."""
    engine = load(path)
    change()
    with Agent(engine, workspace=work, trace=work.parent / "run.jsonl") as agent:
        agent.run(QUESTION)
    trace = Trace.load(work.parent / "run.jsonl")

    assert trace.header is not None
    assert trace.header.model.sha256 == _digest(NANO)
    assert replay.verify(trace, load(NANO)).ok
    if path.exists():
        with pytest.raises(ReplayError, match=r"model\.sha256 differs"):
            replay.verify(trace, load(path))


def test_before_a_replay(
    load: Callable[..., Engine], path: Path, new: Path, work: Path, swap: Change
) -> None:
    """`verify` compares with what was loaded, in both directions."""
    traces: list[Trace] = []
    for n, file in enumerate((NANO, new)):
        where = work.parent / f"{n}.jsonl"
        with Agent(load(file), workspace=work, trace=where, max_tokens=8) as agent:
            list(agent.stream(QUESTION))
        traces.append(Trace.load(where))
    engine = load(path)
    swap()

    assert replay.verify(traces[0], engine).ok
    with pytest.raises(ReplayError, match=r"model\.sha256 differs"):
        replay.verify(traces[1], engine)


def test_a_session_that_is_saved_then(
    load: Callable[..., Engine], path: Path, work: Path, swap: Change
) -> None:
    """The new model does not take over the pages of the old one; the old one does."""
    engine, root = load(path), work.parent / "sessions"
    swap()
    with open_conversation("it", root) as kept, Agent(engine, workspace=work, trace=False) as agent:
        agent.run(QUESTION)
        kept.save(agent)
    other = load(path)

    with open_conversation("it", root) as kept, Agent(other, workspace=work, trace=False) as agent:
        assert kept.resume(agent) == [
            "session it was saved with another model, so it is read again"
        ]
    with open_conversation("it", root) as kept, Agent(engine, workspace=work, trace=False) as agent:
        (line,) = kept.resume(agent)
        assert line.startswith("session it continues: ")
    with pytest.raises(EngineError, match=r"saved with other settings .model: "):
        other.load_session(root / "it")


def test_prefixes_on_disk(
    load: Callable[..., Engine],
    path: Path,
    swap: Change,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages that the old model lets go of then are not read back by the new one."""
    monkeypatch.setattr(spill, "folder", lambda: tmp_path / "prefixes")
    monkeypatch.setattr(spill, "READ_RATE", 1e15)
    monkeypatch.setattr(spill, "WEIGHT", 0.0)

    def recalled(engine: Engine) -> int:
        session = engine.session()
        session.sequence.shares = True
        found = session.prefill(IDS).recalled_bytes
        session.close()
        engine.core.prefix_cache.evict(1 << 40)
        engine.core.spill.flush()
        return found // engine.loaded.layout.page_bytes

    engine = load(path, spill=1 << 30)
    swap()
    other = load(path, spill=1 << 30)
    assert [recalled(one) for one in (engine, other, engine)] == [0, 0, 2]


@pytest.mark.parametrize("packed", [False, True], ids=["packs", "maps"])
def test_the_packed_copy(
    load: Callable[..., Engine],
    path: Path,
    new: Path,
    swap: Change,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed: bool,
) -> None:
    """It is of the file that was opened: the next load of the new file does not find it."""
    monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
    old, want = _logits(load(NANO)), _logits(load(new))
    if packed:
        load(path, cache_packed_weights=True)

    def identified(weights: Any) -> Any:
        swap()
        monkeypatch.undo()
        monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
        return real(weights)

    real = packed_cache.Identity.of
    monkeypatch.setattr(packed_cache.Identity, "of", identified)
    engine = load(path, cache_packed_weights=True)
    assert engine.loaded.packed_cache is not None
    assert engine.loaded.packed_cache.mapped is packed
    assert np.array_equal(_logits(engine), old)
    assert engine.model.sha256 == _digest(NANO)

    other = load(path, cache_packed_weights=True)
    assert np.array_equal(_logits(other), want)
    assert other.model.sha256 == _digest(new)


def test_a_packed_copy_of_a_file_with_the_same_time(
    load: Callable[..., Engine], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with one other matrix, between the samples of the file, does not get the old copy."""
    monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
    load(path, cache_packed_weights=True)
    before, new = path.stat(), Path(shutil.copy(path, tmp_path / "new"))
    with open_gguf(new) as gguf:
        sampled = gguf.files[0].sampled()
        matrices = [one for one in gguf.tensors.values() if one.name.endswith("attn_k.weight")]
    for matrix in matrices:
        shutil.copy(path, new)
        middle = matrix.offset + matrix.nbytes // 2
        with new.open("r+b") as file:
            file.seek(middle)
            data = file.read(400)
            file.seek(middle)
            file.write(bytes(byte ^ 1 for byte in data))
        with open_gguf(new) as gguf:
            if gguf.files[0].sampled() == sampled:
                break
    else:
        raise AssertionError("all of them are sampled")
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(path)

    want = _logits(load(path))
    engine = load(path, cache_packed_weights=True)
    assert engine.loaded.packed_cache is not None
    assert not engine.loaded.packed_cache.mapped
    assert np.array_equal(_logits(engine), want)


def test_the_parts_of_a_split_model(load: Callable[..., Engine], tmp_path: Path, new: Path) -> None:
    """Each is the one that was opened; one that is overwritten is named, also where no pass reads
    of it any more."""
    (tmp_path / "new").mkdir()
    parts = split_gguf(NANO, tmp_path, "nano", tensors=20)
    others = split_gguf(new, tmp_path / "new", "nano", tensors=20)
    digests = hashlib.sha256("".join(map(_digest, parts)).encode()).hexdigest()
    assert len(parts) > 1
    engine = load(parts[0])
    want = _logits(engine)
    for part, other in zip(parts, others, strict=True):
        other.replace(part)
    parts[-1].unlink()
    assert engine.model.sha256 == digests
    assert np.array_equal(_logits(engine), want)

    parts = split_gguf(NANO, tmp_path, "again", tensors=20)
    engine = load(parts[0])
    parts[-1].write_bytes(parts[-1].read_bytes())
    time.sleep(2 * LOOK_S)
    for use in (lambda: engine.model.sha256, lambda: _logits(engine)):
        with pytest.raises(ModelError, match=rf"{parts[-1].name} was changed while in use"):
            use()


def test_overwritten_before_the_first_agent(
    load: Callable[..., Engine], path: Path, work: Path
) -> None:
    """What was loaded cannot be hashed any more: an error names the file."""
    engine = load(path)
    change_weights(path)
    with pytest.raises(ModelError, match=r"model\.gguf was changed while in use .*; load it again"):
        Agent(engine, workspace=work, trace=False)
    with pytest.raises(ModelError, match="changed while in use"):
        engine.session().save(work.parent / "kept")


def test_facts_that_are_copied(load: Callable[..., Engine], path: Path, swap: Change) -> None:
    """Copies have the hash of what was loaded, and leave the open file alone."""
    model = load(path).model
    swap()
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (copied, copied.sha256) == (model, _digest(NANO))
    for file in dataclasses.asdict(load(path).model)["files"]:
        file.check()


def test_loading_hashes_nothing(
    load: Callable[..., Engine], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of gigabytes would take seconds."""

    def never(*_: object) -> str:
        raise AssertionError("it was hashed")

    with monkeypatch.context() as patch:
        patch.setattr(filehash, "sha256_of_open", never)
        patch.setattr(MappedFileGuard, "sha256", never)
        engine = load(path)
    assert engine.model.sha256 == _digest(path)
