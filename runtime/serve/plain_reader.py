"""Reads a text that only goes on, where no template says how a turn looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..conversation.reply import Reply
from ..conversation.stop_strings import StopTexts

if TYPE_CHECKING:
    from ..conversation.call_pieces import CallPiece
    from ..conversation.toolcalls import ToolCall
    from ..tokens.tokenizer import Tokenizer


class PlainReader:
    """Reads a text that only goes on, where `ReplyReader` reads a turn."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._stream, self._ends = tokenizer.stream(), tokenizer.stop_ids
        self._stops = StopTexts(stops)
        self.rest: list[tuple[str, str]] = []
        self.calls: list[ToolCall] = []
        self.thought: list[int] = []

    @property
    def stopped(self) -> bool:
        """Whether one of the texts that end the answer was met."""
        return self._stops.found is not None

    @property
    def stop_text(self) -> str | None:
        """Which of them it was."""
        return self._stops.found

    def push(self, token: int) -> list[tuple[str, str]]:
        """The piece of text that a token completes."""
        text = self._stops.push(self._stream.push(token)) if token not in self._ends else ""
        return [("answer", text)] if text else []

    def call_pieces(self) -> list[CallPiece]:
        """None: there are no calls."""
        return []

    def call_arguments(self, _: int) -> None:
        """None: there are no calls."""

    def finish(self) -> Reply:
        """Let go of what was held back, into `rest`."""
        text = self._stops.push(self._stream.flush()) + self._stops.flush()
        self.rest = [("answer", text)] if text else []
        return Reply()
