"""Files that commands write: whole or not there, and named when they cannot be written."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...errors import ModelError
from ..files import check_folder, check_target, private_opener
from .options import add_switch


def add_force_option(verb: argparse.ArgumentParser) -> None:
    """The one that lets a file be replaced."""
    add_switch(verb, "--force", help="overwrite OUT if it exists")


def check_new(path: str, *, force: bool) -> None:
    """Say at once, before the work is done, that a file would be replaced or cannot be written.

    Raises:
        ModelError: it is there without `force`, or its folder is not, or not to be written to.
    """
    check_target(path)
    if os.path.isfile(path) and not force:
        raise ModelError(f"{path} already exists; name another file, or overwrite it with --force")


def check_outputs(*paths: str | None) -> None:
    """Say at once, before the work is done, that a file that was asked for cannot be written.

    Raises:
        ModelError: it is a folder, or its folder is not there.
    """
    for path in paths:
        if path is not None:
            check_folder(path)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[TextIO]:
    """A private text file that appears at `path` if all went well; what stood there before, if not.

    Raises:
        ModelError: it cannot be written: a folder, none to write it in, a full disk.
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
