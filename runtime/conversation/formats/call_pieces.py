"""Streams the arguments of tool calls while the model still writes them.

Where the arguments of a call are a JSON object, its text is what clients get in any case: so it can
be passed on as it comes. Calls in other formats are reported when they are whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

JSON_HEAD = re.compile(r'"name":\s*("(?:[^"\\]|\\.)*"),\s*"(?:arguments|parameters)":\s*(?=\{)')
"""The text before the arguments in a JSON call; its first group is the quoted name."""
_STOPS = re.compile(r'["\\{}\[\]]')


@dataclass(frozen=True, slots=True)
class CallPiece:
    """One streamed delta of a tool call's arguments.

    Attributes:
        index: of the call in its turn.
        name: of the tool.
        text: of the JSON object, as the model wrote it.
    """

    index: int
    name: str
    text: str


def _read(name: str) -> str:
    """Decode a quoted name; return its raw content where it is invalid JSON."""
    try:
        return str(json.loads(name))
    except ValueError:
        return name[1:-1]


class CallPieces:
    """Extracts the JSON arguments of calls incrementally from streamed text.

    Args:
        head: what precedes the arguments of a call, up to their ``{``; its first group is the
            name, as it is or as a JSON string.

    Attributes:
        arguments: of the calls that were read whole, as the model wrote them.
    """

    def __init__(self, head: re.Pattern[str]) -> None:
        self._head = head
        self._text = ""  # since the last call's end, while the next one's arguments have not begun
        self._taken = 0  # texts of this body
        self._name: str | None = None  # of the call whose arguments are being read
        self._object: list[str] = []
        self._depth = 0
        self._quoted = self._escaped = False
        self.arguments: list[str] = []

    def begin(self) -> None:
        """Reset for another call body; an unfinished call of the last one is dropped."""
        self._text, self._taken, self._name = "", 0, None

    def read(self, texts: Sequence[str]) -> list[CallPiece]:
        """Return the argument deltas of the texts added since the last call."""
        found: list[CallPiece] = []
        for text in texts[self._taken :]:
            self._read(text, found)
        self._taken = len(texts)
        return found

    def _read(self, text: str, found: list[CallPiece]) -> None:
        while text:
            called = self._name
            if called is None:
                self._text += text
                head = self._head.search(self._text)
                if head is None:
                    return
                name = head[1]
                called = self._name = _read(name) if name[:1] == '"' else name
                text, self._text = self._text[head.end() :], ""
                self._object, self._depth = [], 0
                self._quoted = self._escaped = False
            end = self._end(text)
            piece, text = text[:end], text[end:]
            self._object.append(piece)
            found.append(CallPiece(len(self.arguments), called, piece))
            if self._depth == 0:
                self.arguments.append("".join(self._object))
                self._name = None

    def _end(self, text: str) -> int:
        """Return how many characters of a text belong to the arguments' JSON object."""
        at = 0
        if self._escaped:
            at, self._escaped = 1, False
        while (mark := _STOPS.search(text, at)) is not None:
            at, sign = mark.end(), mark[0]
            if self._quoted and sign == "\\":
                if at == len(text):
                    self._escaped = True
                at += 1
            elif sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted and sign in "{[":
                self._depth += 1
            elif not self._quoted and sign in "]}":
                self._depth -= 1
                if self._depth == 0:
                    return at
        return len(text)
