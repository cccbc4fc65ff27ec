"""Content-addressed texts: a long text is written once, and its hash replaces repeats.

A tool's result is a ``tool`` event's and then a ``message``'s, an answer is in three events,
and an agent reads the same file twice. The first event that has a text holds it. A later one has
an empty field, and ``<field>_sha256`` says which text it is. So a run's file grows with what is
new in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .events import TEXT_FIELDS
from .records import text_hash

MIN_CHARS = 96  # characters that a text must have; a hash and its name take about as many
EMPTY = text_hash("")


class DedupWriter:
    """Encoder that replaces texts that the file already holds by their hashes."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def shorten(self, event: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """Replace known texts of an event by hashes; return it, and the hash of a new text in it.

        Call `keep` with the hash when the line is written: a text in a lost line is not known.
        """
        body = dict(event)
        field = TEXT_FIELDS.get(body.get("event", ""))
        text = body.get(field) if field else None
        if field is None or not isinstance(text, str) or len(text) < MIN_CHARS:
            return body, None
        digest = text_hash(text)
        if digest not in self._known:
            return body, digest
        # An event that was read from elsewhere may name another hash: then the text stays.
        if body.get(f"{field}_sha256") == digest:
            body[field] = ""
        return body, None

    def keep(self, digest: str | None) -> None:
        """Record that the file now holds the text with this hash."""
        if digest is not None:
            self._known.add(digest)


class DedupReader:
    """Decoder that restores the replaced texts of a file."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def restore(self, data: dict[str, Any]) -> None:
        """Fill in a replaced text of an event's JSON ``data``, or record a new one."""
        field = TEXT_FIELDS.get(str(data.get("event")))
        if field is None or not isinstance(text := data.get(field), str):
            return
        if len(text) >= MIN_CHARS:
            self._texts.setdefault(text_hash(text), text)
        elif not text:
            digest = data.get(f"{field}_sha256")
            if isinstance(digest, str) and digest not in ("", EMPTY):
                missing = f"[not in this file: the text with SHA-256 {digest[:64]}]"
                data[field] = self._texts.get(digest, missing)
