"""Threads to run tapes on, without an engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from triplepoint.jit.compile import Library, ObjectCache, default_folder
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect


@contextlib.contextmanager
def pool_of(threads: int) -> Iterator[tuple[Library, Pool]]:
    """So many threads, and the library whose kernels they run."""
    library = Library(detect(), ObjectCache(default_folder()))
    pool = Pool(library, threads)
    try:
        yield library, pool
    finally:
        pool.close()
