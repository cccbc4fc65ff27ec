"""A model's file is cut, overwritten, replaced or removed while an engine has it mapped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import tiny_qwen3 as tiny
from helpers.tiers import quick

from triplepoint import Agent, Engine, Trace
from triplepoint.errors import ModelError
from triplepoint.runtime.agent.events import TextDelta
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.engine.passes.runner import LOOK_S
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.runtime.weights import packed_cache
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


@pytest.mark.slow
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
def test_strings_that_are_read_late(path: Path, change: Change) -> None:
    """Strings of metadata are decoded when they are first needed; not of a changed file."""
    with open_gguf(path) as gguf:
        merges = gguf.strings("tokenizer.ggml.merges")
    assert merges is not None
    change(path)

    with pytest.raises(ModelError, match="changed while in use"):
        list(merges)


def test_a_tokenizer_needs_the_file_no_more(path: Path) -> None:
    """Not even for its first text."""
    with open_gguf(path) as gguf:
        tokenizer, other = Tokenizer.from_gguf(gguf), Tokenizer.from_gguf(gguf)
    ids = other.encode("hello")
    cut(path)

    assert tokenizer.encode("hello") == ids
    assert tokenizer.decode(ids) == "hello"


def test_a_packed_copy_that_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are mapped from their packed copy are looked at as well."""
    monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
    path = tmp_path / "model.gguf"
    tiny.write_tiny(path, "q8_0")
    Engine.load(path, threads=1, cache_packed_weights=True).close()
    with Engine.load(path, threads=1, cache_packed_weights=True) as engine:
        assert engine.loaded.packed_cache is not None
        assert engine.loaded.packed_cache.mapped
        session = engine.session()
        session.prefill(PROMPT)
        (copy,) = (tmp_path / "packed").iterdir()
        os.truncate(copy, 4096)
        time.sleep(2 * LOOK_S)

        with pytest.raises(ModelError, match=r"the packed copy .* was changed while in use"):
            session.prefill(PROMPT)


_BEGIN = """
import os, random, shutil, sys, threading, time
from triplepoint import Engine
from triplepoint.errors import ModelError
from triplepoint.jit import sigbus

source, path = sys.argv[1:]
rng, came = random.Random(5), 0

def copied():
    shutil.copy(source, path + ".new")
    os.replace(path + ".new", path)

def cut_after(seconds):
    def cut():
        time.sleep(seconds)
        os.truncate(path, 0)
    thread = threading.Thread(target=cut)
    thread.start()
    return thread

def said(error):
    assert path in str(error) and "changed while in use" in str(error), error
"""


def _in_a_child(code: str, source: Path, path: Path) -> str:
    """What the code prints; a signal would end the process that it runs in."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + textwrap.dedent(code), str(source), str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mappings are guarded on Linux")
def test_cut_between_the_look_and_the_read(path: Path) -> None:
    """What the pass then reads are zeros, and it ends with the error instead of its logits."""
    out = _in_a_child(
        """
        for _ in range(5):
            copied()
            with Engine.load(path, threads=2) as engine:
                session = engine.session()
                session.prefill([1, 2, 3])
                before = sigbus.faults[0]
                os.truncate(path, 0)
                engine.core.runner._looked = float("inf")  # as if the look had come just before
                for _ in range(2):
                    try:
                        session.prefill([4, 5, 6])
                    except ModelError as error:
                        said(error)
                        came += 1
                assert sigbus.faults[0] > before and not session.sequence.has_logits
        print(came)
        """,
        NANO,
        path,
    )
    assert out == "10\n"


@pytest.mark.parametrize("times", quick([10, 30], 10))
def test_cut_at_any_time(path: Path, times: int) -> None:
    """While it is loaded and while it reads a prompt: an error that names the file, or nothing."""
    out = _in_a_child(
        """
        began = time.perf_counter()
        Engine.load(path, threads=2).close()
        took = time.perf_counter() - began
        for n in range(TIMES):
            copied()
            thread = cut_after(rng.random() * 1.5 * took)
            try:
                with Engine.load(path, threads=2) as engine:
                    session = engine.session()
                    while thread.is_alive():
                        session = engine.session()
                        session.prefill([rng.randrange(2000) for _ in range(200)])
                    time.sleep(0.002)
                    session.prefill([1])
            except ModelError as error:
                assert path in str(error), error
                came += 1
            thread.join()
        print(came)
        """.replace("TIMES", str(times)),
        NANO,
        path,
    )
    assert int(out) == times
