"""Endpoints that count the tokens of a conversation, one for each conversation format."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from ..models.loaded_model import LoadedModel
from ..wire.anthropic.messages import CountBody
from ..wire.openai.chat_completions import ChatBody
from ..wire.openai.responses import continued
from ..wire.openai.responses_body import ResponsesBody


async def chat_input_tokens(request: Request, body: ChatBody) -> JSONResponse:
    """Count the tokens of a conversation in the chat format."""
    count = await _count(request, body)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": count})


async def responses_input_tokens(request: Request, body: ResponsesBody) -> JSONResponse:
    """Count the tokens of a conversation in the format of items."""
    count = await _count(request, (await continued(request, body))[0])
    return JSONResponse({"object": "response.input_tokens", "input_tokens": count})


async def count_tokens(request: Request, body: CountBody) -> JSONResponse:
    """Count the tokens of a conversation in Anthropic's format."""
    return JSONResponse({"input_tokens": await _count(request, body)})


async def _count(request: Request, body: ChatBody | ResponsesBody | CountBody) -> int:
    service = request.app.state.service

    def work(model: LoadedModel) -> int:
        return len(model.prompts.prompt(body.conversation(model, service.settings.limits)).ids)

    return await service.with_model(body.model, work)
