"""Retention of traces: removes one, those past an age, or the oldest of a full folder.

Nothing is removed that is being written, and nothing that is no trace. The limit of a folder is
about files that were named by us, after their run: what a person named is theirs to remove.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import TraceError
from .append_log import is_being_written, is_trace

SUFFIX = ".jsonl"
LIMIT = "TRIPLEPOINT_TRACE_LIMIT"
"""The environment variable that says how large the traces of the state folder may be."""
MAX_BYTES = 10**9
_OURS = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{6}")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([kMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Removed:
    """The traces that a size limit removed; expired ones are not counted."""

    count: int
    nbytes: int


def limit(environ: Mapping[str, str] = os.environ, default: object = MAX_BYTES) -> int | None:
    """Return the maximum bytes of the state folder's traces; None for no limit.

    Raises:
        TraceError: `LIMIT` is no size; where it is not set, `default` counts, which `is_limit`.
    """
    text = environ.get(LIMIT, "").strip() or default
    if not is_limit(text):
        raise TraceError(f"{LIMIT} is {text!r}; give a size such as 500MB or 2GB, or off")
    found = _SIZE.fullmatch(str(text))
    return None if found is None else int(float(found[1]) * _UNITS[found[2].lower()])


def is_limit(value: object) -> bool:
    """Return whether a value is a size, such as ``500MB`` or a number of bytes, or ``off``."""
    text = str(value) if type(value) in (str, int) else ""
    return text.lower() == "off" or _SIZE.fullmatch(text) is not None


def with_stat(folder: Path) -> dict[Path, os.stat_result]:
    """Return the trace files of a folder, the newest first, with their status.

    What was just removed is not there; empty where there is no such folder.
    """
    found: dict[Path, os.stat_result] = {}
    try:
        for path in folder.iterdir():
            with suppress(FileNotFoundError):
                if path.suffix == SUFFIX and path.is_file():
                    found[path] = path.stat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TraceError(f"cannot read the folder {folder}: {error.strerror}") from error
    newest = sorted(found, key=lambda path: (found[path].st_mtime_ns, path.name), reverse=True)
    return {path: found[path] for path in newest}


def enforce(folder: Path, max_bytes: int | None, days: float | None = None) -> Removed:
    """Remove the oldest traces of a folder, of those named by this package.

    They go until all traces take at most `max_bytes`, and none was last written over `days` days
    ago; None is no such limit.
    """
    stats = with_stat(folder)
    over = 0 if max_bytes is None else sum(about.st_size for about in stats.values()) - max_bytes
    expired = 0.0 if days is None else time.time() - days * 86_400
    count = nbytes = 0
    for path, about in reversed(stats.items()):  # the oldest first
        is_old = about.st_mtime < expired
        if over <= 0 and not is_old:
            break
        if _OURS.fullmatch(path.name.removesuffix(SUFFIX)) and not path.is_symlink():
            try:
                remove(path)
            except TraceError:  # being written, or not ours to remove
                continue
            over -= about.st_size
            if not is_old:
                count, nbytes = count + 1, nbytes + about.st_size
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
