"""Atomic writes of output files, and checks before the work that they can be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...errors import ModelError
from ..files import check_folder, check_target, private_opener


def check_new(path: str, *, force: bool) -> None:
    """Check, before the work is done, that a file can be written and replaces none.

    Raises:
        ModelError: the file exists without `force`, or its folder is missing or not writable.
    """
    check_target(path)
    if os.path.isfile(path) and not force:
        raise ModelError(f"{path} already exists; name another file, or overwrite it with --force")


def check_outputs(*paths: str | None) -> None:
    """Check, before the work is done, that the output files can be written.

    Raises:
        ModelError: a path is a folder, or its folder is missing.
    """
    for path in paths:
        if path is not None:
            check_folder(path)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[TextIO]:
    """Open a private text file that replaces `path` on success; on an error `path` is unchanged.

    Raises:
        ModelError: `path` cannot be written: it is a folder, its folder is missing, a full disk.
    """
    check_folder(path)
    target = Path(os.path.realpath(path))
    special = target.exists() and not target.is_file()  # a pipe, a terminal: nothing to replace
    place = target if special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(place, "w", encoding="utf-8", newline="", opener=private_opener) as file:
            yield file
        if not special:
            os.replace(place, target)
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if not special:
            place.unlink(missing_ok=True)
