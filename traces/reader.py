"""Reads a trace, and holds one while it is being written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from ..arguments import as_path, is_file
from ..errors import TraceError
from .events import (
    EVENT_TYPES,
    SCHEMA_VERSION,
    AnyEvent,
    Event,
    HistoryEvent,
    MessageEvent,
    PhaseEvent,
    RunEnd,
    RunStart,
    SealedEvent,
    ToolEvent,
    TurnEnd,
    UnknownEvent,
)
from .sanitize import short
from .text_dedup import DedupReader

if TYPE_CHECKING:
    from .writer import TraceWriter

E = TypeVar("E", bound="AnyEvent")

_OF_A_QUESTION = (MessageEvent, ToolEvent, TurnEnd)
_OPENING = '{"v":'  # of every line
_MAX_LINE = 256 << 20  # bytes; a file that is no trace may be one line of many gigabytes


@dataclass
class Turn:
    """One question and everything up to its answer."""

    number: int
    messages: list[MessageEvent] = field(default_factory=list)
    phases: list[PhaseEvent] = field(default_factory=list)
    tools: list[ToolEvent] = field(default_factory=list)
    end: TurnEnd | None = None
    """None when the run ended before the turn did."""
    task: str = ""
    """The question of a turn that goes on from a later step of another run."""

    @property
    def question(self) -> str:
        """The user's message that opened the turn."""
        return next((m.content for m in self.messages if m.role == "user"), self.task)

    @property
    def began(self) -> bool:
        """Whether anything was said or done in it; else it only took over a conversation."""
        return bool(self.messages or self.tools or any(phase.step for phase in self.phases))

    @property
    def answer(self) -> str | None:
        """The answer; None when there was none."""
        return self.end.answer if self.end else None


