"""A model's file is cut, overwritten, replaced or removed while an engine has it mapped."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint import Agent, Engine, Trace
from triplepoint.errors import ModelError
from triplepoint.runtime.agent.events import TextDelta
from triplepoint.runtime.gguf.file import GGUFFile
from triplepoint.runtime.inference.engine import LOOK_S, NANO
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.runtime.weights.packed_copy import default_folder
from triplepoint.traces.events import RunEnd

PROMPT = [1, 2, 3, 4, 5]
Change = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model that may be spoiled."""
    return Path(shutil.copy(NANO, tmp_path / "model.gguf"))


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    with Engine.load(path, threads=1) as engine:
        yield engine


def cut(path: Path) -> None:
    """A lost page of the mapping would end the process with SIGBUS."""
    os.truncate(path, 4096)
    time.sleep(2 * LOOK_S)


def overwritten(path: Path) -> None:
    """Other bytes than were checked would be read, without a sign."""
    with path.open("r+b") as file:
        file.seek(-2_000_000, os.SEEK_END)
        file.write(bytes(1_000_000))
    time.sleep(2 * LOOK_S)


def replaced(path: Path) -> None:
    """As a new download does, or an editor that is careful."""
    other = path.with_suffix(".new")
    other.write_bytes(b"something else")
    other.replace(path)


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [cut, overwritten])
def test_a_run_ends_with_an_error(
    engine: Engine, path: Path, tmp_path: Path, change: Change
) -> None:
    """In the midst of an answer too; the error says what to do, and the trace has it."""
    work, file = tmp_path / "work", tmp_path / "run.jsonl"
    work.mkdir()
    (work / "notes.txt").write_text("call the plumber\n" * 40)
    with Agent(engine, workspace=work, trace=file, max_tokens=200) as agent:
        events = agent.stream("What is on lines 1 to 9 of notes.txt?")
        for event in events:
            if isinstance(event, TextDelta):
                break
        assert agent.session.tokens
        change(path)
        with pytest.raises(ModelError, match=r"model\.gguf was changed while in use .*load it ag"):
            list(events)
        with pytest.raises(ModelError, match="changed while in use"):
            agent.run("And now?")

    ends = [event for event in Trace.load(file).events if isinstance(event, RunEnd)]
    assert [end.status for end in ends] == ["error", "error"]
    assert "changed while in use" in ends[0].message


@pytest.mark.parametrize("change", [replaced, removed])
def test_a_new_file_under_the_name_does_no_harm(engine: Engine, path: Path, change: Change) -> None:
    """The mapping keeps the file that it was made of: the same tokens come."""
    session = engine.session()
    session.prefill(PROMPT)
    tokens = list(session.decode(max_tokens=8))
    change(path)
    time.sleep(2 * LOOK_S)

    session.truncate(0)
    session.prefill(PROMPT)
    assert list(session.decode(max_tokens=8)) == tokens


@pytest.mark.parametrize("change", [cut, overwritten])
def test_a_vocabulary_that_is_read_late(path: Path, change: Change) -> None:
    """The strings of a vocabulary are decoded when they are first needed; not of a changed file."""
    with GGUFFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf)
    change(path)

    with pytest.raises(ModelError, match="changed while in use"):
        tokenizer.encode("hello")


def test_what_was_read_before_is_kept(path: Path) -> None:
    """A tokenizer that has read its vocabulary needs the file no more."""
    with GGUFFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf)
    ids = tokenizer.encode("hello")
    cut(path)

    assert tokenizer.encode("hello") == ids
    assert tokenizer.decode(ids) == "hello"


def test_a_packed_copy_that_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are mapped from their packed copy are looked at as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    tiny.write_tiny(path, "q8_0")
    Engine.load(path, threads=1, keep_packed=True).close()
    with Engine.load(path, threads=1, keep_packed=True) as engine:
        assert engine.kept is not None
        assert engine.kept.mapped
        session = engine.session()
        session.prefill(PROMPT)
        (copy,) = default_folder().iterdir()
        os.truncate(copy, 4096)
        time.sleep(2 * LOOK_S)

        with pytest.raises(ModelError, match=r"the packed copy .* was changed while in use"):
            session.prefill(PROMPT)
