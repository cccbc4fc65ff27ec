"""Detection of stop strings, which may begin and end within tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Streams a text up to the first stop string.

    Text that may be the beginning of a stop string is buffered until that is decided.

    Attributes:
        found: the stop string that ended the text, after which nothing is released; else None.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found: str | None = None

    @property
    def holds(self) -> bool:
        """Return whether text is buffered."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """Add text; return the text that can be released now."""
        if not self._stops or self.found is not None:
            return "" if self.found is not None else text
        text = self._held + text
        stops = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if stops:
            # Of two that begin at one place the longer one: the text is the same.
            at, self.found = min(stops, key=lambda one: (one[0], -len(one[1])))
            self._held = ""
            return text[:at]
        keep = max(overlap(text, stop) for stop in self._stops)
        text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return text

    def flush(self) -> str:
        """Release the buffered text at the end of the stream."""
        text, self._held = self._held, ""
        return text


def overlap(text: str, tag: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a prefix of ``tag``."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)
