"""Translates errors of libraries written in Rust to this package's errors.

A panic in one of them comes as a `PanicException`, which is no `Exception`: no handler of a program
sees it. Each call into such a library with data from a file is in `translated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...errors import TriplepointError


@contextmanager
def translated(refusal: Callable[[BaseException], TriplepointError]) -> Iterator[None]:
    """Convert foreign exceptions raised inside the block by `refusal`.

    Requests to end the program (Ctrl-C, exit) and MemoryError pass through unchanged.
    """
    try:
        yield
    except (TriplepointError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise refusal(error) from error
        raise
