"""Notes to a client: what of its request was read in another way, or has no effect.

They are in the header ``warnings`` of the response, as a JSON list of texts.
"""

from __future__ import annotations

import json
from contextvars import ContextVar

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

MAX_NOTES, MAX_TEXT = 16, 200  # of one request; characters of each
_NOTES: ContextVar[list[str]] = ContextVar("triplepoint.notes")


def note(text: str) -> None:
    """Add a note to the response to the current request, once.

    Works wherever the request is handled, its worker threads included; notes that come after the
    head of a response was sent are lost. Does nothing outside a request.
    """
    notes = _NOTES.get([])
    if len(notes) < MAX_NOTES and text[:MAX_TEXT] not in notes:
        notes.append(text[:MAX_TEXT])


def with_notes(send: Send) -> Send:
    """Begin to collect the notes of a request, and write them into the head of its response."""
    notes: list[str] = []
    _NOTES.set(notes)

    async def send_noted(message: Message) -> None:
        if message["type"] == "http.response.start" and notes:
            MutableHeaders(scope=message)["warnings"] = json.dumps(notes)  # ASCII, on one line
        await send(message)

    return send_noted
