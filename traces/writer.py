"""Writes a trace: a pipeline of processors that ends in an append-only file.

    event → no text, if redacted → known texts by hash → stamp (v, seq, ts, run) → JSON → ASCII
          → one line, one write

The line is plain ASCII without control characters: whatever a file or a model put into a field is
an escape in it, so it can neither start a second line nor reach a terminal raw, and a torn tail
never splits a character.

The processors have structlog's form, ``(logger, name, event)``, and work in a pipeline of an
application's own. structlog itself is not imported here: rich and asyncio come with it, and a
tenth of a run's start went into them.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import pydantic_core

from ..arguments import Closing
from ..errors import TraceError
from .append_log import AppendLog
from .events import SCHEMA_VERSION, Event, SealedEvent
from .redact import Redactor
from .sanitize import converted
from .text_dedup import DedupWriter

E = TypeVar("E", bound=Event)
Processor = Callable[[Any, str, Any], Any]
"""A processor as in structlog: takes logger, method name and event; returns the next event."""

_ABOVE = re.compile(r"[^ -~]")


def new_run_id(now: float | None = None) -> str:
    """Return a new run identifier, e.g. ``20260131-235959-123-9f3a1c``: it sorts by time (UTC)."""
    now = time.time() if now is None else now
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now * 1000) % 1000:03d}-{secrets.token_hex(3)}"


class TraceWriter(Closing):
    """Appends events to a trace file; thread-safe.

    Args:
        path: the file; what it already holds stays, and a torn tail is sealed.
        run: the run's identifier; a fresh one if not given.
        redact: write neither text nor token ids (see `redact`).

    Raises:
        TraceError: the file cannot be opened for writing.
    """

    def __init__(self, path: str | Path, *, run: str | None = None, redact: bool = False) -> None:
        self.path = Path(path)
        self.run = run or new_run_id()
        self._lock = threading.RLock()  # sealing renders an event while one is being written
        self._stamp = Stamp(self.run)
        self._pipeline: list[Processor] = [self._stamp, to_json_line, to_ascii]
        self._redact = Redactor() if redact else None
        self._pool = DedupWriter()
        self._file = AppendLog(self.path, self._seal, SCHEMA_VERSION)

    def write(self, event: E) -> E:
        """Append one event, and fill in its ``seq``, ``ts`` and ``run``.

        When this returns, the operating system has the line: it survives the end of this process.

        Raises:
            TraceError: the line could not be written whole.
        """
        with self._lock:
            body: Mapping[str, Any] = event.model_dump()
            if self._redact is not None:
                body = self._redact(body)
            line, digest = self._pool.shorten(body)
            self._file.append(self._render(line))
            self._pool.keep(digest)
            event.seq, event.ts, event.run = self._stamp.last
        return event

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            self._file.close()

    def _seal(self, torn_bytes: int) -> str:
        """Return the line that marks a torn tail, through the same pipeline."""
        return self._render(SealedEvent(torn_bytes=torn_bytes).model_dump())

    def _render(self, body: dict[str, Any]) -> str:
        """Return the line of an event, given its dumped fields."""
        line: Any = body
        for processor in self._pipeline:
            line = processor(None, "append", line)
        return line


class Stamp:
    """Processor that puts ``v``, ``seq``, ``ts`` and ``run`` first; an existing ``ts`` stays."""

    def __init__(self, run: str) -> None:
        self.last: tuple[int, float, str] = (-1, 0.0, run)

    def __call__(
        self, logger: object, name: str, event: MutableMapping[str, Any]
    ) -> Mapping[str, Any]:
        seq, _, run = self.last
        # Counted before the write: a write that fails leaves a gap, never a number used twice.
        self.last = (seq + 1, event.get("ts") or time.time(), run)
        # An event copied from a newer trace keeps that trace's version.
        v = event.get("v", SCHEMA_VERSION)
        head = {"v": v, "seq": seq + 1, "ts": self.last[1], "run": run, "event": event["event"]}
        return head | {**event, **head}  # the first decides the order, the last the values


def to_json(event: Mapping[str, Any]) -> str:
    """Serialize an event to a line of JSON; NaN, bytes, paths and other types become text."""
    try:
        # pydantic's writer takes a quarter of the time of `json`, but cannot write everything.
        return pydantic_core.to_json(event, inf_nan_mode="strings", fallback=_fallback).decode()
    except (ValueError, TypeError, RecursionError):
        pass  # a lone surrogate, a key that is no text, …: all of it is tried again below
    try:
        try:
            return _dumps(event)
        except (ValueError, TypeError):
            return _dumps(converted(event, _finite))
    except RecursionError as error:
        raise TraceError("an event is nested too deeply to be written to a trace") from error


def to_json_line(logger: object, name: str, event: Mapping[str, Any]) -> str:
    """Serialize an event as `to_json` does, in the form of a processor."""
    return to_json(event)


def to_ascii(logger: object, name: str, line: str) -> str:
    """Escape characters above ASCII's printable range; `to_json` has escaped those below."""
    if line.isascii() and "\x7f" not in line:
        return line
    return _ABOVE.sub(_escape, line)


def _escape(found: re.Match[str]) -> str:
    """Return one character as JSON's ``\\uXXXX``, or two of them."""
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def _finite(value: Any) -> Any:
    """Return NaN and infinities as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _fallback(value: object) -> object:
    """Convert non-JSON types: numpy numbers by value, sets to lists, the rest to text."""
    item = getattr(value, "item", None)
    if callable(item):
        return converted(item(), _finite)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


_dumps = json.JSONEncoder(
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,  # what is circular is nested too deeply, and gets that error
    separators=(",", ":"),
    default=_fallback,
).encode
