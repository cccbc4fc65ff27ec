"""A resumable download of one file: verified before it appears under its name."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ModelError
from .find import git_hasher
from .listing import explain
from .names import ModelName
from .progress import ProgressReporter, size_text
from .transport import Hub, RefusedError, Retrier, TransientError
from .variants import RepoFile

_PIECE = 1 << 22  # bytes read at once to hash them
_LONG = 2 * 10**9  # bytes whose hashing takes so long that it is worth a line
_ENOUGH = 1 << 20  # bytes after which an attempt was not in vain
_LARGEST = 50 * 10**9  # bytes of a file that the Hub serves to plain HTTP
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class _WrongRangeError(TransientError):
    """The server answered a range request with an unusable range."""


@dataclass(slots=True)
class Download:
    """A download of `file` of `name` at `commit` into the file `part`.

    `run` leaves the contents in `part` if their hash is that of the repository, and nothing there
    if it is not. After any other error the part stays and the next download goes on from it.
    """

    hub: Hub
    name: ModelName
    commit: str
    file: RepoFile
    part: Path
    watcher: ProgressReporter

    def run(self) -> int:
        """Run the download; return the received bytes, at least all that the part lacked.

        Raises:
            ModelError: the server refuses, cannot be reached, or sends other contents; the disk
                is full.
        """
        assert self.file.digest is not None
        part = _Part(self.part, self.file.size)
        try:
            for last in (False, True):
                part.resume()
                self.watcher.at(part.size)
                self._fill(part)
                found = self._hash(part)
                if found == self.file.digest:
                    return part.received
                joined = part.inherited or part.answers > 1
                part.restart()
                if last or not joined:
                    break
                # Joined from several answers: one of them may have been of something else. Or an
                # earlier download left it, and the machine went down before it was on the disk.
                self.watcher.note(f"{self.file.path} has the wrong hash; starting again")
            self.part.unlink(missing_ok=True)
            raise ModelError(
                f"{self.file.path}: what {self.hub.settings.address} sent has the hash "
                f"{found[:16]}…, but it must be {self.file.digest[:16]}…; nothing was kept"
            )
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ModelError(
                f"the disk with {self.part.parent} is full after {size_text(part.size)} of "
                f"{size_text(self.file.size)} of {self.file.path}; free some space, and pull "
                "again to resume"
            ) from error
        finally:
            part.close()

    def _hash(self, part: _Part) -> str:
        """Hash the file on disk, in the form of the expected hash."""
        if self.file.size > _LONG:
            self.watcher.note(f"checking {self.file.path}")
        if len(self.file.digest or "") == 40:  # as git names its blobs
            return part.hexdigest(git_hasher(self.file.size))
        return part.hexdigest(hashlib.sha256())

    def _fill(self, part: _Part) -> None:
        attempts = Retrier(f"cannot pull {self.file.path}", self.hub.patience, self.watcher.note)
        best = part.size
        while part.size < self.file.size:
            try:
                self._attempt(part)
            except RefusedError as error:
                explain(self.hub, self.name, error, self.file.path)
            except TransientError as error:
                if isinstance(error, _WrongRangeError):
                    part.restart()
                elif part.size - best >= _ENOUGH:
                    best = part.size
                    attempts.progressed()
                attempts.failed(error)

    def _attempt(self, part: _Part) -> None:
        """Resolve the download URL again, since it expires, and read the response."""
        url, etag = self.hub.locate(self.name.repo, self.commit, self.file.path)
        self._check_etag(etag, elsewhere=not self.hub.is_endpoint(url))
        with self.hub.open(url, part.size) as response:
            self._take(part, response)
        if part.size < self.file.size:
            raise TransientError(
                f"the download ended after {part.size:,} of {self.file.size:,} bytes"
            )

    def _take(self, part: _Part, response: Any) -> None:
        """Append the response's body to the part, after checking its status, range and length."""
        status, headers = response.status_code, response.headers
        if status == 403 and not self.hub.is_endpoint(str(response.url)):
            # The address was signed for a while that is over; the next try gets a new one.
            raise TransientError(f"{RefusedError(response)}{self._too_large()}")
        if status not in (200, 206, 416):
            raise RefusedError(response)
        if headers.get("content-encoding", "identity") != "identity":
            raise ModelError(f"{self.file.path} was sent compressed, which was not requested")
        if status == 416:
            raise _WrongRangeError("the server's file is smaller than the part already downloaded")
        if status == 206 and part.size:
            found = _RANGE.fullmatch(headers.get("content-range", ""))
            if found is None or (int(found[1]), int(found[3])) != (part.size, self.file.size):
                raise _WrongRangeError("the server sent a different range than requested")
        elif part.size:
            # A server that ignores Range sends the file from its start: it must not be added.
            self.watcher.note("the server cannot resume; starting again")
            part.restart()
        length = headers.get("content-length", "")
        if length.isdigit() and part.size + int(length) != self.file.size:
            raise TransientError(
                f"the server announces {part.size + int(length):,} bytes instead of "
                f"{self.file.size:,}"
            )
        part.answers = part.answers + 1 if part.size else 1
        for chunk in self.hub.chunks(response):
            if part.size + len(chunk) > self.file.size:
                part.restart()
                raise TransientError(f"the server sent more than {self.file.size:,} bytes")
            part.add(chunk)
            self.watcher.at(part.size)

    def _too_large(self) -> str:
        if self.file.size <= _LARGEST:
            return ""
        return " (the Hub does not serve single files over 50 GB this way)"

    def _check_etag(self, etag: str, *, elsewhere: bool) -> None:
        """Check that the hash in the etag is the expected one; a mirror may have its own etags."""
        same_kind = re.fullmatch(r"[0-9a-f]+", etag) and len(etag) == len(self.file.digest or "")
        if etag and etag != self.file.digest and (same_kind or elsewhere):
            raise ModelError(
                f"{self.file.path} changed on the server during the download: its hash was "
                f"{(self.file.digest or '')[:16]}…, now it is {etag[:16]}…; pull again"
            )


class _Part:
    """The file with the contents received so far.

    Attributes:
        size: bytes that are there.
        answers: number of the server's responses that they come from.
        inherited: whether an earlier download left some of them.
        received: bytes that this download received, discarded ones included.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._whole = path, size
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o644)
        self.size = self.answers = self.received = 0
        self.inherited = False

    def resume(self) -> None:
        """Continue from the data of an earlier download."""
        if os.fstat(self._descriptor).st_size > self._whole:
            os.ftruncate(self._descriptor, 0)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)
        self.inherited = self.size > 0
        self.answers = 0

    def restart(self) -> None:
        """Discard the data, to start again."""
        os.ftruncate(self._descriptor, 0)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.inherited = False

    def add(self, data: bytes) -> None:
        """Append data."""
        rest = memoryview(data)
        while rest:
            count = os.write(self._descriptor, rest)
            self.size += count
            self.received += count
            rest = rest[count:]

    def hexdigest(self, hasher: hashlib._Hash) -> str:
        """Sync the file and hash it from disk with `hasher`; return the digest.

        What is on disk counts: a file that is shown as complete must be so after a crash, too.
        """
        os.fsync(self._descriptor)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while data := os.read(self._descriptor, _PIECE):
            hasher.update(data)
        return hasher.hexdigest()

    def close(self) -> None:
        """Close the file and leave it on disk."""
        os.close(self._descriptor)
