"""Big blocks of memory for weights and KV cache, on 2 MiB pages where the system gives them."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

HUGE_PAGE = 2 << 20


class Arena:
    """One anonymous mapping that is handed out from its start; pages cost nothing until touched.

    Attributes:
        nbytes: its size.
        used: bytes handed out so far.
    """

    def __init__(self, nbytes: int, *, huge_pages: bool = True) -> None:
        self.nbytes = -(-max(nbytes, 1) // HUGE_PAGE) * HUGE_PAGE
        self._map = mmap.mmap(-1, self.nbytes)
        if huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them: only slower
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        self.used = 0

    def take(self, nbytes: int) -> np.ndarray:
        """`nbytes` zeroed bytes that start on a cache line: uint8 [nbytes]."""
        start = self.used
        assert start + nbytes <= self.nbytes, (start, nbytes, self.nbytes)
        self.used = -(-(start + nbytes) // 64) * 64
        return self._bytes[start : start + nbytes]
