"""Converts a file to rows, or to the reason why not; no file can stop an ingest."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...errors import TraceError
from ..events import SCHEMA_VERSION
from ..export_tables import json_line, storable
from ..reader import Trace
from ..sanitize import short
from .schema import USABLE, table_rows

_FIRST_LINE = 1 << 20  # bytes of it that distinguish an old trace from what is none


@dataclass
class FileRecord:
    """The record of an ingested file: a row of the table ``files``.

    ``status`` is ``ok``; ``torn`` (the last line is unfinished; the rest is there) or ``newer`` (a
    later triplepoint wrote it; what this one knows is there); ``old``, ``corrupt``, ``foreign``,
    ``empty`` or ``unreadable`` (nothing of it is there, and `problem` says why); or ``duplicate``
    (the same bytes are there from another file).
    """

    file: str
    status: str = "unreadable"
    problem: str | None = None
    size: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    events: int = 0
    runs: int = 0
    texts: bool = False
    tokens: bool = False
    ingested_s: float = 0.0

    @property
    def usable(self) -> bool:
        """Return whether the file's rows are in the tables."""
        return self.status in USABLE


@dataclass
class Extract:
    """The data extracted from a file: its record, and its rows as JSON lines by table."""

    record: FileRecord
    lines: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def lines_with_record(self) -> dict[str, str]:
        """Return the rows of all tables, including the file's own."""
        return {**self.lines, "files": json_line(asdict(self.record))}


def name_of(path: str | Path) -> str:
    """Return a file's name in the tables: its absolute path, links resolved."""
    return storable(os.path.realpath(path))


def extract(path: str, *, texts: bool = False, tokens: bool = False) -> Extract:
    """Convert one trace file to rows; an error goes into its record instead of being raised."""
    record = FileRecord(name_of(path), texts=texts, tokens=tokens, ingested_s=time.time())
    found = Extract(record)
    try:
        _read(path, found)
    except TraceError as error:
        record.status, record.problem = _what_it_is(path), short(_without(path, error), 300)
    except OSError as error:
        record.status, record.problem = "unreadable", error.strerror or type(error).__name__
    except Exception as error:  # a file that breaks the reader is named like any other
        record.status = "unreadable"
        record.problem = short(f"{type(error).__name__}: {error}", 300)
    if not record.usable:
        found.lines, found.count, record.events, record.runs = {}, 0, 0, 0
    return found


def _read(path: str, found: Extract) -> None:
    record = found.record
    # Before it is read: what is appended meanwhile makes it a grown file for the next time.
    about = os.stat(path)
    record.size, record.mtime_ns = about.st_size, about.st_mtime_ns
    if not stat.S_ISREG(about.st_mode):
        record.problem = "it is not a regular file"
        return
    with open(path, "rb") as file:
        record.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    trace = Trace.load(path)
    record.events, record.runs = len(trace.events), len(trace.runs)
    if not trace.events:
        record.status = "empty"
        record.problem = "it has no event" + (
            "" if trace.torn is None else ": its first line is cut off"
        )
        return
    record.status = "ok"
    if trace.torn is not None:
        record.status = "torn"
        record.problem = f"the last line is cut off ({len(trace.torn):,} characters omitted)"
    newest = max((v for e in trace.events if isinstance(v := e.v, int)), default=0)
    if newest > SCHEMA_VERSION:
        record.status = "newer"
        record.problem = f"format {newest}; this triplepoint reads {SCHEMA_VERSION}"
    tables = table_rows(trace, record.file, texts=record.texts, tokens=record.tokens)
    found.count = sum(map(len, tables.values()))
    found.lines = {table: "".join(map(json_line, made)) for table, made in tables.items() if made}


def _what_it_is(path: str) -> str:
    """Classify a file that is no readable trace: old, broken, or never one."""
    try:
        with open(path, "rb") as file:
            first = json.loads(file.readline(_FIRST_LINE))
    except (ValueError, RecursionError):
        return "foreign"
    except OSError:
        return "unreadable"
    if not isinstance(first, dict) or not isinstance(first.get("event"), str):
        return "foreign"
    version = first.get("v")
    if isinstance(version, int) and version < SCHEMA_VERSION:
        return "old"
    return "corrupt" if isinstance(version, int) else "foreign"


def _without(path: str, error: TraceError) -> str:
    """Return the message without the file's name, which is in another column."""
    text, path = str(error), str(Path(path))  # as the reader has it: without a "./"
    for opening in (f"cannot read the trace {path}: ", f"{path}, ", f"{path}: ", f"{path} "):
        text = text.removeprefix(opening)
    return text
