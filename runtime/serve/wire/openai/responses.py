"""``POST /v1/responses``: OpenAI's Responses format."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
from pydantic_core import from_json
from starlette.requests import Request

from ...http.api_error import APIError
from ...http.scope import BODY, NAMESPACE
from ...models.model_request import ModelRequest
from ...requests.agent_models import chat_request
from ...settings import Limits
from ..body import Body, checked
from ..sampling_body import check_logprobs
from ..tools import check_turns
from .responses_body import LOGPROBS, ResponsesBody
from .responses_input import Item
from .responses_writer import ResponsesWriter
from .stored_responses import ResponseStore, items_of


class Items(Body):
    """A conversation."""

    input: list[Item]


async def responses(request: Request, body: ResponsesBody) -> ModelRequest:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    if body.top_logprobs:
        if LOGPROBS not in body.include:
            raise APIError(f"top_logprobs needs include: [{LOGPROBS!r}]", param="top_logprobs")
        check_logprobs(True, body.top_logprobs, limits)
    if body.stream_options is not None and not body.stream:
        raise APIError("stream_options needs stream: true", param="stream_options")
    body, items = await continued(request, body)

    def writer_for(shown: str) -> ResponsesWriter:
        writer = ResponsesWriter(shown, body)
        store: ResponseStore = request.app.state.responses
        if body.store and store.enabled:
            namespace = request.scope.get(NAMESPACE, "")
            writer.keep = lambda response: store.put(namespace, response, items)
        return writer

    return chat_request(service, body, writer_for)


async def continued(
    request: Request, body: ResponsesBody
) -> tuple[ResponsesBody, list[dict[str, Any]]]:
    """Return the body with the stored conversation before it, and the items to store, if needed.

    Raises:
        APIError: a stored response or item is gone.
    """
    store: ResponseStore = request.app.state.responses
    if "store" in body.model_fields_set and body.store and not store.enabled:
        raise APIError(
            "this server keeps no responses (--keep-responses)",
            param="store",
            code="unsupported_parameter",
        )
    before = body.previous_response_id
    parts = ("type", "content", "summary")
    refers = any(_refers(*(getattr(one, name, None) for name in parts)) for one in body.input)
    if before is None and not refers and not (body.store and store.enabled):
        return body, []
    return await anyio.to_thread.run_sync(_with_stored, request, body, refers)


def _with_stored(
    request: Request, body: ResponsesBody, refers: bool
) -> tuple[ResponsesBody, list[dict[str, Any]]]:
    store: ResponseStore = request.app.state.responses
    limits = request.app.state.service.settings.limits
    before, space = body.previous_response_id, request.scope.get(NAMESPACE, "")
    given = from_json(request.scope[BODY])["input"]
    if refers:
        given = [_item(store, space, one, n) for n, one in enumerate(given)]
        body = body.model_copy(update={"input": checked(Items, {"input": given}).input})
    items = items_of(given)
    if before is None:
        return body, items
    found = store.get(space, before)
    if found is None:
        raise APIError(
            f"Previous response with id '{before:.100}' not found: responses are kept only for a "
            "while; send the whole conversation as input.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    response, before_it = found
    items = [*before_it, *response["output"], *items]
    check_turns(items, "input", limits)
    whole = checked(Items, {"input": items}).input
    return body.model_copy(update={"input": whole}), items


def _refers(kind: str | None, content: object, summary: object) -> bool:
    """Return whether an input item refers to an item of a stored response by its ID.

    It is a reference, or a thought without its text, as LangChain's streams have it.
    """
    return kind == "item_reference" or (kind == "reasoning" and not (content or summary))


def _item(store: ResponseStore, space: str, item: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an item of the input, or the stored item that it refers to."""
    if not _refers(item.get("type"), item.get("content"), item.get("summary")):
        return item
    name = str(item.get("id"))
    found = store.item(space, name)
    if found is None and item["type"] == "reasoning":
        return item  # of another server
    if found is None:
        raise APIError(
            f"Item with id '{name:.100}' not found: responses are kept only for a while; send the "
            "whole conversation as input.",
            param=f"input[{number}].id",
            code="item_not_found",
        )
    return found
