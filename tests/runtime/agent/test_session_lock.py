"""Who has a session: one process at a time, and nobody when it is gone."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triplepoint.errors import AgentError
from triplepoint.runtime.agent import session_list
from triplepoint.runtime.agent.session_list import find_session, remove_session
from triplepoint.runtime.agent.session_store import open_conversation


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def test_removed_while_it_was_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that is gone keeps nobody out: the session is not had by it."""
    open_conversation("it", root).close()
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        (root / "it" / "lock").unlink()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(AgentError, match="in use by another process"):
        open_conversation("it", root)


def test_one_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to be missing."""
    (root / "talk").mkdir(parents=True)
    (root / "talk" / "conversation.json").write_text("{}")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(session_list, "_info", refused)
    with pytest.raises(AgentError, match=f"cannot read the session {root / 'talk'}: Permission"):
        find_session("talk", root)


def test_a_file_system_without_locks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are kept there, too."""

    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with open_conversation("it", root) as kept:
        assert not kept.exists


@pytest.mark.slow
def test_one_process_at_a_time(root: Path) -> None:
    """Who comes second is told; after the first has closed it, it can be had."""
    code = "import sys; from triplepoint.runtime.agent.session_store import open_conversation; "
    code += "open_conversation('it', sys.argv[1])"
    command = [sys.executable, "-c", code, str(root)]
    with open_conversation("it", root):
        with pytest.raises(AgentError, match="in use by another process"):
            open_conversation("it", root)
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "in use by another process" in other.stderr
        open_conversation("another", root).close()
    assert subprocess.run(command, check=False).returncode == 0


def test_a_closed_one_does_not_go_on(root: Path, tmp_path: Path) -> None:
    """Another process may have it; a folder that was given is named."""
    kept = open_conversation("it", root)
    kept.close()
    agent: Any = SimpleNamespace(setup=None, turn=0, messages=[])
    for use in (kept.resume, kept.save):
        with pytest.raises(AgentError, match="was closed; open it again"):
            use(agent)
    (tmp_path / "file").touch()
    with pytest.raises(AgentError, match="give root to use another folder"):
        open_conversation("it", tmp_path / "file")


def test_removed_without_its_lock(tmp_path: Path) -> None:
    """A copy of a session may lack the lock: nobody has it. A link is no session."""
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "conversation.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "it")

    with pytest.raises(AgentError, match="no session 'link'"):
        find_session("link", tmp_path)
    remove_session(find_session("it", tmp_path))
    assert not (tmp_path / "it").exists()
