"""Sessions on disk: the same tokens after as before, and nothing damaged or foreign is used."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.alone import read_alone

from triplepoint.errors import EngineError
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.runtime import checked_files
from triplepoint.runtime.engine.engine import Engine

IDS = np.random.default_rng(8).integers(0, tiny.VOCAB, 600).tolist()
MakeModel = Callable[[str], Path]


@pytest.fixture(scope="module", params=["bf16", "k16v8", "q8", "f32"])
def engine(request: pytest.FixtureRequest, tiny_model: MakeModel) -> Iterator[Engine]:
    with Engine.load(tiny_model("q8_0"), threads=2, kv=request.param) as engine:
        yield engine


@pytest.fixture(scope="module")
def one(tiny_model: MakeModel) -> Iterator[Engine]:
    """For what does not depend on the format."""
    with Engine.load(tiny_model("q8_0"), threads=2) as engine:
        yield engine


def _pages(folder: Path) -> list[Path]:
    """The page files in the order of their positions."""
    body = json.loads(checked_files.read_sealed(folder / "index.json"))
    return [folder / f"{name}.kv" for name, _ in body["pages"]]


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the index and seal it again, as someone would who may write it."""
    body = json.loads(checked_files.read_sealed(folder / "index.json"))
    change(body)
    checked_files.write_sealed(folder / "index.json", body)


def test_goes_on_bit_for_bit(engine: Engine, tmp_path: Path) -> None:
    """Tokens, cache and what comes next are those of a session that was never put away."""
    session = read_alone(engine, IDS)
    list(session.decode(max_tokens=5))
    session.save(tmp_path)
    expected = list(session.decode(max_tokens=8))

    again = engine.load_session(tmp_path)
    assert (again.tokens, again.n_cached, again.restore_error) == (session.tokens[:605], 604, "")
    phase = again.prefill([])
    assert phase.tokens == 1
    assert list(again.decode(max_tokens=8)) == expected


def test_only_new_pages_are_written(one: Engine, tmp_path: Path) -> None:
    """A second save writes the page that has changed, and removes what it was before."""
    session = read_alone(one, IDS)
    size = session.sequence.cache.page_bytes
    assert session.save(tmp_path).written == 3 * size
    assert session.save(tmp_path).written == 0
    session.prefill(IDS[:10])
    assert session.save(tmp_path).written == size
    session.truncate(300)
    session.prefill(IDS[300:400])
    assert session.save(tmp_path).written == size
    assert len(list(tmp_path.glob("*.kv"))) == 2
    assert one.load_session(tmp_path).tokens == IDS[:400]


def test_for_this_user_alone(one: Engine, tmp_path: Path) -> None:
    """The folder and every file can be read by nobody else, and no temporary one is left."""
    folder = tmp_path / "kept"
    read_alone(one, IDS).save(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".kv", ".kv", ".kv"]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def _link(path: Path) -> None:
    other = path.with_suffix(".elsewhere")
    path.rename(other)
    path.symlink_to(other)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_flip, "is damaged: its SHA-256 does not match"),
        (_cut, "bytes instead of"),
        (Path.unlink, "is missing"),
        (_link, "cannot be read"),
        (_pipe, "it is a FIFO, not a regular file"),
    ],
)
@pytest.mark.parametrize("number", [0, 2])
def test_a_page_that_is_not_as_it_was(
    one: Engine, tmp_path: Path, damage: Callable[[Path], None], says: str, number: int
) -> None:
    """It is refused and computed again, with what follows it; what comes next is the same."""
    session = read_alone(one, IDS)
    session.save(tmp_path)
    expected = list(session.decode(max_tokens=6))
    damage(_pages(tmp_path)[number])

    again = one.load_session(tmp_path)
    assert again.n_cached == number * 256
    assert f"page {number + 1} of 3 on disk" in again.restore_error
    assert says in again.restore_error
    assert list(again.decode(max_tokens=6)) == expected
    again.truncate(600)
    again.save(tmp_path)  # writes it again
    assert one.load_session(tmp_path).restore_error == ""


