"""``POST /completion``: texts that the model goes on with, as llama-server answers by itself."""

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
from ...models.asked import Asked, Writer
from ...models.events import (
    Done,
    Event,
    PromptProgress,
    PromptRead,
    Text,
    progress_of,
    timings,
    whole_of,
)
from ...models.generate import GenerationRequest
from ...models.infill import FileText, filled
from ...models.loading import LoadedModel
from ...settings import Limits
from ..body import Body, read_body
from ..prompt_body import Piece, PromptBody, Prompts, ids_of, pieces_of, prompts_of


class NativeSettings(PromptBody):
    """What all of llama-server's own formats have."""

    native = True

    return_tokens: bool = False
    response_fields: list[Annotated[str, Field(max_length=256)]] = Field(
        default_factory=list, max_length=256
    )

    @property
    def told_logprobs(self) -> int | None:
        """See `PromptBody.told_logprobs`."""
        return self.n_probs or None

    def generation(
        self,
        model: LoadedModel,
        ids: list[int],
        limits: Limits,
        ends: frozenset[int] = frozenset(),
    ) -> GenerationRequest:
        """Return what is asked of the engine for one of the prompts; `ends` end an answer, too."""
        output = self.required_output(limits)
        prompt = model.prompts.continuation(ids, output, self.prompt_param)
        return GenerationRequest(prompt, **self.options(model.engine.tokenizer, limits, ends))


class NativeBody(NativeSettings):
    """See llama-server's reference; what is not here is refused by name."""

    prompt: Prompts


async def native_completion(request: Request) -> Asked:
    """Go on with texts, answered in llama-server's own format."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, NativeBody)
    body.check(limits)
    prompts = prompts_of(body.prompt, limits.prompts)
    writer = NativeWriter(service.models.check(body.model), body, prompts)

    def prepare(one: str | list[Piece], model: LoadedModel) -> GenerationRequest:
        return body.generation(model, ids_of(one, model.engine.tokenizer), limits)

    prepares = [functools.partial(prepare, one) for one in prompts]
    return Asked(writer.model, prepares, writer, body.stream, body.n, body.ping_s)


class Extra(Body):
    """A text that may be of use."""

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


async def infill(request: Request) -> Asked:
    """What stands between two texts, answered in llama-server's own format."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, InfillBody)
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
            body.most_tokens(body.max_tokens),
            [FileText(one.filename, one.text) for one in body.input_extra],
        )
        writer.prompts = [tokenizer.decode(ids, special=True)]
        return body.generation(model, ids, limits, tokenizer.fill_ends)

    return Asked(writer.model, [prepare], writer, body.stream, body.n, body.ping_s)


class NativeWriter(Writer):
    """Answers in llama-server's own format (see `Writer`): one, or a list of them."""

    def __init__(
        self, model: str, body: NativeSettings, prompts: Sequence[str | Sequence[Piece]]
    ) -> None:
        self.model, self._body = model, body
        self.prompts = prompts
        self._model: LoadedModel | None = None
        self._reads: dict[int, PromptRead] = {}
        self._parts: dict[int, list[Text]] = {}
        self._done: dict[int, Done] = {}

    def of(self, model: LoadedModel) -> None:
        """The model is there."""
        self._model = model

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        self.add(event)
        if isinstance(event, Text):
            more: dict[str, Any] = {"tokens": event.ids or []}
            if event.logprobs:
                more["completion_probabilities"] = self._told(event.logprobs)
            if event.so_far is not None:
                more["timings"] = timings(self._read(event.choice), *event.so_far)
            return self._event(event.choice, event.text, more)
        if isinstance(event, PromptProgress):
            return self._event(event.choice, "", {"prompt_progress": progress_of(event)})
        if isinstance(event, PromptRead) and self._body.return_progress:
            told = progress_of(whole_of(event))
            return self._event(event.choice, "", {"prompt_progress": told})
        if isinstance(event, Done):  # why and how; it repeats no text
            last = self._answer(event.choice)
            if "content" in last:
                last["content"] = ""
            return b"data: " + to_json(last) + b"\n\n"
        return b""

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, PromptRead):
            self._reads[event.choice] = event
        elif isinstance(event, Text):
            self._parts.setdefault(event.choice, []).append(event)
        elif isinstance(event, Done):
            self._done[event.choice] = event

    def whole(self) -> dict[str, Any] | list[dict[str, Any]]:
        """See `Writer.whole`."""
        made = [self._answer(choice) for choice in sorted(self._done)]
        return made[0] if len(made) == 1 else made

    def _read(self, choice: int) -> PromptRead:
        return self._reads[choice - choice % self._body.n]

    def _answer(self, choice: int) -> dict[str, Any]:
        """One of the answers."""
        read, done, body = self._read(choice), self._done[choice], self._body
        parts = self._parts.get(choice, [])
        text = "".join(part.text for part in parts)
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
            made["completion_probabilities"] = self._told(noted)
        return _picked(made, body.response_fields) if body.response_fields else made

    def _settings(self) -> dict[str, Any]:
        """What was asked for, and what the model's file says of the rest."""
        assert self._model is not None
        engine, body = self._model.engine, self._body
        sampling = asdict(body.sampling(engine.tokenizer).over(engine.sampling).filled())
        bias, order, last = (sampling.pop(n) for n in ("logit_bias", "order", "penalty_last"))
        settings = {
            **sampling,
            "repeat_last_n": last,
            "logit_bias": [
                {"token": token, "bias": max(value, -1e30)} for token, value in bias.items()
            ],
            "stop": [body.stop] if isinstance(body.stop, str) else list(body.stop or ()),
            "samplers": list(order),
            "seed": -1 if body.seed is None else body.seed,
        }
        limit = body.most_tokens(body.max_tokens)
        told = ("stream", "ignore_eos", "timings_per_token", "return_progress", "cache_prompt")
        return {
            "n_ctx": engine.context,
            "n_predict": -1 if limit is None else limit,
            "n_probs": body.n_probs or 0,
            **settings,
            **{name: getattr(body, name) for name in told},
        }

    def _event(self, choice: int, text: str, more: dict[str, Any]) -> bytes:
        told = {"index": choice, "content": text, "stop": False, "id_slot": -1, **more}
        return b"data: " + to_json(told) + b"\n\n"

    def _told(self, noted: list[TokenLogprob]) -> list[dict[str, Any]]:
        assert self._model is not None
        raw, sampled = self._model.engine.tokenizer.token_bytes, self._body.post_sampling_probs

        def told(token: int, logprob: float) -> dict[str, Any]:
            text = raw(token).decode("utf-8", "replace")
            value = {"prob": exp(logprob)} if sampled else {"logprob": max(logprob, -9999.0)}
            return {"id": token, "token": text, "bytes": list(raw(token)), **value}

        top = "top_probs" if sampled else "top_logprobs"
        return [
            {
                **told(one.token, one.logprob),
                top: [told(token, logprob) for token, logprob in one.top],
            }
            for one in noted
        ]


def _picked(made: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """These fields alone; a path such as ``timings/predicted_n`` names one inside another."""
    found: dict[str, Any] = {}
    for path in wanted:
        value: Any = made
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
