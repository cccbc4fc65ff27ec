"""llama-server's endpoints for text: tokenize, detokenize, and apply a chat template."""

from __future__ import annotations

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse

from ...http.responses import MadeJSON
from ...models.loaded_model import LoadedModel
from ...models.prompts import Conversation
from ..body import Body
from ..messages import Talk, messages_of, offered
from ..sampling_body import check_token
from ..tools import tools_of


class TokenizeBody(Body):
    """A text to be cut into tokens."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    model: str | None = None


class DetokenizeBody(Body):
    """Tokens to be made a text."""

    tokens: list[int]
    model: str | None = None


class TemplateBody(Talk):
    """A conversation to be rendered."""

    model: str | None = None


async def tokenize(request: Request, body: TokenizeBody) -> MadeJSON:
    """Return the tokens of a text."""

    def work(model: LoadedModel) -> bytes:  # of millions it takes a while, too
        tokenizer = model.engine.tokenizer
        ids = tokenizer.encode(body.content, special=body.parse_special)
        if body.add_special and tokenizer.add_bos and tokenizer.bos is not None:
            ids.insert(0, tokenizer.bos)
        if not body.with_pieces:
            return to_json({"tokens": ids})
        pieces = [{"id": token, "piece": _piece(tokenizer.token_bytes(token))} for token in ids]
        return to_json({"tokens": pieces})

    made = await request.app.state.service.with_model(body.model, work)
    return MadeJSON(made)


async def detokenize(request: Request, body: DetokenizeBody) -> JSONResponse:
    """Return the text of tokens."""

    def work(model: LoadedModel) -> str:
        for number, token in enumerate(body.tokens):
            check_token(token, model.engine.tokenizer, f"tokens[{number}]")
        raw = model.engine.tokenizer.decode_bytes(body.tokens, special=True)
        return raw.decode("utf-8", "replace")  # of tokens from anywhere in a text: no space goes

    service = request.app.state.service
    return JSONResponse({"content": await service.with_model(body.model, work)})


async def apply_template(request: Request, body: TemplateBody) -> JSONResponse:
    """Return the prompt that a conversation makes."""
    service = request.app.state.service
    limits = service.settings.limits

    def work(model: LoadedModel) -> str:
        conversation = Conversation(
            messages_of(body.messages),
            tools_of(offered(body.tools), limits, schema="function.parameters")[0],
            options=body.chat_template_kwargs,
            continues=True,
        )
        return model.prompts.render(conversation)

    return JSONResponse({"prompt": await service.with_model(body.model, work)})


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
