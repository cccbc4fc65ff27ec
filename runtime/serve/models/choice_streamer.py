"""Streams one answer: converts decoded tokens to events."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .events import Call, CallPart, Event, Text, Thought

if TYPE_CHECKING:
    from ...conversation.formats.toolcalls import ToolCall
    from ...conversation.logprobs import LogprobRecorder, TokenLogprob
    from ...conversation.plain_reader import PlainReader
    from ...conversation.reply import ReplyReader
    from ...tokens.tokenizer import Tokenizer


class ChoiceStreamer:
    """An emitter of the events of one answer, from what its reader parses.

    Args:
        recorder: of logprobs, if they are requested.
        pieces: whether to emit calls while they are decoded.
        ids: whether texts come with their token IDs.
        timed: whether each piece comes with the tokens and seconds so far.
        tokenizer: limits the logprobs of a text to the tokens that wrote it; None: those of
            thoughts and calls before it are included.

    Attributes:
        calls: number of calls that were emitted.
        count: number of tokens that were decoded.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        reader: ReplyReader | PlainReader,
        choice: int,
        recorder: LogprobRecorder | None = None,
        *,
        pieces: bool = False,
        ids: bool = False,
        timed: bool = False,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._emit, self._reader, self._choice = emit, reader, choice
        self._recorder, self._pieces, self._timed = recorder, pieces, timed
        self._ids: list[int] | None = [] if ids else None
        self._began: dict[int, str] = {}  # identifiers of calls that were emitted in parts
        self._since = time.perf_counter()
        self.calls = self.count = 0

    def take(self, token: int, pieces: Iterable[tuple[str, str]]) -> None:
        """Emit the events that a decoded token completes."""
        reader = self._reader
        self.count += 1
        if self._ids is not None:
            self._ids.append(token)
        self._texts(pieces)
        if self._pieces:
            self._parts()
        if len(reader.calls) > self.calls:
            self._whole(reader.calls)

    def rest(self, calls: Sequence[ToolCall], *, as_text: bool = False) -> None:
        """Emit the text that the reader held back, and the calls that were not emitted yet.

        `as_text`: the calls were parsed from the answer's text, which is not emitted then.
        """
        self._texts(one for one in self._reader.rest if not (as_text and one[0] == "answer"))
        if self._ids:  # the last ones have no text, such as what ends an answer
            noted = self._recorder.take() if self._recorder is not None else None
            self._emit(Text(self._choice, "", noted, self._ids, self._so_far()))
        if self._pieces:
            self._parts()
        self._whole(calls, as_text=as_text)

    @property
    def seconds(self) -> float:
        """Seconds since the streamer was created."""
        return time.perf_counter() - self._since

    def _so_far(self) -> tuple[int, float] | None:
        return (self.count, self.seconds) if self._timed else None

    def _texts(self, pieces: Iterable[tuple[str, str]]) -> None:
        for mode, text in pieces:
            noted = self._recorder.take() if self._recorder is not None else None
            if mode == "answer":
                ids = self._ids
                if ids is not None:
                    self._ids = []
                if noted and self._tokenizer is not None:
                    noted = _that_wrote(text, noted, self._tokenizer)
                event = Text(self._choice, text, noted, ids, self._so_far())
            else:
                event = Thought(self._choice, text, self._so_far())
            self._emit(event)

    def _parts(self) -> None:
        """Emit the new pieces of calls that are still being decoded."""
        for piece in self._reader.call_pieces():
            first = piece.index not in self._began
            own = self._began.setdefault(piece.index, new_call_id())
            self._emit(
                CallPart(
                    self._choice, piece.index, own, piece.name, piece.text, first, self._so_far()
                )
            )

    def _whole(self, calls: Sequence[ToolCall], *, as_text: bool = False) -> None:
        """Emit the complete calls that were not emitted yet."""
        for index, call in enumerate(calls[self.calls :], self.calls):
            own = self._began.get(index)
            arguments = None if own is None else self._reader.call_arguments(index)
            if own is not None and arguments is not None:
                event = Call(self._choice, index, own, call.name, arguments, streamed=True)
            else:
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                own = call.id or new_call_id()
                event = Call(self._choice, index, own, call.name, arguments, as_text=as_text)
            self._emit(event)
        self.calls = len(calls)


def _that_wrote(text: str, noted: list[TokenLogprob], tokenizer: Tokenizer) -> list[TokenLogprob]:
    """Select the logprobs of the tokens that wrote a text, without a thought or call before it."""
    wanted, written = text.encode(), b""
    for number in reversed(range(len(noted))):
        written = tokenizer.token_bytes(noted[number].token) + written
        if len(written) >= len(wanted):
            # It may be a part of them only, where a stop text was met.
            return noted[number:] if written.endswith(wanted) else noted
    return noted


def new_call_id() -> str:
    """Return a random call ID of nine characters, the length that Mistral's templates require."""
    return f"c{secrets.token_hex(4)}"
