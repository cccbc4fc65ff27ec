"""Reads a trace file, and holds a trace while it is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ..arguments import Closing, as_path, is_file
from ..errors import TraceError
from .event_log import EventLog
from .events import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    AnyEvent,
    Event,
    SealedEvent,
    UnknownEvent,
)
from .sanitize import short
from .text_dedup import DedupReader

if TYPE_CHECKING:
    from .writer import TraceWriter

E = TypeVar("E", bound="AnyEvent")

_OPENING = '{"v":'  # of every line
_MAX_LINE = 256 << 20  # bytes; a file that is no trace may be one line of many gigabytes


class Trace(EventLog, Closing):
    """The events of a trace, read from a file or collected while they are written."""

    _writer: TraceWriter | None = None
    on_loss: Callable[[TraceError], None] | None = None
    """Callback for an event that cannot be written; from then on the trace is in memory only."""

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace file.

        Events and fields that this version does not know are kept. An unfinished last line, and
        lines that a later writer sealed, do not stop the reading.

        Raises:
            TraceError: the file does not exist, or a line is not an event; names the line.
        """
        path = _path(path)
        if not is_file(path, "cannot read the trace", TraceError):
            what = "is not a regular file" if path.exists() else "does not exist"
            raise TraceError(f"cannot read the trace {path}: it {what}")
        try:
            with path.open("rb") as file:
                events, torn = _read(file, str(path))
        except OSError as error:
            raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
        if torn is not None and not events and torn[: len(_OPENING)] != _OPENING[: len(torn)]:
            raise TraceError(f"{path} is not a trace: its first line is not a complete JSON object")
        return cls(events, path=path, torn=torn)

    @classmethod
    def to_file(cls, path: str | Path, *, run: str | None = None, redact: bool = False) -> Trace:
        """Create a trace that appends every event to a file; close it, or use ``with``.

        Args:
            run: the run's identifier; a fresh one if not given.
            redact: write neither text nor token ids to the file; they stay in memory.

        Raises:
            TraceError: the file cannot be opened for writing.
        """
        from .writer import TraceWriter

        trace = cls(path=_path(path))
        trace._writer = TraceWriter(path, run=run, redact=redact)
        return trace

    def write(self, event: E) -> E:
        """Append an event, also to the file if there is one; return the event with its stamp.

        Raises:
            TraceError: the line could not be written whole, and there is no `on_loss`.
        """
        if not isinstance(event, Event):
            raise TraceError(f"a trace is written event by event, and {event!r} is not an event")
        if self._writer is not None:
            try:
                self._writer.write(event)
            except TraceError as error:
                if self.on_loss is None:
                    raise
                self.close()  # which removes a file without a line
                self._writer = None
                self.path = self.path if self.path and self.path.exists() else None
                self.on_loss(error)
        if self._writer is None:
            event.seq, event.ts = len(self.events), event.ts or time.time()
        self.events.append(event)
        return event

    def close(self) -> None:
        """Close the file; the events stay readable here."""
        if self._writer is not None:
            self._writer.close()

    def to_dataframe(self, table: str = "phases", *, library: str | None = None) -> Any:
        """Return one of the trace's tables as a data frame, by default the phases.

        Args:
            table: ``runs``, ``turns``, ``phases``, ``passes``, ``tools``, ``messages`` or
                ``layers``; the columns are those of `tables.COLUMNS`.
            library: ``pandas`` or ``polars``; by default whichever is installed, pandas first.

        Returns:
            A ``pandas.DataFrame`` or a ``polars.DataFrame``.

        Raises:
            TraceError: no such library is installed.
            SettingError: there is no such table or library.
        """
        from .tables import frame

        return frame(self, table, library)


def _path(path: object) -> Path:
    return as_path(path, "the name of a trace is the path of its file; it", TraceError)


def _read(file: IO[bytes], name: str) -> tuple[list[AnyEvent], str | None]:
    """Read the events of a file and its torn tail, if any."""
    events: list[AnyEvent] = []
    pool = DedupReader()
    torn: list[tuple[int, bytes]] = []  # forgiven at the end, or when a `sealed` event follows
    for number, line in _lines(file, name):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):  # bad UTF-8 is a ValueError too
            torn.append((number, line))
            continue
        try:
            if isinstance(data, dict):
                pool.restore(data)
            event = parse_event(data)
        except TraceError as error:
            raise TraceError(f"{name}, line {number}: {error}") from None
        if torn and not isinstance(event, SealedEvent):
            raise TraceError(f"{name}, line {torn[0][0]}: not JSON: {short(_text(torn[0][1]), 60)}")
        torn.clear()
        events.append(event)
    return events, "\n".join(_text(line) for _, line in torn) if torn else None


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and bytes of each non-empty line."""
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        if len(line) == _MAX_LINE:
            raise TraceError(
                f"{name}, line {number}: longer than {_MAX_LINE >> 20} MiB; not a trace"
            )
        if text := line.strip():
            yield number, text


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def old_format(version: int) -> str:
    """Return the error message for a trace of an older format."""
    return (
        f"this trace has format {version} of an older triplepoint; this version reads format "
        f"{SCHEMA_VERSION}, so record the run again"
    )


def parse_event(data: Any) -> AnyEvent:
    """Parse the event in one line's JSON.

    Raises:
        TraceError: it is no object, of an older format, or a known event lacks a field or has a
            wrong one.
    """
    if not isinstance(data, dict) or not isinstance(data.get("event"), str):
        raise TraceError("not a trace event; expected a JSON object with a string field 'event'")
    version = data.get("v")
    if isinstance(version, int) and version < SCHEMA_VERSION:
        raise TraceError(old_format(version))
    from pydantic import ValidationError

    try:
        return EVENT_TYPES.get(data["event"], UnknownEvent).model_validate(data)
    except ValidationError as error:
        # A later schema may give a known event another shape.
        if isinstance(data.get("v"), int) and data["v"] > SCHEMA_VERSION:
            return UnknownEvent(data.pop("event"), **data)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"event '{data['event']}', field '{where}': {first['msg']}"
        raise TraceError(short(message, 200)) from None
