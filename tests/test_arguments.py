"""Own files that must be regular, objects that stay in their process, the command for an extra."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import logging
import os
import pickle
import shlex
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Agent, EditTools, Engine, FileTools, arguments
from triplepoint.arguments import open_regular, pip_install, read_own
from triplepoint.errors import SettingError
from triplepoint.jit.compile import ObjectCache
from triplepoint.runtime.config import config_path, default_model
from triplepoint.runtime.gguf import filehash
from triplepoint.runtime.gguf.file import GGUFFile
from triplepoint.runtime.hub.cache import CachedRepo
from triplepoint.runtime.hub.settings import _token
from triplepoint.runtime.memory import Arena
from triplepoint.runtime.physics import calibration, machine
from triplepoint.runtime.weights.packed_cache import SUFFIX, copies
from triplepoint.runtime.weights.packed_file import map_file

SOON = 20.0  # seconds; what blocks does so for ever


def soon(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, if it ends."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert found, "it hangs"
    return found[0]


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


KINDS = pytest.mark.parametrize("kind", [_fifo, _zeros, _socket])


@KINDS
def test_what_is_no_regular_file(kind: Callable[[Path], None], tmp_path: Path) -> None:
    """It is an error at once that says what it is; a file and a link to it are read."""
    kind(tmp_path / "odd")
    error = soon(lambda: open_regular(tmp_path / "odd"))
    assert isinstance(error, OSError)
    assert error.strerror in (
        "it is a FIFO, not a regular file",
        "it is a device, not a regular file",
        os.strerror(6),  # ENXIO: what the system says of a socket
    )
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"x"
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_a_file_that_is_too_large(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not read, and named in the log."""
    (tmp_path / "f").write_bytes(b"123")
    assert read_own(tmp_path / "f", 3) == b"123"
    with caplog.at_level(logging.WARNING), pytest.raises(OSError, match="more than 2 bytes"):
        read_own(tmp_path / "f", 2)
    assert f"{tmp_path / 'f'} is not used: it has more than 2 bytes" in caplog.text


@KINDS
def test_own_files(
    kind: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a cache it counts as absent and is named; as settings it is an error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    own = tmp_path / "cache" / "triplepoint"
    repo = CachedRepo(tmp_path / "hf" / "hub", "me/model")
    objects = ObjectCache(own / "kernels")
    odd = {
        own / "sha256.json": lambda: filehash.remembered(tmp_path.stat()),
        own / "profile.json": lambda: calibration.load(own / "profile.json"),
        own / "machine.json": lambda: machine._read(own / "machine.json"),
        own / "kernels" / "k.key": lambda: objects._read(own / "kernels" / "k.key"),
        repo.folder / "refs" / "main": lambda: repo.commit("main"),
        tmp_path / "hf" / "token": lambda: _token({}, tmp_path / "hf"),
    }
    for path, read in odd.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(path)
        with caplog.at_level(logging.WARNING):
            assert soon(read) is None
        assert f"{path} is not used: " in caplog.text
        caplog.clear()
    packed = own / "packed" / f"model{SUFFIX}"
    packed.parent.mkdir()
    kind(packed)
    assert [one.model for one in soon(lambda: copies(packed.parent))] == ["?"]
    assert isinstance(soon(lambda: map_file(packed, {})), OSError)
    config_path().parent.mkdir(parents=True)
    kind(config_path())
    error = soon(lambda: default_model({}))
    assert isinstance(error, SettingError)
    assert f"cannot read {config_path()}: " in str(error)


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_objects_of_one_process(act: Callable[[Any], Any], tmp_path: Path) -> None:
    """They refuse to be pickled or copied, and say what to do instead; what holds them, too."""
    with Engine.load("nano") as engine:
        session = engine.session()
        agent = Agent(engine, workspace=tmp_path, trace=False)
        files = FileTools(tmp_path)
        odd = {
            engine: "call Engine.load there",
            session: "Session.fork copies it here",
            agent: "Agent.fork copies it here",
            files.workspace: "make another one",
            engine.loaded.library: "make another one",
            engine.loaded.pool: "make another one",
            Arena(1): "make another one",
        }
        for one, instead in odd.items():
            with pytest.raises(TypeError, match=f"{type(one).__name__}: .*{instead}"):
                act(one)
        if act is not copy.copy:
            for one in (files, EditTools(tmp_path), [engine]):
                with pytest.raises(TypeError, match="cannot pickle or copy an object of"):
                    act(one)
        agent.fork().close()
        session.fork().close()
    assert issubclass(GGUFFile, type(files.workspace).__mro__[1])


# --- the command that adds an extra


class Installed:
    """A distribution with this content of ``direct_url.json``."""

    def __init__(self, source: dict[str, Any] | None) -> None:
        self._source = source

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._source is None else json.dumps(self._source)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Let distributions with these origins be found, for a package that is not in a checkout."""
    monkeypatch.setattr(arguments, "__file__", str(tmp_path / "arguments.py"))

    def install(*sources: dict[str, Any] | None) -> None:
        found = [Installed(source) for source in sources]
        monkeypatch.setattr(importlib.metadata, "distributions", lambda name: found)

    return install


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, ["triplepoint[serve]"]),
        ({"url": "file:///home/me/my%20tp", "dir_info": {}}, ["/home/me/my tp[serve]"]),
        (
            {"url": "file:///src/tp", "dir_info": {"editable": True}},
            ["-e", "/src/tp[serve]"],
        ),
        (
            {"url": "file:///dist/triplepoint-0.1.0-py3-none-any.whl", "archive_info": {}},
            ["triplepoint[serve] @ file:///dist/triplepoint-0.1.0-py3-none-any.whl"],
        ),
        (
            {"url": "https://host/tp.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            ["triplepoint[serve] @ git+https://host/tp.git"],
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came(
    source: dict[str, Any] | None, words: list[str], installed: Callable[..., None]
) -> None:
    """A folder, an archive and a repository are installed again; without one, from the index."""
    installed(source)
    assert shlex.split(pip_install("serve")) == ["pip", "install", *words]

    installed(None, source)  # first the egg-info that a build has left in the current folder
    assert shlex.split(pip_install("serve")) == ["pip", "install", *words]


def test_an_extra_of_a_checkout_that_is_not_installed(
    installed: Callable[..., None], tmp_path: Path
) -> None:
    """The folder of the package is the checkout; a build in it changes nothing."""
    (tmp_path / "pyproject.toml").touch()
    for found in ([], [None]):
        installed(*found)
        assert shlex.split(pip_install("eval")) == ["pip", "install", f"{tmp_path}[eval]"]
