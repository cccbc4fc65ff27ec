"""The prefix cache on disk: pages that take less time to read than to compute.

    FOLDER/<key>-<SHA-256>-<milliseconds>.kv   the bytes of a page, and what computing it would take

These are pages that memory had no room for, and the openings of conversations: what an agent says
before the first question, its last page as far as it goes.

A page's key follows from the model, the layout, the kernels, the namespace and all tokens up to
its end (`page_keys.py`), so a page of other tokens, or of another namespace, is never found. Its
bytes are compared with their SHA-256 before they are used; one that is damaged is removed and
computed. Files are for this user alone. When they grow too many, those go first that would be
quickest to compute again by their size and by the time since they were last used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .... import interrupts
from ....arguments import user_folder
from ....errors import EngineError, ModelError
from ....jit.compile import source_hash
from ....jit.kernels.kvcache import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from ...forward.kv import Page
    from ..model.loaded_model import LoadedModel

MOST_BYTES = 4 << 30
FREE_SHARE = 0.1  # of the disk's free space, at most
READ_RATE = 500e6  # bytes/s, until a page was read; checking them is a part of it
WEIGHT = 0.3  # of the newest reading in that rate
PENDING = 4  # pages, or openings, that wait to be written at most: they still take memory
MIN_TOKENS, MIN_S = 128, 0.05  # of an opening that is written, and what computing it takes
_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})-([0-9]{1,9})\.kv")


def folder() -> Path:
    return user_folder("cache") / "prefixes"


@dataclass(slots=True)
class _Page:
    """A page to be written: the tokens up to its end, its bytes, and what computing it takes."""

    ids: list[int]
    data: np.ndarray
    seconds: float


@dataclass(slots=True)
class _File:
    path: Path
    digest: str
    nbytes: int
    seconds: float  # that computing it would take
    used: float  # time.time()


class Spill:
    """The prefix cache of one engine on disk. Safe to use from several threads.

    Attributes:
        most_bytes: maximum bytes of all files; 0: nothing is written or read.
        rate: bytes/s that reading and checking reaches.
        written, recalled: bytes so far.
    """

    def __init__(self, loaded: LoadedModel, most_bytes: int | None) -> None:
        self.most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self.rate = READ_RATE
        self.written = self.recalled = 0
        self._loaded = weakref.ref(loaded)
        self._lock = threading.Lock()
        self._files: dict[str, _File] | None = None  # by key, once needed
        self._writer: ThreadPoolExecutor | None = None
        self._pending = 0

    def pays(self, seconds: float, nbytes: int) -> bool:
        """Return whether reading `nbytes` takes less than `seconds`, the time to compute them."""
        return nbytes / self.rate < seconds

    def wants(self, opening: int, cached: int) -> bool:
        """Return whether an opening is worth writing to disk.

        opening: number of its tokens; cached: those of them that need not be computed.
        """
        loaded = self._loaded()
        if loaded is None or not self.most_bytes or opening < MIN_TOKENS:
            return False
        seconds = loaded.tuning.pass_s(opening - cached, cached)
        nbytes = (-(-opening // PAGE) - cached // PAGE) * loaded.layout.page_bytes
        return seconds >= MIN_S and nbytes <= self.most_bytes and self.pays(seconds, nbytes)

    def keep(
        self, ids: list[int], first: int, pages: Sequence[np.ndarray], namespace: str = ""
    ) -> None:
        """Write an opening's pages, from number `first` on, in the background.

        pages: copies that hold nothing of what follows `ids`.
        """
        todo = list[_Page]()
        for number, data in enumerate(pages, first):
            at = number * PAGE
            todo.append(_Page(ids[: at + PAGE], data, self._seconds(at, min(len(ids), at + PAGE))))
        self._submit(todo, namespace)

    def offer(self, ids: list[int], page: Page, namespace: str = "") -> None:
        """Write the last page of `ids`, evicted from memory, in the background, if that pays."""
        loaded = self._loaded()
        if loaded is None or loaded.layout.states is not None:  # a page alone is of no use
            return
        if not self.most_bytes or not page.whole or len(ids) % PAGE:
            return
        seconds = self._seconds(len(ids) - PAGE, len(ids))
        if self.pays(seconds, len(page.data)):
            self._submit([_Page(ids, page.data, seconds)], namespace)

    def _submit(self, pages: list[_Page], namespace: str) -> None:
        with self._lock:
            if self._pending >= PENDING:
                return
            self._pending += 1
            if self._writer is None:
                from concurrent.futures import ThreadPoolExecutor

                self._writer = ThreadPoolExecutor(1, "triplepoint-spill")
        try:
            with interrupts.held():
                self._writer.submit(self._write, pages, namespace)
        except RuntimeError:  # it was closed meanwhile, or the system has no thread for it
            with self._lock:
                self._pending -= 1

    def flush(self) -> None:
        """Wait until all submitted pages are written."""
        if self._writer is not None:
            with interrupts.held():
                last = self._writer.submit(bool)
            interrupts.result(last)

    def close(self) -> None:
        """Accept no more pages; wait until those submitted are written."""
        self.most_bytes = 0
        if self._writer is not None:
            self._writer.shutdown()

    def recall(
        self, tokens: list[int], first: int, namespace: str = "", opening: int = 0
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """Read pages of `tokens`, from the one with the number `first` on, while that pays.

        opening: number of tokens of the opening, whose last page may be partial.

        Yields each page's number, how many tokens it ends behind, and its bytes; a caller
        that cannot use one stops there.
        """
        loaded = self._loaded()
        if loaded is None or not self.most_bytes or not self._known():
            return
        from ...checked_files import UnreadableError, map_bytes

        keys = self.keys(tokens[: len(tokens) // PAGE * PAGE], namespace)
        ends = [*range(PAGE, len(tokens) + 1, PAGE)]
        known, last = self._known(), opening // PAGE
        if opening % PAGE and (last >= len(keys) or keys[last] not in known):
            keys[last:] = self.keys(tokens[:opening], namespace)[last:]
            ends[last:] = [opening]
        for number in range(first, len(keys)):
            file = known.get(keys[number])
            if file is None:
                return
            if not self.pays(self._seconds(number * PAGE, ends[number]), file.nbytes):
                return
            began = time.perf_counter()
            try:
                data = map_bytes(file.path, loaded.layout.page_bytes, file.digest)
            except UnreadableError:
                return
            except ValueError:  # damaged, or another process has removed it
                self._forget(keys[number], file)
                return
            took = time.perf_counter() - began
            self.rate += WEIGHT * (file.nbytes / took - self.rate)
            yield number, ends[number], data
            self.recalled += file.nbytes
            file.used = time.time()
            with contextlib.suppress(OSError):
                os.utime(file.path)

    # --- how it is done

    def keys(self, tokens: list[int], namespace: str = "") -> list[str]:
        """Return the keys of the pages of these tokens; the last page may be partial.

        Other kernels, and other passes of them, may compute other bits, so they count, too.
        """
        from .page_keys import page_keys  # when there is something to look for

        loaded = self._loaded()
        made_by = f"{source_hash()} {_forward_hash()} {namespace}"
        return [] if loaded is None else list(page_keys(loaded, tokens, made_by))

    def _seconds(self, start: int, end: int) -> float:
        """Return the seconds that computing these positions of a page would take."""
        loaded = self._loaded()
        return 0.0 if loaded is None else loaded.tuning.pass_s(end - start, start)

    def _write(self, pages: list[_Page], namespace: str) -> None:
        try:
            for page in pages:
                self._write_page(page, namespace)
        except (OSError, EngineError, ModelError):
            # No such disk, or the model's file was overwritten: pages are computed again.
            self.most_bytes = 0
        finally:
            with self._lock:
                self._pending -= 1

    def _write_page(self, page: _Page, namespace: str) -> None:
        from ...checked_files import make_folder, write

        data, keys = page.data, self.keys(page.ids, namespace)
        if not keys or keys[-1] in self._known():
            return
        where = folder()
        make_folder(where)
        disk = os.statvfs(where)
        most = min(self.most_bytes, int(FREE_SHARE * disk.f_bavail * disk.f_frsize))
        if data.nbytes > most:  # those of others stay, too
            return
        self._make_room(most - data.nbytes)
        digest = hashlib.sha256(data.data).hexdigest()
        milliseconds = min(999_999_999, round(1000 * page.seconds))
        path = where / f"{keys[-1]}-{digest}-{milliseconds}.kv"
        write(path, data.data)
        with self._lock:
            files = self._files or {}
            files[keys[-1]] = _File(path, digest, data.nbytes, page.seconds, time.time())
            self._files = files
        self.written += data.nbytes

    def _known(self) -> dict[str, _File]:
        with self._lock:
            if self._files is None:
                self._files = dict(_listed(folder()))
            return self._files

    def _make_room(self, most: int) -> None:
        """Remove files until the others take so many bytes at most."""
        files, now = self._known(), time.time()
        with self._lock:
            total = sum(file.nbytes for file in files.values())
            order = sorted(files.items(), key=lambda item: _worth(item[1], now))
        for key, file in order:
            if total <= most:
                return
            total -= file.nbytes
            self._forget(key, file)

    def _forget(self, key: str, file: _File) -> None:
        with self._lock:
            (self._files or {}).pop(key, None)
        with contextlib.suppress(OSError):
            file.path.unlink()


def _worth(file: _File, now: float) -> float:
    return file.seconds / max(1, file.nbytes) / (1.0 + max(0.0, now - file.used))


def _listed(where: Path) -> list[tuple[str, _File]]:
    from ...checked_files import sweep_unfinished

    found: list[tuple[str, _File]] = []
    with contextlib.suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            sweep_unfinished(entry.path, _NAME)
            if match is not None and entry.is_file(follow_symlinks=False):
                stat = entry.stat(follow_symlinks=False)
                seconds = int(match[3]) / 1000
                file = _File(Path(entry.path), match[2], stat.st_size, seconds, stat.st_mtime)
                found.append((match[1], file))
    return found


@functools.cache
def _forward_hash() -> str:
    """Hash the code that composes kernels: other passes may compute other bits."""
    files = sorted((Path(__file__).parents[2] / "forward").glob("*.py"))
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()