def test_an_index_cut_anywhere_is_refused(one: Engine, tmp_path: Path) -> None:
    """Cut at many places, or with a byte changed, it is an error that names the file."""
    read_alone(one, IDS).save(tmp_path)
    path = tmp_path / "index.json"
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at])
        with pytest.raises(EngineError, match=r"index\.json is damaged"):
            one.load_session(tmp_path)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(EngineError, match=r"index\.json is"):
            one.load_session(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("tokens"),
        lambda body: body.update(version=99),
        lambda body: body.update(cached=10**9),
        lambda body: body.update(cached=-1),
        lambda body: body.update(tokens="abc"),
        lambda body: body.update(tokens=[1.5] * 600),
        lambda body: body.update(tokens=[10**30] * 600),
        lambda body: body.update(tokens=[-1] * 600),
        lambda body: body.update(tokens=[1] * 5000),
        lambda body: body.update(pages=[["../../../etc/passwd"]]),
        lambda body: body.update(pages=[[1, 2]]),
        lambda body: body.update(of=[]),
    ],
)
def test_a_hostile_index_is_refused(
    one: Engine, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """One that has a right hash and wrong contents is an error too, and nothing worse."""
    read_alone(one, IDS).save(tmp_path)
    _rewrite(tmp_path, change)
    with pytest.raises(EngineError):
        one.load_session(tmp_path)


def test_other_tokens_find_no_page(one: Engine, tmp_path: Path) -> None:
    """Pages belong to the tokens up to their end: with another token in the index none is used."""
    read_alone(one, IDS).save(tmp_path)
    _rewrite(tmp_path, lambda body: body["tokens"].__setitem__(300, (IDS[300] + 1) % tiny.VOCAB))
    again = one.load_session(tmp_path)
    assert again.n_cached == 256
    assert "page 2 of 3 on disk is missing" in again.restore_error


def test_of_an_older_version(one: Engine, tmp_path: Path) -> None:
    """Pages in another layout are refused with what to do; neither they nor the tokens are lost."""
    read_alone(one, IDS).save(tmp_path)
    _rewrite(tmp_path, lambda body: body["of"].update(layout="0" * 64))
    _rewrite(tmp_path, lambda body: body["of"].pop("keys"))
    there = sorted(tmp_path.iterdir())
    with pytest.raises(
        EngineError,
        match=r"keys: None there, .* here; layout: of another version of triplepoint\), so its "
        r"tokens have to be prefilled again; index\.json has them",
    ):
        one.load_session(tmp_path)

    assert sorted(tmp_path.iterdir()) == there
    assert json.loads(checked_files.read_sealed(tmp_path / "index.json"))["tokens"] == IDS


@pytest.mark.slow
def test_of_something_else(one: Engine, tiny_model: MakeModel, tmp_path: Path) -> None:
    """Another model, format or target is refused by name."""
    read_alone(one, IDS).save(tmp_path)
    loads: list[tuple[str, dict[str, Any], str]] = [
        ("f32", {}, "model: "),
        ("q8_0", {"kv": "q8"}, "kv: bf16 there, q8 here"),
        ("q8_0", {"target": "generic"}, "target: "),
    ]
    for kind, settings, says in loads:
        with (
            Engine.load(tiny_model(kind), threads=1, **settings) as other,
            pytest.raises(EngineError, match=says),
        ):
            other.load_session(tmp_path)
    with pytest.raises(EngineError, match="600 tokens, but the context holds 500"):
        one.load_session(tmp_path, context=500)
    with pytest.raises(EngineError, match="there is no session"):
        one.load_session(tmp_path / "nowhere")


def test_a_save_that_fails_leaves_the_one_before(
    one: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the midst of it: the error is told, and the earlier session is whole."""
    session = read_alone(one, IDS)
    session.save(tmp_path)
    session.prefill(IDS[:200])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(EngineError, match="No space left on device"):
            session.save(tmp_path)
    assert one.load_session(tmp_path).tokens == IDS
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_page_that_cannot_be_opened_now_stays(
    one: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when too many files are open: it is computed again, and is there the next time."""
    session = one.session()
    session.prefill([n % 290 for n in range(2 * PAGE)])
    session.save(tmp_path / "s")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(checked_files, "_mapped", refuse)
        loaded = one.load_session(tmp_path / "s")
    assert loaded.n_cached == 0
    assert "Too many open files" in loaded.restore_error
    assert one.load_session(tmp_path / "s").n_cached == session.n_cached


def test_nothing_else_in_the_folder_is_touched(one: Engine, tmp_path: Path) -> None:
    """A folder may have files of its own; what goes is only what a killed save has left there."""
    page = "0123456789abcdef" * 4
    kept = [".env", "notes.state", "old.kv", ".git/config", f".{page}.kv.12.0123abcd", "a.json"]
    gone = [f"{page}.kv", f"{page}-far.kv", f"{page}.state", f".{page}.state.9.89abcdef"]
    gone.append(".index.json.77.00000000")
    for name in (*kept, *gone):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        if name in gone:
            os.utime(path, (1e9, 1e9))

    read_alone(one, IDS).save(tmp_path)

    assert [name for name in kept if not (tmp_path / name).exists()] == []
    assert [name for name in gone if (tmp_path / name).exists()] == []


def test_two_sessions_in_one_folder(one: Engine, tmp_path: Path) -> None:
    """The last save is the one that is found; neither takes away what the other is writing."""
    sessions = [one.session(), one.session()]
    for n, session in enumerate(sessions):
        session.prefill([(n + i) % 290 for i in range(3 * PAGE)])
    with ThreadPoolExecutor(2) as threads:
        for _ in range(10):
            list(threads.map(lambda session: session.save(tmp_path), sessions))
    assert one.load_session(tmp_path).tokens in [session.tokens for session in sessions]


def test_not_through_a_link(one: Engine, tmp_path: Path) -> None:
    """A folder that is a link to another place is not written to."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(EngineError, match="not a folder that you own"):
        read_alone(one, IDS).save(tmp_path / "link")
    assert not list((tmp_path / "real").iterdir())


def test_the_hashes_are_sha256(one: Engine, tmp_path: Path) -> None:
    """What the index says of a page is the SHA-256 that any other program computes."""
    read_alone(one, IDS).save(tmp_path)
    body = json.loads(checked_files.read_sealed(tmp_path / "index.json"))
    for name, digest in body["pages"]:
        assert hashlib.sha256((tmp_path / f"{name}.kv").read_bytes()).hexdigest() == digest
