"""Responses that are texts, several for each prompt: what both completion formats share."""

from __future__ import annotations

from typing import Any

from ..models.events import (
    Done,
    Event,
    PromptProgress,
    PromptRead,
    Text,
    progress_of,
    timings,
    whole_of,
)
from ..models.writer import Writer


class TextWriter(Writer):
    """A writer of the texts of one or several prompts (see `Writer`).

    Args:
        each: answers to each prompt.
        progress: whether a stream reports the progress of prefills.
    """

    def __init__(self, model: str, each: int, *, progress: bool) -> None:
        self.model, self._each, self._progress = model, each, progress
        self._reads: dict[int, PromptRead] = {}
        self._parts: dict[int, list[Text]] = {}
        self._done: dict[int, Done] = {}

    # --- what a format says

    def _chunk(self, choice: int, text: str, more: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def _text_event(self, text: Text) -> bytes:
        raise NotImplementedError

    def _done_event(self, done: Done) -> bytes:
        raise NotImplementedError

    # --- what is the same in both

    def stream(self, event: Event) -> bytes:
        self.add(event)
        if isinstance(event, PromptRead) and self._progress:
            event = whole_of(event)
        if isinstance(event, PromptProgress):
            return self._chunk(event.choice, "", {"prompt_progress": progress_of(event)})
        if isinstance(event, Text):
            return self._text_event(event)
        return self._done_event(event) if isinstance(event, Done) else b""

    def add(self, event: Event) -> None:
        if isinstance(event, PromptRead):
            self._reads[event.choice] = event
        elif isinstance(event, Text):
            self._parts.setdefault(event.choice, []).append(event)
        elif isinstance(event, Done):
            self._done[event.choice] = event

    def _text(self, choice: int) -> str:
        return "".join(part.text for part in self._parts.get(choice, ()))

    def _read(self, choice: int) -> PromptRead | None:
        """Return the `PromptRead` event of an answer's prompt."""
        return self._reads.get(choice - choice % self._each)

    def _timings(self, choice: int, so_far: tuple[int, float] | None) -> dict[str, Any]:
        """Return the field ``timings`` for the tokens and seconds of an answer so far, if known."""
        read = self._read(choice)
        return {} if read is None or so_far is None else {"timings": timings(read, *so_far)}
