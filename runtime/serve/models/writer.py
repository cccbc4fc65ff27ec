"""The protocol of writers, which build responses in one wire format from events."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from .events import Event
from .loaded_model import LoadedModel

PING = b": ping\n\n"  # a comment in a stream that is silent


class Writer(Protocol):
    """A writer of the response to one request: `stream` and `end`, or `add` and then `whole`."""

    last: ClassVar[bytes] = b""
    """Bytes that end every stream."""

    _loaded: LoadedModel | None = None

    def of(self, model: LoadedModel) -> None:
        """Set the model that answers, before any event."""
        self._loaded = model

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._loaded is not None
        return self._loaded.engine.tokenizer

    def stream(self, event: Event) -> bytes:
        """Return the stream's bytes for an event; empty: none."""
        ...

    def end(self) -> bytes:
        """Return the bytes that end a successful stream."""
        return self.last

    def failed(self, error: APIError) -> bytes:
        """Return the bytes that end a stream which fails after it has begun."""
        return error.event() + self.last

    def silent(self) -> bytes:
        """Return the bytes that keep a silent stream alive.

        Proxies are content with a comment. Clients that measure the silence want an event, where
        the format has one.
        """
        return PING

    def add(self, event: Event) -> None:
        """Add an event to the response that `whole` returns."""

    def whole(self) -> dict[str, Any] | list[dict[str, Any]] | bytes:
        """Return the complete response, without streaming; bytes are JSON already."""
        ...
