"""Parses a plain text completion, without turns or a template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .reply import Reply
from .stop_strings import StopTexts

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer
    from .formats.call_pieces import CallPiece
    from .formats.toolcalls import ToolCall


class PlainReader:
    """Streaming parser of a plain text completion, with the interface of `ReplyReader`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        ends: frozenset[int] | None = None,
        indent: int = 0,
    ) -> None:
        """Begin a completion.

        Args:
            tokenizer: of the model.
            stops: stop texts.
            ends: tokens that end the text and are not part of it; default: those of the model.
            indent: minimum spaces before each line but the first; a line with fewer ends the text.
        """
        self._stream = tokenizer.stream()
        self._ends = tokenizer.stop_ids if ends is None else ends
        self._stops = StopTexts(stops)
        self._indent, self._spaces, self._dedented = indent, -1, False
        self.rest: list[tuple[str, str]] = []
        self.calls: list[ToolCall] = []
        self.thought: list[int] = []

    @property
    def stopped(self) -> bool:
        """Return whether a stop text or too little indentation ended the text."""
        return self._dedented or self._stops.found is not None

    @property
    def stop_text(self) -> str | None:
        """Return the stop text that ended the completion, or None."""
        return self._stops.found

    def push(self, token: int) -> list[tuple[str, str]]:
        """Add a token; return the text that it completes, with its mode."""
        text = self._stops.push(self._stream.push(token)) if token not in self._ends else ""
        text = self._indented(text) if self._indent else text
        return [("answer", text)] if text else []

    def _indented(self, text: str) -> str:
        """Cut a piece of text at the first line with too little indentation."""
        for at, one in enumerate(text):
            if one == "\n" and (self._spaces < 0 or self._spaces >= self._indent):
                self._spaces = 0
            elif one in " \t" and self._spaces >= 0:
                self._spaces += 1
            elif 0 <= self._spaces < self._indent:
                self._dedented = True
                return text[:at]
            else:
                self._spaces = -1
        return text

    def call_pieces(self) -> list[CallPiece]:
        """Return nothing: a completion has no calls."""
        return []

    def call_arguments(self, _: int) -> None:
        """Return None: a completion has no calls."""

    def finish(self) -> Reply:
        """Flush the buffered text into `rest`."""
        text = self._stops.push(self._stream.flush()) + self._stops.flush()
        text = "" if self._dedented else self._indented(text) if self._indent else text
        self.rest = [("answer", text)] if text else []
        return Reply()
