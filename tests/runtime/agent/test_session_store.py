"""Conversations with a name: they go on in another process as if nothing had happened."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.agents import END, MakeEngine

from triplepoint.errors import AgentError
from triplepoint.runtime import checked_files
from triplepoint.runtime.agent import session_list, session_store
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import PhaseFinished
from triplepoint.runtime.agent.session_list import list_sessions
from triplepoint.runtime.agent.session_store import (
    SavedConversation,
    last_session,
    open_conversation,
)
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces import Trace

FIRST, SECOND = "Which files are here?", "What is on line 2 of notes.txt?"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", context=2048) as engine:
        yield engine


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("one\ntwo\n")
    return tmp_path / "work"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def _agent(engine: Engine, work: Path, **settings: Any) -> Agent:
    settings.setdefault("trace", False)
    return Agent(engine, workspace=work, **settings)


def _ask(agent: Agent, question: str) -> list[Any]:
    return list(agent.stream(question))


def _kept(engine: Engine, work: Path, root: Path) -> tuple[list[int], str]:
    """Keep a conversation of one question; gives what becomes of it with the second one."""
    agent = _agent(engine, work, trace=root.parent / "first.jsonl")
    _ask(agent, FIRST)
    root.parent.mkdir(exist_ok=True)
    with open_conversation("it", root) as kept:
        kept.save(agent)
    _ask(agent, SECOND)
    agent.close()
    assert agent.last_result is not None
    return list(agent.ledger.ids), agent.last_result.answer


def test_goes_on_as_if_it_had_never_ended(engine: Engine, work: Path, root: Path) -> None:
    """The same tokens, nothing recomputed, and a trace that can be replayed."""
    ids, answer = _kept(engine, work, root)
    path = root.parent / "run.jsonl"
    with open_conversation("it", root) as kept:
        agent = _agent(engine, work, trace=path)
        (line,) = kept.resume(agent)
        assert agent.turn == 1
        events = _ask(agent, SECOND)
        agent.close()

    assert line.startswith("session it continues: ")
    assert agent.ledger.ids == ids
    assert agent.last_result is not None
    assert agent.last_result.answer == answer
    (first, *_) = [e for e in events if isinstance(e, PhaseFinished) and e.reuse]
    assert first.phase.tokens < 40
    trace = Trace.load(path)
    assert trace.phases[0].purpose == "session"
    assert trace.phases[0].tokens == 0
    assert trace.header is not None
    first_run = Trace.load(root.parent / "first.jsonl")
    assert trace.header.parent == first_run.events[0].run
    assert verify(trace, engine).ok


def test_what_is_no_text_is_read_back(engine: Engine, work: Path, root: Path) -> None:
    """Bytes of an argument that are no UTF-8 do not make a session unreadable."""
    odd = work.parent / "caf\udce9"
    odd.mkdir()
    agent = _agent(engine, odd)
    _ask(agent, "What is in caf\udce9\ud83dx?")
    root.parent.mkdir(exist_ok=True)
    with open_conversation("it", root) as kept:
        kept.save(agent)
    with open_conversation("it", root) as kept:
        other = _agent(engine, odd)
        (line,) = kept.resume(other)

    assert line.startswith("session it continues: ")
    asked = next(message for message in other.messages if message.role == "user")
    assert asked.content == "What is in caf\ufffd\ufffdx?"
    assert other.ledger.ids == agent.ledger.ids


def test_undo_after_it_went_on(engine: Engine, work: Path, root: Path) -> None:
    """The question of the process before can be taken back too."""
    _kept(engine, work, root)
    agent = _agent(engine, work)
    with open_conversation("it", root) as kept:
        kept.resume(agent)
    assert agent.undo() == FIRST
    _ask(agent, FIRST)
    fresh = _agent(engine, work)
    _ask(fresh, FIRST)
    assert agent.ledger.ids == fresh.ledger.ids


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _older(path: Path) -> None:
    """As a version saved it whose pages had another layout."""
    body = json.loads(checked_files.read_sealed(path))
    body["of"]["layout"] = "0" * 64
    checked_files.write_sealed(path, body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "damage", "says"),
    [
        ("*.kv", _flip, "is damaged: its SHA-256 does not match"),
        ("*.kv", Path.unlink, "is missing"),
        ("index.json", _flip, "is damaged: its SHA-256 does not match"),
        ("index.json", Path.unlink, "there is no session"),
        ("index.json", lambda path: path.write_bytes(b""), "is damaged"),
        ("index.json", _older, "layout: of another version of triplepoint"),
    ],
)
def test_a_damaged_cache_costs_time_and_nothing_else(
    engine: Engine, work: Path, root: Path, file: str, damage: Callable[[Path], object], says: str
) -> None:
    """It is refused and said, the tokens are recomputed, and the text is the same."""
    ids, answer = _kept(engine, work, root)
    (path,) = (root / "it").glob(file)
    damage(path)
    agent = _agent(engine, work)
    with open_conversation("it", root) as kept:
        lines = kept.resume(agent)
        events = _ask(agent, SECOND)
        kept.save(agent)

    assert lines[0].startswith("session it continues: 0 of ")
    assert lines[1].startswith("the rest is recomputed: ")
    assert says in lines[1]
    assert agent.ledger.ids == ids
    assert agent.last_result is not None
    assert agent.last_result.answer == answer
    (first, *_) = [e for e in events if isinstance(e, PhaseFinished) and e.reuse]
    assert first.reuse is not None
    assert first.reuse.miss is not None
    assert says in first.reuse.miss.why
    assert "thinking" not in str(agent.last_result.usage.reuse)
    assert engine.load_session(root / "it").restore_error == ""  # mended by the save


def test_a_save_that_was_killed_between_its_files(engine: Engine, work: Path, root: Path) -> None:
    """A conversation that is newer than its cache: what it has more is read."""
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    with open_conversation("it", root) as kept:
        kept.save(agent)
        old = (root / "it" / "index.json").read_bytes()
        pages = {path: path.read_bytes() for path in (root / "it").glob("*.kv")}
        _ask(agent, SECOND)
        kept.save(agent)
        (root / "it" / "index.json").write_bytes(old)
        for path, data in pages.items():
            path.write_bytes(data)
    again = _agent(engine, work)
    with open_conversation("it", root) as kept:
        kept.resume(again)
    _ask(agent, "Hello!")
    _ask(again, "Hello!")
    assert again.ledger.ids == agent.ledger.ids == again.session.tokens


def _rewrite(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the conversation and seal it again, as someone would who may write it."""

    def rewrite(path: Path) -> None:
        body = json.loads(checked_files.read_sealed(path))
        change(body)
        checked_files.write_sealed(path, body)

    return rewrite


