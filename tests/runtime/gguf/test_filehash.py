"""Hashes of model files are remembered, and never those of other contents."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from triplepoint.arguments import open_regular
from triplepoint.runtime.gguf import filehash
from triplepoint.runtime.gguf.mapped_file_guard import MappedFileGuard


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as settled, and no hash that is remembered."""
    monkeypatch.setattr(filehash, "_memory", lambda: tmp_path / "cache" / "sha256.json")
    monkeypatch.setattr(filehash, "_SETTLED_NS", -1)
    path = tmp_path / "a.gguf"
    path.write_bytes(b"a" * 1000)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were read from."""
    found: list[int] = []

    def pread(descriptor: int, size: int, at: int) -> bytes:
        found.append(descriptor)
        return real(descriptor, size, at)

    real = os.pread
    monkeypatch.setattr(os, "pread", pread)
    return found


@pytest.fixture
def held(path: Path) -> MappedFileGuard:
    descriptor = os.open(path, os.O_RDONLY)
    guard = MappedFileGuard(path, descriptor)
    os.close(descriptor)
    return guard


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _later(path: Path, before: os.stat_result) -> None:
    """Wait for the clock of the file system: its ticks are some milliseconds long."""
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.chmod(0o600)


def test_a_file_is_read_once(path: Path, reads: list[int]) -> None:
    """By any name that leads to it."""
    assert filehash.sha256(path) == _digest(b"a" * 1000)
    assert reads
    reads.clear()
    (path.parent / "link").symlink_to(path)
    assert filehash.sha256(path.parent / "link") == filehash.sha256(path)
    assert not reads


def test_a_write_that_restores_the_time(path: Path) -> None:
    """Same inode, size and time of change, as `rsync --inplace --times` leaves it: hashed anew."""
    filehash.sha256(path)
    before = path.stat()
    path.write_bytes(b"b" * 1000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    _later(path, before)
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )

    assert filehash.sha256(path) == _digest(b"b" * 1000)


def test_what_has_just_been_written_is_not_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next write may have the same time."""
    monkeypatch.setattr(filehash, "_SETTLED_NS", 2_000_000_000)
    filehash.sha256(path)
    assert filehash.remembered(path.stat()) is None


def test_a_swap_while_it_is_hashed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has another file for as long as it takes to open it: neither gets the other's."""
    other, aside = path.with_name("b.gguf"), path.with_name("c.gguf")
    other.write_bytes(b"b" * 1000)

    def opened(given: Path) -> object:
        path.rename(aside)
        other.rename(path)
        try:
            return open_regular(given)
        finally:
            path.rename(other)
            aside.rename(path)

    with monkeypatch.context() as patch:
        patch.setattr(filehash, "open_regular", opened)
        assert filehash.sha256(path) == _digest(b"b" * 1000)
    assert filehash.sha256(path) == _digest(b"a" * 1000)
    assert filehash.sha256(other) == _digest(b"b" * 1000)


def test_noting_the_use_forgets_nothing(
    path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sets the time of status change, and the file is not read again for that."""
    filehash.sha256(path)
    before = path.stat()
    monkeypatch.setattr(filehash, "_RECENT_NS", 0)
    reads.clear()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        filehash.touch(path)

    assert filehash.sha256(path) == _digest(b"a" * 1000)
    assert not reads


def test_a_held_file_that_is_replaced(held: MappedFileGuard, path: Path, reads: list[int]) -> None:
    """It gives its own hash, without reading where that was known when it was opened."""
    filehash.sha256(path)
    reads.clear()
    path.with_name("b.gguf").write_bytes(b"b" * 1000)
    path.with_name("b.gguf").replace(path)

    assert held.sha256() == _digest(b"a" * 1000)
    assert not reads
    assert filehash.sha256(path) == _digest(b"b" * 1000)
    assert held.sampled() == _digest(b"a" * 1000 * 64)
