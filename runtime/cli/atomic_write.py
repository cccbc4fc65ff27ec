"""Files that commands write: whole or not there, and named when they cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def atomic_write(path: str | Path) -> Iterator[TextIO]:
    """A text file that appears at `path` when all went well; what stood there before, if not.

    Raises:
        OSError: it cannot be written; it names the file.
    """
    target = Path(os.path.realpath(path))
    special = target.exists() and not target.is_file()  # a pipe, a terminal: nothing to replace
    place = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with place.open("w", encoding="utf-8", newline="") as file:
            yield file
        if not special:
            os.replace(place, target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        if not special:
            place.unlink(missing_ok=True)