class Trace:
    """The events of a trace, read from a file or collected while they are written."""

    def __init__(
        self,
        events: list[AnyEvent] | None = None,
        *,
        path: Path | None = None,
        torn: str | None = None,
    ) -> None:
        self.events: list[AnyEvent] = [] if events is None else events
        self.path = path
        self.torn = torn
        """Text of an unfinished last line; None when the file ends with a whole one."""
        self._writer: TraceWriter | None = None

    @property
    def run(self) -> str:
        """The run's identifier; empty before its first event."""
        return self.events[0].run if self.events else ""

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace file.

        Events and fields that this version does not know are kept. An unfinished last line, and
        lines that a later writer sealed, do not stop the reading.

        Raises:
            TraceError: there is no such file, or a line is not an event; names the line.
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
        """A new trace that appends every event to a file; close it, or use ``with``.

        Args:
            run: the run's identifier; a fresh one if not given.
            redact: the file gets neither text nor token ids; here they stay.

        Raises:
            TraceError: the file cannot be opened for writing.
        """
        from .writer import TraceWriter

        trace = cls(path=_path(path))
        trace._writer = TraceWriter(path, run=run, redact=redact)
        return trace

    def write(self, event: E) -> E:
        """Add one event, to the file too if there is one; returns it, stamped.

        Raises:
            TraceError: the line could not be written whole.
        """
        if not isinstance(event, Event):
            raise TraceError(f"a trace is written event by event, and {event!r} is none")
        if self._writer is not None:
            self._writer.write(event)
        else:
            event.seq, event.ts = len(self.events), event.ts or time.time()
        self.events.append(event)
        return event

    def close(self) -> None:
        """Close the file; what was written stays readable here."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def header(self) -> RunStart | None:
        """The first run's header."""
        return next((e for e in self.events if isinstance(e, RunStart)), None)

    @property
    def history(self) -> HistoryEvent | None:
        """The conversation that the first run goes on with; None where it begins one."""
        return next((e for e in self.events if isinstance(e, HistoryEvent)), None)

    @property
    def redacted(self) -> bool:
        """Whether text and token ids were left out of one of its runs."""
        return any(isinstance(e, RunStart) and e.redacted for e in self.events)

    @property
    def end(self) -> RunEnd | None:
        """The last run's end; None when it was killed or still goes on."""
        marks = [e for e in self.events if isinstance(e, RunEnd | RunStart)]
        if not marks or not isinstance(marks[-1], RunEnd) or self.cut_off is not None:
            return None
        return marks[-1]

    @property
    def cut_off(self) -> AnyEvent | None:
        """The last event of a question that has no end: it was killed there, or still goes on."""
        last: AnyEvent | None = None
        for event in self.events:
            # A header without a task is of a conversation in which nothing was asked yet.
            asks = event.task if isinstance(event, RunStart) else isinstance(event, _OF_A_QUESTION)
            if isinstance(event, RunEnd):
                last = None
            elif asks or last is not None:
                last = event
        return last

    @property
    def answer(self) -> str | None:
        """The last answer that was given."""
        for event in reversed(self.events):
            if isinstance(event, TurnEnd | RunEnd) and event.answer:
                return event.answer
        return None

    @property
    def phases(self) -> list[PhaseEvent]:
        """All phases, in order."""
        return [e for e in self.events if isinstance(e, PhaseEvent)]

    @property
    def tools(self) -> list[ToolEvent]:
        """All tool calls, in order."""
        return [e for e in self.events if isinstance(e, ToolEvent)]

    @property
    def transitions(self) -> list[tuple[PhaseEvent, PhaseEvent]]:
        """Neighboring phases that ran in different regimes.

        A phase that computed nothing, as a fork does, ran in none.
        """
        ran = [phase for phase in self.phases if phase.tokens]
        return [(a, b) for a, b in pairwise(ran) if a.regime != b.regime]

    @property
    def turns(self) -> list[Turn]:
        """The events of each turn, in order."""
        turns: dict[tuple[str, int], Turn] = {}
        for event in self.events:
            if isinstance(event, RunStart) and event.parent_step:
                number, _, step = event.parent_step.partition(".")
                if number.isdecimal() and step != "1":  # its question stands in the header
                    turns[event.run, int(number)] = Turn(int(number), task=event.task)
            if not isinstance(event, MessageEvent | PhaseEvent | ToolEvent | TurnEnd):
                continue
            turn = turns.setdefault((event.run, event.turn), Turn(event.turn))
            if isinstance(event, MessageEvent):
                turn.messages.append(event)
            elif isinstance(event, PhaseEvent):
                turn.phases.append(event)
            elif isinstance(event, ToolEvent):
                turn.tools.append(event)
            else:
                turn.end = event
        return list(turns.values())

    def to_dataframe(self, table: str = "phases", *, library: str | None = None) -> Any:
        """One of the trace's tables as a data frame, a row for each phase by default.

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
        from .dataframes import frame

        return frame(self, table, library)

    @property
    def runs(self) -> list[Trace]:
        """One trace for each run in the file, in order."""
        groups: dict[str, list[AnyEvent]] = {}
        for event in self.events:
            groups.setdefault(event.run, []).append(event)
        return [Trace(events, path=self.path) for events in groups.values()]


def _path(path: object) -> Path:
    return as_path(path, "a trace is named by the path of its file; it", TraceError)


def _read(file: IO[bytes], name: str) -> tuple[list[AnyEvent], str | None]:
    """The events of a file and its torn tail, if any."""
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
    """Number and bytes of each line that is not empty."""
    number = 0
    while line := file.readline(_MAX_LINE):
        number += 1
        if len(line) == _MAX_LINE:
            raise TraceError(f"{name}, line {number}: longer than {_MAX_LINE >> 20} MiB; no trace")
        if text := line.strip():
            yield number, text


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def old_format(version: int) -> str:
    """What to say of a trace of an older format."""
    return (
        f"this is trace format {version}, of an older triplepoint; this one reads format "
        f"{SCHEMA_VERSION}: record the run again"
    )


def parse_event(data: Any) -> AnyEvent:
    """The event that one line's JSON describes.

    Raises:
        TraceError: it is no object, of an older format, or a known event lacks a field or has a
            wrong one.
    """
    if not isinstance(data, dict) or not isinstance(data.get("event"), str):
        raise TraceError("not a trace event: a JSON object with a text field 'event' is needed")
    version = data.get("v")
    if isinstance(version, int) and version < SCHEMA_VERSION:
        raise TraceError(old_format(version))
    from pydantic import ValidationError

    try:
        return EVENT_TYPES.get(data["event"], UnknownEvent).model_validate(data)
    except ValidationError as error:
        # A later schema may give a known event another shape.
        if isinstance(data.get("v"), int) and data["v"] > SCHEMA_VERSION:
            return UnknownEvent(**data)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"event '{data['event']}', field '{where}': {first['msg']}"
        raise TraceError(short(message, 200)) from None
