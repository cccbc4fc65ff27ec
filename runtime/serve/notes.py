"""Notes on what was ignored or read otherwise in a request: its header ``warnings``, in JSON."""

from __future__ import annotations

from contextvars import ContextVar

_NOTES: ContextVar[list[str]] = ContextVar("triplepoint.notes")


def note(text: str) -> None:
    """Add a note to the response to the current request, once.

    Works wherever the request is handled, its worker threads included; notes that come after the
    head of a response was sent are lost. Does nothing outside a request.
    """
    notes = _NOTES.get([])
    if len(notes) < 16 and text[:200] not in notes:  # bounded, as it is a header
        notes.append(text[:200])


def begin_notes() -> list[str]:
    """Begin to collect the notes of a request."""
    notes: list[str] = []
    _NOTES.set(notes)
    return notes
