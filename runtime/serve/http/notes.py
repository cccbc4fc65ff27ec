"""Notes on ignored or reinterpreted parameters of a request: its header ``warnings``, in JSON."""

from __future__ import annotations

from contextvars import ContextVar

MAX_NOTES, MAX_NOTE = 16, 300  # of a request, and characters of each: they are in a header
_NOTES: ContextVar[list[str]] = ContextVar("triplepoint.notes")


def note(text: str, notes: list[str] | None = None) -> None:
    """Add a note to the response to the current request, once.

    Does nothing outside a request. A note that comes after the head of a stream was sent is a
    comment at its end.

    Args:
        text: one sentence.
        notes: list of the request, in a thread that was not started with its context.
    """
    notes = current_notes() if notes is None else notes
    text = text[:MAX_NOTE]
    if len(notes) < MAX_NOTES and text not in notes:
        notes.append(text)


def current_notes() -> list[str]:
    """Return the live list of the current request's notes; outside a request, an empty list."""
    return _NOTES.get([])


def begin_notes() -> list[str]:
    """Start an empty list of notes for the current request, and return it."""
    notes: list[str] = []
    _NOTES.set(notes)
    return notes
