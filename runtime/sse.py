"""A parser of server-sent events in OpenAI's format: each is JSON, or ``[DONE]``.

Clients of other libraries bound neither a line nor an event, and take no event without the empty
line that would end it, which some servers leave out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

MAX_EVENT = 4 * 2**20  # bytes
DONE = "[DONE]"  # data of the last event of a stream
_BREAK = re.compile(rb"\r\n|\n|\r")


class EventTooLongError(ValueError):
    """An event or one of its lines exceeds the size limit."""


class EventReader:
    """An incremental parser of events from the bytes of a stream.

    A line of data that is whole JSON is an event; one that is not continues in the next.

    Attributes:
        found: whether there was a line of data.
    """

    def __init__(self) -> None:
        self.found = False
        self._held = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[object]:
        """Parse a piece of the stream; yield the data of the events that it completes.

        Raises:
            EventTooLongError: see there.
            ValueError: an event is not JSON; says so with its beginning.
        """
        seeks = self._held.endswith(b"\r") or _BREAK.search(piece)  # not through all of it again
        self._held += piece
        if seeks:
            # A line break at the end may be the first half of one.
            cut = len(self._held) - self._held.endswith(b"\r")
            *lines, rest = _BREAK.split(self._held[:cut])
            self._held = rest + self._held[cut:]
            for line in lines:
                yield from self._line(line)
        if len(self._held) > MAX_EVENT:
            raise EventTooLongError

    def end(self) -> Iterator[object]:
        """Yield the events left at the end of the stream; raises as `feed`."""
        for line in (*_BREAK.split(self._held), b""):
            yield from self._line(line)

    def _line(self, line: bytes | bytearray) -> Iterator[object]:
        if line.startswith(b"data:"):
            self.found = True
            data = bytes(line[5:]).strip()
            if not self._data:
                try:
                    if data:  # else it keeps the connection
                        yield _value(data)
                    return
                except (ValueError, RecursionError):
                    pass
            self._data.append(data)
            self._size += len(data)
            if self._size > MAX_EVENT:
                raise EventTooLongError
        elif not line and self._data:
            data, self._data, self._size = b"\n".join(self._data), [], 0
            try:
                yield _value(data)
            except (ValueError, RecursionError):
                shown = data.decode("utf-8", "replace")[:80]
                raise ValueError(f"an event that is not JSON: {shown!r}") from None


def _value(data: bytes) -> object:
    text = data.decode("utf-8", "replace")
    return DONE if text == DONE else json.loads(text)