@pytest.mark.parametrize(
    "damage",
    [
        _flip,
        lambda path: os.truncate(path, 100),
        lambda path: path.write_bytes(b"\0" * 1000),
        _rewrite(lambda body: body.pop("messages")),
        _rewrite(lambda body: body.update(messages=[{"role": "root"}])),
        _rewrite(lambda body: body.update(version=2)),
        _rewrite(lambda body: body["spans"].pop(1)),
        _rewrite(lambda body: body["ids"].append(1)),
        _rewrite(lambda body: body["marks"][0][0].update(tokens=10**9)),
        _rewrite(lambda body: body["ids"].__setitem__(0, -5)),
    ],
)
def test_a_damaged_conversation_is_refused(
    engine: Engine, work: Path, root: Path, damage: Callable[[Path], object]
) -> None:
    """Without what was said nothing can go on: an error says so, and nothing is removed."""
    _kept(engine, work, root)
    path = root / "it" / "conversation.json"
    damage(path)
    agent = _agent(engine, work)
    with open_conversation("it", root) as kept, pytest.raises(AgentError, match="cannot continue"):
        kept.resume(agent)
    assert path.exists()
    assert not agent.messages
    _ask(agent, FIRST)  # and is none the worse for it


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../it", "a/b", "/etc", ".hidden", "a\0b", "a" * 65, "a b", "ä", "-x"]
)
def test_a_name_is_no_path(root: Path, name: str) -> None:
    """Nothing but plain names; what could lead elsewhere is refused before anything is made."""
    with pytest.raises(AgentError, match="is not a session name"):
        open_conversation(name, root)
    assert not root.exists()


