"""The routes of the application: paths, handlers, and the classes of request bodies."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from ..models.model_request import ModelRequest
from ..requests.answer import Answer
from ..wire.anthropic.messages import CountBody, MessagesBody, messages
from ..wire.body import Body, read_body
from ..wire.llama.completion import InfillBody, NativeBody, infill, native_completion
from ..wire.llama.text_routes import (
    DetokenizeBody,
    TemplateBody,
    TokenizeBody,
    apply_template,
    detokenize,
    tokenize,
)
from ..wire.openai.chat_completions import ChatBody, chat_completions
from ..wire.openai.completions import CompletionBody, completions
from ..wire.openai.embeddings import (
    EmbeddingsBody,
    NativeEmbeddingBody,
    embeddings,
    native_embeddings,
)
from ..wire.openai.responses import responses
from ..wire.openai.responses_body import ResponsesBody
from ..wire.openai.stored_responses import delete_response, input_items, show_response
from .openapi import DescribedRoute, openapi
from .status_page import status, status_page
from .status_routes import health, list_models, lora_adapters, metrics, props, ps, show_model, slots
from .token_counts import chat_input_tokens, count_tokens, responses_input_tokens

Handler = Callable[..., Awaitable[ModelRequest | Response]]
"""Handles a request with its validated body."""
_POST: tuple[tuple[str, Handler, type[Body]], ...] = (
    ("/v1/chat/completions /chat/completions", chat_completions, ChatBody),
    ("/v1/completions", completions, CompletionBody),
    ("/completion /completions", native_completion, NativeBody),
    ("/infill", infill, InfillBody),
    ("/v1/embeddings", embeddings, EmbeddingsBody),
    ("/embedding /embeddings", native_embeddings, NativeEmbeddingBody),
    ("/v1/messages", messages, MessagesBody),
    ("/v1/messages/count_tokens", count_tokens, CountBody),
    ("/v1/responses /responses", responses, ResponsesBody),
    (
        "/v1/chat/completions/input_tokens /chat/completions/input_tokens",
        chat_input_tokens,
        ChatBody,
    ),
    ("/v1/responses/input_tokens /responses/input_tokens", responses_input_tokens, ResponsesBody),
    ("/tokenize", tokenize, TokenizeBody),
    ("/detokenize", detokenize, DetokenizeBody),
    ("/apply-template", apply_template, TemplateBody),
)
_GET: tuple[tuple[str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("/v1/responses/{name}", show_response),
    ("/v1/responses/{name}/input_items", input_items),
    ("/v1/models /models", list_models),
    ("/v1/models/{name:path}", show_model),
    ("/health /v1/health", health),
    ("/ps", ps),
    ("/props", props),
    ("/slots", slots),
    ("/", status_page),
    ("/status.json", status),
    ("/openapi.json", openapi),
    ("/metrics", metrics),
    ("/lora-adapters", lora_adapters),
)


def _reading(handler: Handler, kind: type[Body]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that validates a body of class `kind` and passes it to the handler."""

    @functools.wraps(handler)
    async def endpoint(request: Request) -> Response:
        made = await handler(request, await read_body(request, kind))
        if isinstance(made, ModelRequest):
            return Answer(request.app.state.service, made)
        return made

    return endpoint


def routes() -> list[DescribedRoute]:
    """Return the routes of the application."""
    made = [
        DescribedRoute(path, _reading(handler, kind), methods=["POST"], body=kind)
        for paths, handler, kind in _POST
        for path in paths.split()
    ]
    made += [
        DescribedRoute(path, handler, methods=["GET"])
        for paths, handler in _GET
        for path in paths.split()
    ]
    return [*made, DescribedRoute("/v1/responses/{name}", delete_response, methods=["DELETE"])]
