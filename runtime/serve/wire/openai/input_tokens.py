"""How many tokens a conversation has, in both formats of conversations."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from ...models.loading import LoadedModel
from ..body import read_body
from .chat_completions import ChatBody
from .responses import ResponsesBody, continued


async def chat_input_tokens(request: Request) -> JSONResponse:
    """How many tokens a conversation has, in the chat format."""
    return await _counted(request, await read_body(request, ChatBody))


async def responses_input_tokens(request: Request) -> JSONResponse:
    """How many tokens a conversation has, in the format of items."""
    body, _ = await continued(request, await read_body(request, ResponsesBody))
    return await _counted(request, body)


async def _counted(request: Request, body: ChatBody | ResponsesBody) -> JSONResponse:
    service = request.app.state.service

    def work(model: LoadedModel) -> int:
        return len(model.prompts.prompt(body.conversation(model, service.settings.limits)).ids)

    count = await service.with_model(body.model, work)
    return JSONResponse({"object": "response.input_tokens", "input_tokens": count})
