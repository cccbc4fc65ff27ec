"""One file: asked for, taken up again after a cut, checked, and only then shown under its name."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ...errors import ModelError
from .http import Attempts, Client, Reply, TransientError
from .listing import explain
from .names import ModelName
from .variants import RepoFile
from .watch import Watcher, size_text

_PIECE = 1 << 22  # bytes read at once of a part that is there
_ENOUGH = 1 << 20  # bytes after which an attempt was not in vain
_LARGEST = 50 * 10**9  # bytes of a file that the Hub serves to plain HTTP
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class _WrongRangeError(TransientError):
    """The server took the request for a range in a way that cannot be used."""


@dataclass(slots=True)
class Download:
    """A download of `file` of `name` at `commit` into the file `part`.

    `run` leaves the contents in `part` if their hash is that of the repository, and nothing there
    if it is not. After any other error the part stays and the next download goes on from it.
    """

    client: Client
    name: ModelName
    commit: str
    file: RepoFile
    part: Path
    watcher: Watcher

    def run(self) -> None:
        """Download.

        Raises:
            ModelError: the server refuses, cannot be reached, or sends other contents; the disk
                is full.
        """
        assert self.file.digest is not None
        descriptor = self._open()
        try:
            for last in (False, True):
                state = _State(descriptor, self.file, self.watcher)
                state.restore()
                self._fill(state)
                os.fsync(descriptor)
                found = state.hexdigest()
                if found == self.file.digest:
                    return
                os.ftruncate(descriptor, 0)
                if last or state.answers < 2:
                    break
                # Joined from several answers: one of them may have been of something else.
                self.watcher.note(f"{self.file.path} has the wrong hash; starting again")
            self.part.unlink(missing_ok=True)
            raise ModelError(
                f"{self.file.path}: what {self.client.settings.endpoint} sent has the hash "
                f"{found[:16]}…, but it must be {self.file.digest[:16]}…; nothing was kept"
            )
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            have = os.fstat(descriptor).st_size
            raise ModelError(
                f"the disk of {self.part.parent} is full after {size_text(have)} of "
                f"{size_text(self.file.size)} of {self.file.path}; make room and pull again: it "
                f"goes on from there"
            ) from error
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        return os.open(self.part, flags | getattr(os, "O_BINARY", 0), 0o644)

    def _fill(self, state: _State) -> None:
        attempts = Attempts(f"cannot pull {self.file.path}", self.client.patience,
                            self.watcher.note)  # fmt: skip
        path = f"/{self.name.repo}/resolve/{self.commit}/{quote(self.file.path)}"
        while state.size < self.file.size:
            before = state.size
            try:
                with self.client.get(path, state.size) as reply:
                    self._take(state, reply)
                if state.size < self.file.size:
                    raise TransientError(
                        f"the answer ended after {state.size:,} of {self.file.size:,} bytes"
                    )
            except TransientError as error:
                if isinstance(error, _WrongRangeError):
                    state.restart()
                elif state.size - before >= _ENOUGH:
                    attempts.progressed()
                attempts.failed(error)

    def _take(self, state: _State, reply: Reply) -> None:
        """Add the body of `reply` to the part, if it is what belongs there."""
        if reply.status == 403 and reply.elsewhere:
            # The address was signed for a while that is over; the next try gets a new one.
            raise TransientError(f"{reply.url} answers 403{self._too_large()}")
        if reply.status not in (200, 206, 416):
            explain(self.client, self.name, reply, self.file.path)
        self._check_etag(reply)
        if reply.status == 416:
            raise _WrongRangeError("the server has fewer bytes than are here already")
        if reply.status == 206 and state.size:
            found = _RANGE.fullmatch(reply.headers.get("content-range", ""))
            if found is None or (int(found[1]), int(found[3])) != (state.size, self.file.size):
                raise _WrongRangeError("the server sends another range than was asked for")
        elif state.size:
            # A server that ignores Range sends the file from its start: it must not be added.
            self.watcher.note("the server cannot go on from the middle; starting again")
            state.restart()
        length = reply.headers.get("content-length", "")
        if length.isdigit() and state.size + int(length) != self.file.size:
            raise TransientError(
                f"the server announces {state.size + int(length):,} bytes, it should be "
                f"{self.file.size:,}"
            )
        state.answers += 1
        for chunk in reply.chunks():
            if state.size + len(chunk) > self.file.size:
                state.restart()
                raise TransientError(f"the server sends more than {self.file.size:,} bytes")
            state.add(chunk)
            self.watcher.at(state.size)

    def _too_large(self) -> str:
        if self.file.size <= _LARGEST:
            return ""
        return " (the Hub serves no single file over 50 GB in this way)"

    def _check_etag(self, reply: Reply) -> None:
        """The Hub says the hash again with the file; a mirror may have other etags of its own."""
        etag = reply.first.get("x-linked-etag") or reply.first.get("etag") or ""
        etag = etag.removeprefix("W/").strip('"').lower()
        same_kind = re.fullmatch(r"[0-9a-f]+", etag) and len(etag) == len(self.file.digest or "")
        linked = "x-linked-etag" in reply.first
        if etag != self.file.digest and (same_kind or linked):
            raise ModelError(
                f"{self.file.path} was changed on the server while it was being pulled: its hash "
                f"was {(self.file.digest or '')[:16]}…, now it is {etag[:16]}…; pull again"
            )


class _State:
    """What is in the part so far, and the hash of it."""

    def __init__(self, descriptor: int, file: RepoFile, watcher: Watcher) -> None:
        self._descriptor, self._file, self._watcher = descriptor, file, watcher
        self._new: Callable[[], hashlib._Hash] = hashlib.sha256
        if len(file.digest or "") == 40:  # as git names its blobs

            def git() -> hashlib._Hash:
                return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)

            self._new = git
        self._hash = self._new()
        self.size = 0
        self.answers = 0  # that it was put together from

    def restore(self) -> None:
        """Read what an earlier download left."""
        if os.fstat(self._descriptor).st_size > self._file.size:
            os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while data := os.read(self._descriptor, _PIECE):
            self._hash.update(data)
            self.size += len(data)
        self.answers = int(self.size > 0)
        self._watcher.at(self.size)

    def restart(self) -> None:
        """Throw away what is there."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hash, self.size, self.answers = self._new(), 0, 0

    def add(self, data: bytes) -> None:
        """Write and hash."""
        rest = memoryview(data)
        while rest:
            count = os.write(self._descriptor, rest)
            self._hash.update(rest[:count])
            self.size += count
            rest = rest[count:]

    def hexdigest(self) -> str:
        """The hash of all that is there."""
        return self._hash.hexdigest()
