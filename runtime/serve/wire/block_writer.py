"""Responses that are consecutive blocks: what the Responses and Messages formats share."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from ...conversation.logprobs import TokenLogprob
from ..models.events import Call, CallPart, Done, Event, PromptRead, Text, Thought
from ..models.writer import Writer


def named_event(kind: str, **data: Any) -> bytes:
    """Return a server-sent event that has its name as ``event`` and, in the data, as ``type``."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json({"type": kind, **data}))


class BlockWriter(Writer):
    """A writer of texts, thoughts and calls as consecutive blocks (see `Writer`).

    The whole response consists of the same blocks, so `stream` keeps them, too. A subclass for each
    format defines the events that open, extend and close the last block.
    """

    thought = "thought"
    """Kind of the blocks that hold thoughts."""

    def __init__(self) -> None:
        self._read: PromptRead | None = None
        self._done: Done | None = None
        self._blocks: list[dict[str, Any]] = []
        self._open = ""  # kind of the last block while it grows: text, `thought`, or call
        self._pieces: list[str] = []  # of its text, or of its arguments
        self._space = ""  # with which a block would begin: none consists of nothing else

    @property
    def _last(self) -> int:
        """Index of the last block."""
        return len(self._blocks) - 1

    # --- what a format says

    def _start(self) -> bytes:
        """Return the bytes that a stream begins with, once the prefill has ended."""
        raise NotImplementedError

    def _open_block(self, kind: str, name: str = "") -> bytes:
        """Add an empty block, and return its first event; `name` is the function of a call."""
        raise NotImplementedError

    def _extend_text(self, text: str, logprobs: list[TokenLogprob] | None) -> bytes:
        """Return the event that extends the text or thought of the last block."""
        raise NotImplementedError

    def _extend_call(self, arguments: str) -> bytes:
        """Return the event that extends the arguments of the call in the last block."""
        raise NotImplementedError

    def _close_block(self, text: str, *, complete: bool) -> bytes:
        """Fill the last block with its whole text or arguments, and return its last events."""
        raise NotImplementedError

    # --- what is the same in all

    def stream(self, event: Event) -> bytes:
        if isinstance(event, Text):
            return self._grow("text", event.text, event.logprobs)
        if isinstance(event, Thought):
            return self._grow(self.thought, event.text)
        if isinstance(event, CallPart):
            return (self._begin_call(event.name) if event.first else b"") + self._add(event.text)
        if isinstance(event, Call):
            data = b""
            if not event.streamed:
                data = self._begin_call(event.name) + self._add(event.arguments)
            return data + self._close()
        if isinstance(event, PromptRead):
            self._read = event
            return self._start()
        if isinstance(event, Done):
            self._done = event
            return self._close(complete=event.reason != "length")
        return b""

    def add(self, event: Event) -> None:
        if isinstance(event, Call) and event.as_text and self._open == "text":
            del self._blocks[-1]
            self._open, self._pieces = "", []
        self.stream(event)

    def _grow(self, kind: str, text: str, logprobs: list[TokenLogprob] | None = None) -> bytes:
        data = b""
        if self._open != kind:
            text = self._space + text
            data = self._close()
            if not text.strip():
                self._space = text
                return data
            self._open = kind
            data += self._open_block(kind)
        self._pieces.append(text)
        return data + self._extend_text(text, logprobs)

    def _begin_call(self, name: str) -> bytes:
        data = self._close()
        self._open = "call"
        return data + self._open_block("call", name)

    def _add(self, arguments: str) -> bytes:
        self._pieces.append(arguments)
        return self._extend_call(arguments)

    def _close(self, *, complete: bool = True) -> bytes:
        """Close the last block, if it is still open."""
        self._space = ""
        if not self._open:
            return b""
        data = self._close_block("".join(self._pieces), complete=complete)
        self._open, self._pieces = "", []
        return data
