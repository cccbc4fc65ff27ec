"""``POST /v1/completions``: texts, or token ids, that the model completes."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from secrets import token_hex
from typing import Any

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request

from ....conversation.logprobs import TokenLogprob
from ....tokens.tokenizer import TokenStream
from ...http.api_error import APIError
from ...models.events import Done, Text
from ...models.generate import GenerationRequest
from ...models.infill import filled
from ...models.loaded_model import LoadedModel
from ...models.model_request import ModelRequest
from ...settings import Limits
from ..prompt_body import Piece, PromptBody, Prompts, ids_of, pieces_of, prompts_of
from ..sampling_body import check_logprobs
from ..text_writer import TextWriter
from .chat_writer import DONE, usage_of


class CompletionBody(PromptBody):
    """See OpenAI's reference; what is not here is refused by name."""

    prompt: Prompts
    suffix: str = ""
    best_of: int | None = None
    logprobs: int | None = Field(default=None, ge=0)
    echo: bool = False

    @property
    def logprob_count(self) -> int | None:
        """Likeliest tokens to return. 0 in ``logprobs``: the token itself; in ``n_probs``: none."""
        return super().logprob_count if self.logprobs is None else self.logprobs


async def completions(request: Request, body: CompletionBody) -> ModelRequest:
    """Complete texts."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body.check(limits)
    prompts = prompts_of(body.prompt, limits.prompts)
    if body.best_of is not None and body.best_of != body.n:
        raise APIError(
            f"Invalid 'best_of': it must be {body.n} as n is, since answers are not ranked; "
            "ask for more with n.",
            param="best_of",
        )
    check_logprobs(True, body.logprobs, limits, "logprobs")
    texts = [one for one in prompts if isinstance(one, str)]
    if body.echo and (body.logprob_count is not None or len(texts) < len(prompts)):
        raise APIError("echo needs a text prompt and no logprobs", param="echo")
    name = service.models.check(body.model)
    writer = CompletionWriter(
        name,
        usage=body.wants_usage,
        progress=body.return_progress,
        echo=texts if body.echo else (),
        each=body.n,
    )

    def prepare(one: str | list[Piece], model: LoadedModel) -> GenerationRequest:
        tokenizer = model.engine.tokenizer
        if not body.suffix:
            return body.generation(model, ids_of(one, tokenizer), limits)
        before = pieces_of(one, tokenizer, "prompt")
        behind = tokenizer.encode(body.suffix)
        ids = filled(model, before, behind, body.max_answer, param="suffix")
        return body.generation(model, ids, limits, tokenizer.fill_ends)

    prepares = [functools.partial(prepare, one) for one in prompts]
    return ModelRequest(name, prepares, writer, body.stream, body.n, body.ping_s)


class CompletionWriter(TextWriter):
    """A writer of OpenAI's text completion format (see `TextWriter`).

    Args:
        usage: whether a stream ends with its usage.
        echo: text of each prompt, which its answers begin with.
    """

    last = DONE

    def __init__(
        self,
        model: str,
        *,
        usage: bool,
        progress: bool = False,
        echo: Sequence[str] = (),
        each: int = 1,
    ) -> None:
        super().__init__(model, each, progress=progress)
        self._usage, self._echo = usage, echo
        self._common: dict[str, Any] = {
            "id": f"cmpl-{token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        # Of the tokens whose probabilities are written: their text as it grows, and its end.
        self._noted_until: dict[int, tuple[TokenStream, int]] = {}

    def of(self, model: LoadedModel) -> None:
        super().of(model)
        self._common["system_fingerprint"] = model.fingerprint

    def _text_event(self, text: Text) -> bytes:
        echo = self._echo_of(text.choice) if self._parts[text.choice][0] is text else ""
        noted = self._logprobs(text.choice, text.logprobs)
        more = self._timings(text.choice, text.so_far)
        return self._chunk(text.choice, echo + text.text, more, noted)

    def _done_event(self, done: Done) -> bytes:
        echo = "" if done.choice in self._parts else self._echo_of(done.choice)
        more = self._timings(done.choice, (done.tokens, done.seconds))
        return self._chunk(done.choice, echo, more, reason=done.reason)

    def end(self) -> bytes:
        if not self._usage:
            return DONE
        last = {**self._common, "choices": [], **self._totals(list(self._done.values()))}
        return b"data: " + to_json(last) + b"\n\n" + DONE

    def whole(self) -> dict[str, Any]:
        done = [self._done[choice] for choice in sorted(self._done)]
        self._noted_until.clear()
        choices: list[dict[str, Any]] = []
        for one in done:
            noted = [p for part in self._parts.get(one.choice, ()) for p in part.logprobs or ()]
            text = self._echo_of(one.choice) + self._text(one.choice)
            logprobs = self._logprobs(one.choice, noted)
            choices.append(self._choice(one.choice, text, logprobs, one.reason))
        return {**self._common, "choices": choices, **self._totals(done)}

    def _totals(self, done: Sequence[Done]) -> dict[str, Any]:
        """Return the usage of all answers, and the timings of the first."""
        used, first = usage_of(self._reads.values(), done), done[0]
        return {"usage": used} | self._timings(first.choice, (first.tokens, first.seconds))

    def _echo_of(self, choice: int) -> str:
        return self._echo[choice // self._each] if self._echo else ""

    def _chunk(
        self,
        choice: int,
        text: str,
        more: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> bytes:
        choices = [self._choice(choice, text, logprobs, reason)]
        made = {**self._common, "choices": choices, **more}
        if self._usage:
            made["usage"] = None
        return b"data: " + to_json(made) + b"\n\n"

    @staticmethod
    def _choice(
        index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, choice: int, noted: list[TokenLogprob] | None) -> dict[str, Any] | None:
        """Convert the logprobs of an answer's next tokens to this format's form."""
        if not noted:
            return None
        raw, offsets = self._tokenizer.token_bytes, list[int]()
        begun = self._tokenizer.stream(), len(self._echo_of(choice))
        stream, at = self._noted_until.get(choice, begun)
        for one in noted:
            offsets.append(at)
            at += len(stream.push(one.token))
        self._noted_until[choice] = stream, at
        return {
            "tokens": [_name(raw(one.token)) for one in noted],
            "token_logprobs": [one.logprob for one in noted],
            "top_logprobs": [{_name(raw(t)): logprob for t, logprob in one.top} for one in noted],
            "text_offset": offsets,
        }


def _name(raw: bytes) -> str:
    """Return a token's text; for a part of a character its bytes, as OpenAI writes them."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
