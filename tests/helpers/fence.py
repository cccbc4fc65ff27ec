"""Arrays of kernels that end at a page which nobody may touch.

A kernel that reads or writes behind the end of its array then ends the process there and then,
where it would else spoil what happens to lie behind it, to be found much later or never.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np

from triplepoint.jit import pool

_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded(nbytes: int) -> np.ndarray:
    """Whole pages for so many bytes, with a page behind them that may not be touched: uint8."""
    size = -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped = np.frombuffer(pages, np.uint8)
    if _protect(mapped.ctypes.data + size, mmap.PAGESIZE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return mapped[:size]


def fenced(shape: int | tuple[int, ...], dtype: Any, alignment: int = 64) -> np.ndarray:
    """As `triplepoint.jit.pool.aligned`, at the end of pages of its own."""
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    size = count * np.dtype(dtype).itemsize
    room = -(-size // alignment) * alignment
    pages = guarded(room)
    start = len(pages) - room
    return pages[start : start + size].view(dtype).reshape(shape)


def install() -> None:
    """Let all that is made from now on be fenced; before anything else imports `aligned`."""
    pool.aligned = fenced
