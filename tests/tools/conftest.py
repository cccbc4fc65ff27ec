"""Fixtures: every test of the jail runs with each way to resolve paths that works here."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import FileTools, Workspace


@pytest.fixture(params=["openat2", "walk"])
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    try:
        Workspace(tmp_path, resolver=request.param).close()
    except ToolError as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace's folder; `tmp_path` around it is outside."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(root: Path, resolver: str) -> Iterator[Workspace]:
    with Workspace(root, resolver=resolver) as opened:
        yield opened


@pytest.fixture
def files(workspace: Workspace) -> FileTools:
    return FileTools(workspace)


class Watch:
    """Tells whether anything opened or read what is below some folders (inotify)."""

    _OPEN, _ACCESS, _IS_FOLDER = 0x20, 0x01, 0x40000000
    _HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())

    def add(self, path: Path) -> None:
        mask = ctypes.c_uint32(self._OPEN | self._ACCESS)
        assert self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask) >= 0

    def events(self) -> bytes:
        """What happened since the last call; empty for nothing.

        That the workspace's own folder is listed is seen in the one above it, and is no matter.
        """
        try:
            told = os.read(self._fd, 1 << 20)
        except BlockingIOError:
            return b""
        kept = b""
        while told:
            _, mask, _, length = self._HEAD.unpack_from(told)
            one, told = told[: self._HEAD.size + length], told[self._HEAD.size + length :]
            name = one[self._HEAD.size :].rstrip(b"\0")
            kept += b"" if name == b"root" and mask & self._IS_FOLDER else one
        return kept

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def watch() -> Iterator[Callable[..., Callable[[], bytes]]]:
    """`seen = watch(path, …)`; `seen()` is empty as long as nobody opened or read the paths."""
    if sys.platform != "linux":
        yield lambda *paths: bytes
        return
    watching = Watch()

    def start(*paths: Path) -> Callable[[], bytes]:
        for path in paths:
            watching.add(path)
        return watching.events

    yield start
    watching.close()
