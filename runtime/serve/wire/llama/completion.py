"""``POST /completion``: texts to complete, and gaps to fill, in llama-server's own format."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from math import exp
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request

from ....conversation.logprobs import TokenLogprob
from ...http.api_error import APIError
from ...models.events import Done, Text, timings
from ...models.generate import GenerationRequest
from ...models.infill import FileText, filled
from ...models.loaded_model import LoadedModel
from ...models.model_request import ModelRequest
from ...settings import Limits
from ..body import Body
from ..prompt_body import Piece, PromptBody, Prompts, ids_of, pieces_of, prompts_of
from ..text_writer import TextWriter


class NativeSettings(PromptBody):
    """Fields common to the requests of llama-server's own formats."""

    native = True

    return_tokens: bool = False
    response_fields: list[Annotated[str, Field(max_length=256)]] = Field(
        default_factory=list, max_length=256
    )


class NativeBody(NativeSettings):
    """See llama-server's reference; what is not here is refused by name."""

    prompt: Prompts


async def native_completion(request: Request, body: NativeBody) -> ModelRequest:
    """Complete texts, answered in llama-server's own format."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body.check(limits)
    prompts = prompts_of(body.prompt, limits.prompts)
    writer = NativeWriter(service.models.check(body.model), body, prompts)

    def prepare(one: str | list[Piece], model: LoadedModel) -> GenerationRequest:
        return body.generation(model, ids_of(one, model.engine.tokenizer), limits)

    prepares = [functools.partial(prepare, one) for one in prompts]
    return ModelRequest(writer.model, prepares, writer, body.stream, body.n, body.ping_s)


class Extra(Body):
    """A file of the project, besides the one with the gap."""

    text: str
    filename: str = "tmp"
    time: Any = None  # llama.vim notes when it was seen


class InfillBody(NativeSettings):
    """See llama-server's reference; what is not here is refused by name."""

    prompt_param = "input_prefix"

    input_prefix: str | list[Piece]
    input_suffix: str | list[Piece]
    input_extra: list[Extra] = Field(default_factory=list)
    prompt: str = ""


async def infill(request: Request, body: InfillBody) -> ModelRequest:
    """Fill the gap between two texts, answered in llama-server's own format."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body.check(limits)
    if len(body.input_extra) > limits.messages:
        raise APIError(
            f"Invalid 'input_extra': at most {limits.messages:,} texts.", param="input_extra"
        )
    writer = NativeWriter(service.models.check(body.model), body, [body.prompt])

    def prepare(model: LoadedModel) -> GenerationRequest:
        tokenizer = model.engine.tokenizer
        ids = filled(
            model,
            pieces_of(body.input_prefix, tokenizer, "input_prefix")
            + tokenizer.encode(body.prompt, special=True),
            pieces_of(body.input_suffix, tokenizer, "input_suffix"),
            body.max_answer,
            [FileText(one.filename, one.text) for one in body.input_extra],
        )
        writer.prompts = [tokenizer.decode(ids, special=True)]
        return body.generation(model, ids, limits, tokenizer.fill_ends)

    return ModelRequest(writer.model, [prepare], writer, body.stream, body.n, body.ping_s)


class NativeWriter(TextWriter):
    """A writer of llama-server's own format (see `TextWriter`): one object, or a list of them.

    Args:
        prompts: texts, or token IDs mixed with texts.
    """

    def __init__(
        self, model: str, body: NativeSettings, prompts: Sequence[str | Sequence[Piece]]
    ) -> None:
        super().__init__(model, body.n, progress=body.return_progress)
        self._body, self.prompts = body, prompts

    def _text_event(self, text: Text) -> bytes:
        more: dict[str, Any] = {"tokens": text.ids or []}
        if text.logprobs:
            more["completion_probabilities"] = self._logprobs(text.logprobs)
        return self._chunk(text.choice, text.text, more | self._timings(text.choice, text.so_far))

    def _done_event(self, done: Done) -> bytes:  # why and how; it repeats no text
        last = self._answer(done.choice)
        if "content" in last:
            last["content"] = ""
        return b"data: " + to_json(last) + b"\n\n"

    def whole(self) -> dict[str, Any] | list[dict[str, Any]]:
        made = [self._answer(choice) for choice in sorted(self._done)]
        return made[0] if len(made) == 1 else made

    def _answer(self, choice: int) -> dict[str, Any]:
        read, done, body = self._read(choice), self._done[choice], self._body
        assert read is not None
        parts, text = self._parts.get(choice, []), self._text(choice)
        kind = "limit" if done.reason == "length" else "eos" if done.stop is None else "word"
        noted = [one for part in parts for one in part.logprobs or ()]
        made: dict[str, Any] = {
            "index": choice,
            "content": text,
            "tokens": [t for part in parts for t in part.ids or ()] if body.return_tokens else [],
            "id_slot": -1,  # there are none
            "stop": True,
            "stop_type": kind,
            "stopping_word": done.stop or "",
            "model": self.model,
            "prompt": self.prompts[choice // body.n],
            "generation_settings": self._settings(),
            "tokens_predicted": done.tokens,
            "tokens_evaluated": read.tokens,
            "tokens_cached": read.tokens + done.tokens,
            "has_new_line": "\n" in text,
            "truncated": False,
            "timings": timings(read, done.tokens, done.seconds),
        }
        if body.stream:
            made["tokens"] = []
        elif noted:
            made["completion_probabilities"] = self._logprobs(noted)
        return _picked(made, body.response_fields) if body.response_fields else made

    def _settings(self) -> dict[str, Any]:
        """Return the sampling settings of the request, with defaults from the model's file."""
        assert self._loaded is not None
        engine, body = self._loaded.engine, self._body
        sampling = asdict(body.sampling(engine.tokenizer).over(engine.sampling).filled())
        bias, order, last = (sampling.pop(n) for n in ("logit_bias", "order", "penalty_last"))
        settings = {
            **sampling,
            "repeat_last_n": last,
            "logit_bias": [
                {"token": token, "bias": max(value, -1e30)} for token, value in bias.items()
            ],
            "stop": body.stops,
            "samplers": list(order),
            "seed": -1 if body.seed is None else body.seed,
        }
        limit = body.max_answer
        shown = ("stream", "ignore_eos", "timings_per_token", "return_progress", "cache_prompt")
        return {
            "n_ctx": engine.context,
            "n_predict": -1 if limit is None else limit,
            "n_probs": body.n_probs or 0,
            **settings,
            **{name: getattr(body, name) for name in shown},
        }

    def _chunk(self, choice: int, text: str, more: dict[str, Any]) -> bytes:
        made = {"index": choice, "content": text, "stop": False, "id_slot": -1, **more}
        return b"data: " + to_json(made) + b"\n\n"

    def _logprobs(self, noted: list[TokenLogprob]) -> list[dict[str, Any]]:
        """Convert logprobs to llama-server's form."""
        raw, sampled = self._tokenizer.token_bytes, self._body.post_sampling_probs

        def shown(token: int, logprob: float) -> dict[str, Any]:
            text = raw(token).decode("utf-8", "replace")
            value = {"prob": exp(logprob)} if sampled else {"logprob": max(logprob, -9999.0)}
            return {"id": token, "token": text, "bytes": list(raw(token)), **value}

        top = "top_probs" if sampled else "top_logprobs"
        return [
            {**shown(one.token, one.logprob), top: [shown(*likely) for likely in one.top]}
            for one in noted
        ]


def _picked(made: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Select fields of a response; a path such as ``timings/predicted_n`` names a nested one."""
    found: dict[str, Any] = {}
    for path in wanted:
        value: Any = made
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
