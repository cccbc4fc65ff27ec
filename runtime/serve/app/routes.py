"""Every path that is answered, by what, and what that reads; some without ``/v1``, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..requests.answer import answering
from ..wire.anthropic.messages import CountBody, MessagesBody, count_tokens, messages
from ..wire.body import Body
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
from ..wire.openai.input_tokens import chat_input_tokens, responses_input_tokens
from ..wire.openai.responses import ResponsesBody, responses
from ..wire.openai.stored_responses import delete_response, input_items, show_response
from .openapi import DescribedRoute, openapi
from .status_page import status, status_page
from .status_routes import health, list_models, lora_adapters, metrics, props, ps, show_model, slots

_POST: tuple[tuple[str, Callable[..., Any], type[Body]], ...] = (
    ("/v1/chat/completions /chat/completions", answering(chat_completions), ChatBody),
    ("/v1/completions", answering(completions), CompletionBody),
    ("/completion /completions", answering(native_completion), NativeBody),
    ("/infill", answering(infill), InfillBody),
    ("/v1/embeddings", answering(embeddings), EmbeddingsBody),
    ("/embedding /embeddings", answering(native_embeddings), NativeEmbeddingBody),
    ("/v1/messages", answering(messages), MessagesBody),
    ("/v1/messages/count_tokens", count_tokens, CountBody),
    ("/v1/responses /responses", answering(responses), ResponsesBody),
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
_GET: tuple[tuple[str, Callable[..., Any]], ...] = (
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


def routes() -> list[DescribedRoute]:
    """Return the routes of the application."""
    made = [
        DescribedRoute(path, handler, methods=["POST"], body=body)
        for paths, handler, body in _POST
        for path in paths.split()
    ]
    made += [
        DescribedRoute(path, handler, methods=["GET"])
        for paths, handler in _GET
        for path in paths.split()
    ]
    return [*made, DescribedRoute("/v1/responses/{name}", delete_response, methods=["DELETE"])]
