"""Letting traces go: one at a time, and the oldest of a folder that has grown too large.

Nothing is removed that is being written, and nothing that is no trace. The limit of a folder is
about files that were named by us, after their run: what a person named is theirs to remove.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import TraceError
from .append_log import is_being_written, is_trace
from .find import SUFFIX, with_stat

LIMIT = "TRIPLEPOINT_TRACE_LIMIT"
"""The environment variable that says how large the traces of the state folder may be."""
MOST_BYTES = 10**9
_OURS = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{6}")
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Removed:
    """What went to keep a limit."""

    count: int
    nbytes: int


def limit(environ: Mapping[str, str] = os.environ) -> int | None:
    """Bytes that the traces of the state folder may take together; None for any number.

    Raises:
        TraceError: `LIMIT` is no size.
    """
    text = environ.get(LIMIT, "").strip()
    if not text:
        return MOST_BYTES
    if text.lower() == "off":
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise TraceError(f"{LIMIT} is {text!r}; give a size such as 500MB or 2GB, or off")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def enforce(folder: Path, most: int) -> Removed:
    """Remove the oldest traces of a folder that we named, until all of its traces take `most`."""
    sizes = {path: about.st_size for path, about in with_stat(folder).items()}
    over = sum(sizes.values()) - most
    count = nbytes = 0
    for path in reversed(sizes):  # the oldest first
        if nbytes >= over:
            break
        if _OURS.fullmatch(path.name.removesuffix(SUFFIX)) and not path.is_symlink():
            try:
                remove(path)
            except TraceError:  # being written, or not ours to remove
                continue
            count, nbytes = count + 1, nbytes + sizes[path]
    return Removed(count, nbytes)


def remove(path: Path) -> None:
    """Remove one trace.

    Raises:
        TraceError: it is being written, is no trace, or cannot be removed.
    """
    try:
        if not is_trace(path):
            raise TraceError(f"{path} is not a trace and is not removed")
        if is_being_written(path):
            raise TraceError(f"{path} is being written by another run and is not removed")
        path.unlink()
    except OSError as error:
        raise TraceError(f"cannot remove {path}: {error.strerror}") from None
