"""Large blocks of memory for weights and KV cache, on 2 MiB pages where available.

Also advice on a mapped file's pages (they will be needed, or no longer are), and the amount of
memory that is available.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..arguments import ProcessBound
from .cgroups import CGROUPS, PROC, address_space_left, folders

HUGE_PAGE = 2 << 20
_advised = [True]


def advise_huge_pages(on: bool) -> None:
    """Set whether new arenas request huge pages, for the whole process."""
    _advised[0] = on


class Arena(ProcessBound):
    """A memory mapping with a bump allocator.

    It is anonymous, and its pages cost nothing until they are touched; or it is part of a mapped
    file (`Arena.of`), and read-only.

    Attributes:
        nbytes: its size.
        used: bytes handed out so far.
        check: of a file, what raises an error if it is not as it was mapped.
    """

    check: Callable[[], None] | None = None

    def __init__(self, nbytes: int, *, huge_pages: bool | None = None) -> None:
        """Map zeroed memory, on 2 MiB pages if `huge_pages`; None: as `advise_huge_pages` set."""
        self.nbytes = -(-max(nbytes, 1) // HUGE_PAGE) * HUGE_PAGE
        # Private: shared memory is given large pages under another rule, which is mostly off.
        self._map = mmap.mmap(-1, self.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _advise_pages(self._map, _advised[0] if huge_pages is None else huge_pages)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.used = 0

    @classmethod
    def of(cls, mapped: mmap.mmap, offset: int, nbytes: int) -> Arena:
        """Return an arena over part of a mapped file; `offset` is a multiple of the page size."""
        arena = cls.__new__(cls)
        arena.nbytes, arena.used = nbytes, 0
        arena._map = mapped
        _advise_pages(mapped, _advised[0])
        arena._bytes = np.frombuffer(mapped, np.uint8, nbytes, offset)
        return arena

    @property
    def bytes(self) -> np.ndarray:
        """Return all bytes allocated so far: uint8 [used]."""
        return self._bytes[: self.used]

    def touch(self, start: int, end: int) -> None:
        """Fault in the pages of a byte range, so that the system allocates them, as zeros."""
        self._bytes[start : end : mmap.PAGESIZE] = 0

    def take(self, nbytes: int) -> np.ndarray:
        """Allocate `nbytes` cache-aligned bytes: uint8 [nbytes]; zeros if not of a file."""
        start = self.used
        assert start + nbytes <= self.nbytes, (start, nbytes, self.nbytes)
        self.used = -(-(start + nbytes) // 64) * 64
        return self._bytes[start : start + nbytes]


def _advise_pages(mapped: mmap.mmap, huge: bool) -> None:
    """Advise the kernel for or against large pages; a file's depend on its file system."""
    advice = getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE", None)
    if advice is not None:
        with contextlib.suppress(OSError):  # a kernel without them: only slower
            mapped.madvise(advice)


def on_wanted_pages(data: np.ndarray, proc: Path = PROC) -> bool:
    """Return whether a mapped file's bytes lie on large pages, if those are wanted.

    A file's pages are as large as its file system keeps them in memory. Judged by 256 places at
    most, which are read for it; True where the system does not say. All but a few must be large: of
    a copy with 8 % on small ones decode took 3 % longer.
    """
    places = len(data) // HUGE_PAGE
    if not _advised[0] or not places:
        return True
    step = -(-places // 256)
    read = len(data[: places * HUGE_PAGE : step * HUGE_PAGE].copy())
    start, inside, large = data.ctypes.data, False, list[int]()
    with contextlib.suppress(OSError), (proc / "self/smaps").open(encoding="utf-8") as file:
        for line in file:
            name, _, rest = line.partition(" ")
            if not name.endswith(":"):
                first, last = (int(edge, 16) for edge in name.split("-"))
                inside = first <= start < last
            elif inside and name in ("FilePmdMapped:", "ShmemPmdMapped:"):
                large.append(int(rest.split()[0]) << 10)
    return not large or sum(large) >= 0.97 * read * HUGE_PAGE


def will_need(data: np.ndarray) -> None:
    """Prefetch the pages of a mapped file that `data` lies on."""
    start = data.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    _advise(start, data.ctypes.data + data.nbytes - start, "MADV_WILLNEED")


def drop(data: np.ndarray) -> None:
    """Drop from this process's memory the pages of a mapped file that lie wholly in `data`.

    Their bytes are read from the file when they are needed again. `data` must be read-only: memory
    without a file would lose its contents.
    """
    assert not data.flags.writeable, "only pages of a file may be dropped"
    start = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (data.ctypes.data + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _advise(start, end - start, "MADV_DONTNEED")


def give_up(data: np.ndarray, behind: int = 0) -> int:
    """Release the system pages that lie wholly in `data`; return the number of bytes released.

    behind: bytes after it that nobody has, up to the end of its mapping: on the same large page.
    """
    start = -(-data.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = data.ctypes.data + data.nbytes + behind
    size = end // mmap.PAGESIZE * mmap.PAGESIZE - start
    if size > 0:
        _advise(start, size, "MADV_DONTNEED")
    return max(0, size)


def _advise(start: int, nbytes: int, advice: str) -> None:
    """Call madvise if the system has it; without it only memory or speed is lost."""
    madvise = _madvise()
    if madvise is not None and hasattr(mmap, advice):
        madvise(start, nbytes, getattr(mmap, advice))


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, TypeError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


_FILES = {  # of a group: its limit, what is used, and of that pages of files
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def installed_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """Return the bytes of memory of this machine, or its container's limit; 0 if unknown."""
    found = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for version, folder in folders("memory", proc, cgroups):
        if (most := _number(folder / _FILES[version][0])) is not None:
            found.append(most)
    return min(found, default=0)


def available_bytes(proc: Path = PROC, cgroups: Path = CGROUPS, *, drop_files: bool = False) -> int:
    """Return the bytes that this process could allocate now without swapping, within its limits.

    Where the system does not say, all that is installed. drop_files: also in place of those pages
    of files that its group uses, which are then read again.
    """
    found = [_number(proc / "meminfo", "MemAvailable:") or installed_bytes(proc, cgroups)]
    for version, folder in folders("memory", proc, cgroups):
        limit, used, cache = _FILES[version]
        most, taken = _number(folder / limit), _number(folder / used)
        if most is not None and taken is not None:
            # Pages of files that were not touched lately go when memory is asked for.
            names = (cache, cache.replace("inactive", "active"))[: 2 if drop_files else 1]
            cached = [_number(folder / "memory.stat", name) or 0 for name in names]
            found.append(most - taken + sum(cached))
    if (left := address_space_left(proc)) is not None:
        found.append(left)
    return max(0, min(found))


def _number(path: Path, field: str = "") -> int | None:
    """Read the number in a file, or after `field` in one of its lines; None if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    for line in text.splitlines():
        name, *rest = line.split() if field else ("", *line.split())
        if name == field and rest and rest[0].isdecimal():
            return int(rest[0]) * (1024 if rest[1:] == ["kB"] else 1)
    return None