def test_not_through_links(engine: Engine, work: Path, root: Path) -> None:
    """A link in the place of the session, its lock or its conversation leads nowhere."""
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    root.mkdir()
    (root / "it").symlink_to(elsewhere)
    with pytest.raises(AgentError, match="not a folder that you own"):
        open_conversation("it", root)
    (root / "other").mkdir()
    (root / "other" / "lock").symlink_to(elsewhere / "made")
    with pytest.raises(AgentError, match="cannot be opened"):
        open_conversation("other", root)
    assert not list(elsewhere.iterdir())
    _kept(engine, work, root.parent / "real")
    (root / "third").mkdir()
    real = root.parent / "real" / "it" / "conversation.json"
    (root / "third" / "conversation.json").symlink_to(real)
    with (
        open_conversation("third", root) as kept,
        pytest.raises(AgentError, match="cannot be read"),
    ):
        kept.resume(_agent(engine, work))


def test_for_this_user_alone(engine: Engine, work: Path, root: Path) -> None:
    """Nobody else can read what was said."""
    _kept(engine, work, root)
    folder = root / "it"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("change", ["system", "model"])
def test_with_another_model_or_other_tools(
    engine: Engine, work: Path, root: Path, scripted: MakeEngine, change: str
) -> None:
    """What was said goes on, read once more as the model is told it now."""
    _kept(engine, work, root)
    replies = scripted("Yes." + END)
    agent = Agent(replies, workspace=work, trace=False)
    if change == "system":
        agent = _agent(engine, work, system="Be brief.")
    with open_conversation("it", root) as kept:
        (line,) = kept.resume(agent)
        assert line == (
            "session it was saved with "
            f"{'other tools' if change == 'system' else 'another model'}, so it is read again"
        )
        _ask(agent, "And?")
    tokenizer = replies.tokenizer if change == "model" else engine.tokenizer
    said = tokenizer.decode(agent.session.tokens, special=True)
    assert FIRST in said
    assert "notes.txt" in said
    assert ("Be brief." in said) == (change == "system")
    assert agent.turn == 2


def test_the_last_one(engine: Engine, work: Path, root: Path) -> None:
    """It is the one that was kept last; one that was only opened does not count."""
    with pytest.raises(AgentError, match="no session to continue"):
        last_session(root)
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    for at, name in enumerate(("one", "two", "three")):
        with open_conversation(name, root) as kept:
            kept.save(agent)
        os.utime(root / name / "conversation.json", (at, at))
    open_conversation("four", root).close()
    assert last_session(root) == "three"
    os.utime(root / "one" / "conversation.json", (9, 9))
    assert last_session(root) == "one"


