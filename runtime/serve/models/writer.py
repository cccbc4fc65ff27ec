"""Writers: each makes the answer to one request, in one wire format, from its events."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from .events import Event
from .loaded_model import LoadedModel

PING = b": ping\n\n"  # a comment in a stream that is silent


class Writer(Protocol):
    """Writes the answer to one request: `stream` and `end`, or `add` and then `whole`."""

    last: ClassVar[bytes] = b""
    """What ends every stream."""

    _loaded: LoadedModel | None = None

    def of(self, model: LoadedModel) -> None:
        """Set the model that answers, before any event."""
        self._loaded = model

    @property
    def _tokenizer(self) -> Tokenizer:
        assert self._loaded is not None
        return self._loaded.engine.tokenizer

    def stream(self, event: Event) -> bytes:
        """Return the events of a stream that one of ours becomes; empty: none."""
        ...

    def end(self) -> bytes:
        """Return what ends the stream, when all went well."""
        return self.last

    def failed(self, error: APIError) -> bytes:
        """Return what ends a stream that fails after it has begun."""
        return error.event() + self.last

    def silent(self) -> bytes:
        """Return what keeps a silent stream alive.

        Proxies are content with a comment. Clients that measure the silence want an event, where
        the format has one.
        """
        return PING

    def add(self, event: Event) -> None:
        """Take an event into the answer that `whole` gives."""

    def whole(self) -> dict[str, Any] | list[dict[str, Any]] | bytes:
        """Return the answer that is not streamed; bytes are JSON already."""
        ...
