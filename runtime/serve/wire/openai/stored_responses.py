"""Responses stored for a while, so that clients need not send their conversations again.

They are stored in memory, by key: never longer than the server runs, and the least recently used
are dropped first. Each holds the whole conversation before it, as JSON; so its bytes are known.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse

from ...http.api_error import APIError
from ...http.scope import NAMESPACE

MAX_LISTED = 100  # items in one answer
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored response and its input items, both as JSON."""

    response: bytes
    items: bytes
    used: float
    """When it was last requested, by `time.monotonic`."""

    @property
    def nbytes(self) -> int:
        return len(self.response) + len(self.items)


class ResponseStore:
    """The stored responses of one server, by namespace and ID; safe to use from several threads.

    Args:
        count: limit of the responses of a namespace.
        nbytes: limit of their bytes together.
        age_s: seconds without a request for it after which one is dropped.
    """

    def __init__(self, count: int, nbytes: int, age_s: float) -> None:
        self._count, self._nbytes, self._age_s = count, nbytes, age_s
        self._stored: dict[str, OrderedDict[str, Stored]] = {}
        self._lock = threading.Lock()

    @property
    def enabled(self) -> bool:
        """Whether responses are stored at all."""
        return self._count > 0 and self._nbytes > 0

    def put(
        self, namespace: str, response: dict[str, Any], items: Sequence[dict[str, Any]]
    ) -> None:
        """Store a response and its input items, unless they exceed the limit of bytes."""
        stored = Stored(to_json(response), to_json(list(items)), time.monotonic())
        if not self.enabled or stored.nbytes > self._nbytes:
            return
        with self._lock:
            own = self._stored.setdefault(namespace, OrderedDict())
            own[response["id"]] = stored
            self._let_go(own)

    def get(self, namespace: str, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """Return a response and its input items; None if it is gone."""
        with self._lock:
            own = self._stored.get(namespace)
            if own is None:
                return None
            self._let_go(own)
            if (stored := own.pop(name, None)) is None:
                return None
            own[name] = Stored(stored.response, stored.items, time.monotonic())
        return from_json(stored.response), from_json(stored.items)

    def item(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an output item of a stored response by its ID; None if it is gone."""
        quoted = to_json(name)
        with self._lock:
            found = [k for k in self._stored.get(namespace, {}).values() if quoted in k.response]
        items = (one for stored in found for one in from_json(stored.response)["output"])
        return next((one for one in items if one.get("id") == name), None)

    def remove(self, namespace: str, name: str) -> bool:
        """Delete a response; return whether it was stored."""
        with self._lock:
            return self._stored.get(namespace, {}).pop(name, None) is not None

    def clear(self) -> None:
        """Delete all responses."""
        with self._lock:
            self._stored.clear()

    def held(self) -> tuple[int, int]:
        """Return the number of stored responses, and their bytes."""
        with self._lock:
            every = [stored for own in self._stored.values() for stored in own.values()]
        return len(every), sum(stored.nbytes for stored in every)

    def _let_go(self, own: OrderedDict[str, Stored]) -> None:
        """Drop expired or excess responses, least recently used first; the lock is held."""
        since = time.monotonic() - self._age_s
        taken = sum(stored.nbytes for stored in own.values())
        while own:
            first = next(iter(own.values()))
            if first.used >= since and len(own) <= self._count and taken <= self._nbytes:
                return
            taken -= first.nbytes
            own.popitem(last=False)


def items_of(given: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert the input to items that have a type, a status and an ID each."""
    found: list[dict[str, Any]] = []
    for one in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        item = {name: value for name, value in one.items() if value is not None}
        kind = item.setdefault("type", "message")
        if kind == "message" and isinstance(item["content"], str):
            part = "output_text" if item["role"] == "assistant" else "input_text"
            item["content"] = [{"type": part, "text": item["content"]}]
        item.setdefault("status", "completed")
        if not isinstance(item.get("id"), str):
            item["id"] = f"{_PREFIXES.get(kind, 'item')}_{token_hex(16)}"
        found.append(item)
    return found


async def show_response(request: Request) -> JSONResponse:
    """Return a stored response."""
    if request.query_params.get("stream") in ("true", "1"):
        raise APIError("a finished response cannot be streamed again", param="stream")
    return JSONResponse(_stored(request)[0])


async def delete_response(request: Request) -> JSONResponse:
    """Delete a stored response."""
    _stored(request)
    name = request.path_params["name"]
    request.app.state.responses.remove(request.scope.get(NAMESPACE, ""), name)
    return JSONResponse({"id": name, "object": "response", "deleted": True})


async def input_items(request: Request) -> JSONResponse:
    """List the items that a response answers, those of the responses before it included."""
    _, items = _stored(request)
    query = request.query_params
    if (order := query.get("order", "desc")) not in ("asc", "desc"):
        raise APIError("order must be asc or desc", param="order")
    try:
        limit = int(query.get("limit", "20"))
    except ValueError:
        limit = 0
    if not 1 <= limit <= MAX_LISTED:
        raise APIError(f"limit must be from 1 to {MAX_LISTED}", param="limit")
    if order == "desc":
        items.reverse()
    if (after := query.get("after")) is not None:
        at = next((n for n, item in enumerate(items) if item["id"] == after), None)
        if at is None:
            raise APIError(f"there is no item {after[:100]!r}", param="after")
        items = items[at + 1 :]
    shown = items[:limit]
    return JSONResponse(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(items) > limit,
        }
    )


def _stored(request: Request) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    name = request.path_params["name"]
    found = request.app.state.responses.get(request.scope.get(NAMESPACE, ""), name)
    if found is None:
        raise APIError(
            f"Response with id '{name:.100}' not found: responses are kept only for a while.",
            status=404,
            param="id",
            code="not_found",
        )
    return found