def test_the_oldest_caches_make_room(
    engine: Engine, work: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit the KV cache that was used longest ago goes; what was said stays."""
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    monkeypatch.setattr(session_store, "MAX_BYTES", 2 * agent.session.sequence.cache.page_bytes)
    held: SavedConversation | None = None
    for at, name in enumerate(("oldest", "old", "held", "new")):
        with open_conversation(name, root) as kept:
            kept.save(agent)
        os.utime(root / name / "conversation.json", (at, at))
        held = open_conversation("held", root) if name == "held" else held
    assert held is not None
    left = {folder.name for folder in root.iterdir() if list(folder.glob("*.kv"))}
    held.close()
    assert "oldest" not in left
    assert {"held", "new"} <= left
    again = _agent(engine, work)
    with open_conversation("oldest", root) as kept:
        assert "is missing" in kept.resume(again)[1]
    _ask(agent, SECOND)
    _ask(again, SECOND)
    assert again.ledger.ids == agent.ledger.ids


def test_a_full_disk_is_told(
    engine: Engine, work: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the session and the place; what was kept before is still whole."""
    ids, _ = _kept(engine, work, root)
    agent = _agent(engine, work)
    with open_conversation("it", root) as kept:
        kept.resume(agent)
        _ask(agent, SECOND)

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(AgentError, match=r"could not be saved: .*/it: No space left on"):
                kept.save(agent)
    again = _agent(engine, work)
    with open_conversation("it", root) as kept:
        assert len(kept.resume(again)) == 1
    _ask(again, SECOND)
    assert again.ledger.ids == ids


def test_only_an_agent_that_has_not_begun(engine: Engine, work: Path, root: Path) -> None:
    """One that was asked already has a past of its own."""
    agent = _agent(engine, work)
    with open_conversation("it", root) as kept:
        kept.save(agent)
        assert not kept.exists
        _ask(agent, FIRST)
        with pytest.raises(AgentError, match="without questions so far"):
            kept.resume(agent)


def test_when_all_was_taken_back(engine: Engine, work: Path, root: Path) -> None:
    """An only question that was undone does not come back; an agent without any changes nothing."""
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    with open_conversation("it", root) as kept:
        kept.save(agent)
        kept.save(_agent(engine, work))
        assert kept.exists
        agent.undo()
        kept.save(agent)

        assert not kept.exists
        assert [path.name for path in kept.folder.iterdir()] == ["lock"]
        assert kept.resume(_agent(engine, work)) == []
        _ask(agent, SECOND)
        kept.save(agent)
        assert len(kept.resume(_agent(engine, work))) == 1


def test_nothing_is_saved_after_it_was_closed(engine: Engine, work: Path, root: Path) -> None:
    """Another process may have it by then."""
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    with open_conversation("it", root) as kept:
        pass

    with pytest.raises(AgentError, match="session it was closed; open it again"):
        kept.save(agent)
    assert not kept.exists


def test_it_shares_as_a_new_one_does(engine: Engine, work: Path, root: Path) -> None:
    """What a session that goes on computes is there for others, as its forks, and the reverse."""
    _kept(engine, work, root)
    agent = _agent(engine, work)
    assert agent.session.sequence.shares
    with open_conversation("it", root) as kept:
        kept.resume(agent)

    assert agent.session.sequence.shares
    assert agent.fork(trace=False).session.sequence.shares


def test_files_that_go_meanwhile(
    engine: Engine, work: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process sweeps its own pages while this one lists, or makes room: no error."""
    _kept(engine, work, root)
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    other = root / "it"
    there = list(other.iterdir())
    gone = other / "0.kv"

    class Scanned(list):
        def __enter__(self) -> Scanned:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def scanned(folder: Path) -> Scanned:
        gone.touch()
        with os.scandir(folder) as entries:
            found = Scanned(entries)
        gone.unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(session_list, "os", SimpleNamespace(scandir=scanned))
        (one,) = list_sessions(root)
    assert one.nbytes == sum(path.stat().st_size for path in there)
    assert not one.problem

    with monkeypatch.context() as patched, open_conversation("another", root) as kept:
        patched.setattr(Path, "glob", lambda folder, pattern: iter([*there, gone]))
        kept.save(agent)


def test_states_make_room_too(
    engine: Engine, work: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States of recurrent layers count as pages do, and go with them: alone they are of no use."""
    _kept(engine, work, root)
    state = root / "it" / f"{'0' * 64}.state"
    state.write_bytes(bytes(1000))
    agent = _agent(engine, work)
    _ask(agent, FIRST)
    monkeypatch.setattr(session_store, "MAX_BYTES", 2 * agent.session.sequence.cache.page_bytes)
    with open_conversation("another", root) as kept:
        kept.save(agent)

    assert not state.exists()
    assert (root / "it" / "conversation.json").exists()


def test_documents_that_were_attached(engine: Engine, work: Path, root: Path) -> None:
    """Those that are still there can be read again; of the others it is said that they cannot."""
    there, gone = root.parent / "there.log", root.parent / "gone.log"
    agent = _agent(engine, work)
    assert agent.setup.files is not None
    for path in (there, gone):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("line of it\n")
        with path.open("rb") as file:
            agent.setup.files.attach(path.name, file, str(path))
    _ask(agent, FIRST)
    with open_conversation("it", root) as kept:
        kept.save(agent)
    gone.unlink()

    other = _agent(engine, work)
    with open_conversation("it", root) as kept:
        notes = kept.resume(other)
    assert other.setup.files is not None
    assert other.setup.files.attached == {"there.log": str(there)}
    assert [note for note in notes if "attached" in note] == [
        f"gone.log was attached from {gone}, which can no longer be read; put a copy in "
        f"{work} under that name to make it readable"
    ]
