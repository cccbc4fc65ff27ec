"""``POST /completion``: a text that the model goes on with, as llama-server answers by itself."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request

from ..tokens.tokenizer import Tokenizer
from .api_error import APIError
from .chat_completions import SamplingBody, check_logprobs
from .completions import ids_of
from .generate import (
    Done,
    Event,
    GenerationRequest,
    PromptProgress,
    PromptRead,
    Text,
    progress_of,
    timings,
)
from .logprobs import TokenLogprob
from .models import LoadedModel
from .prompts import Prompt
from .settings import Limits
from .wire import Answer, read_body


class NativeBody(SamplingBody):
    """See llama-server's reference; what is not here is refused by name."""

    model: str | None = None
    prompt: str | list[int] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    stream: bool = False
    return_progress: bool = False
    n_probs: int | None = Field(default=None, ge=0)

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """What is asked of the engine."""
        return GenerationRequest(
            Prompt(ids_of(self.prompt, model.engine.tokenizer)),
            self.sampling(),
            self.most_tokens(self.max_tokens),
            self.stops(limits),
            1,
            self.n_probs or None,
            self.return_progress and self.stream,
            cached=self.cache_prompt,
        )


async def native_completion(request: Request) -> Answer:
    """Go on with a text, answered in llama-server's own format."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, NativeBody)
    check_logprobs(True, body.n_probs, limits, "n_probs")
    writer = NativeWriter(service.models.check(body.model), body)

    def prepare(model: LoadedModel) -> GenerationRequest:
        writer.of(model)
        return body.generation(model, limits)

    return Answer(service, writer.model, prepare, writer, streamed=body.stream)


class NativeWriter:
    """Answers in llama-server's own format (see `Writer`)."""

    def __init__(self, model: str, body: NativeBody) -> None:
        self.model, self._body = model, body
        self._tokenizer: Tokenizer | None = None
        self._read: PromptRead | None = None
        self._done: Done | None = None
        self._texts: list[str] = []
        self._noted: list[TokenLogprob] = []

    def of(self, model: LoadedModel) -> None:
        """The model is there."""
        self._tokenizer = model.engine.tokenizer

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        self.add(event)
        if isinstance(event, Text):
            more = {"completion_probabilities": self._told(event.logprobs)}
            return self._event(event.text, **(more if event.logprobs else {}))
        if isinstance(event, PromptProgress):
            return self._event("", prompt_progress=progress_of(event))
        if isinstance(event, PromptRead) and self._body.return_progress:
            whole = PromptProgress(event.tokens, event.cached, event.tokens, event.seconds)
            return self._event("", prompt_progress=progress_of(whole))
        return b""

    def end(self) -> bytes:
        """See `Writer.end`: the last event says why and how, and repeats no text."""
        return b"data: " + to_json({**self.whole(), "content": ""}) + b"\n\n"

    def failed(self, error: APIError) -> bytes:
        """See `Writer.failed`."""
        return b"data: " + json.dumps(error.body()).encode() + b"\n\n"

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, PromptRead):
            self._read = event
        elif isinstance(event, Text):
            self._texts.append(event.text)
            self._noted += event.logprobs or ()
        elif isinstance(event, Done):
            self._done = event

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        read, done, body = self._read, self._done, self._body
        assert read is not None
        assert done is not None
        kind = "limit" if done.reason == "length" else "eos" if done.stop is None else "word"
        settings = body.model_dump(exclude={"prompt", "model"}, exclude_none=True)
        made: dict[str, Any] = {
            "index": 0,
            "content": "".join(self._texts),
            "stop": True,
            "stop_type": kind,
            "stopping_word": done.stop or "",
            "model": self.model,
            "prompt": body.prompt,
            "generation_settings": settings,
            "tokens_predicted": done.tokens,
            "tokens_evaluated": read.tokens,
            "tokens_cached": read.tokens + done.tokens,
            "truncated": False,
            "timings": timings(read, done),
        }
        if self._noted:
            made["completion_probabilities"] = self._told(self._noted)
        return made

    def _event(self, text: str, **more: Any) -> bytes:
        told = {"index": 0, "content": text, "stop": False, **more}
        return b"data: " + to_json(told) + b"\n\n"

    def _told(self, noted: list[TokenLogprob] | None) -> list[dict[str, Any]]:
        assert self._tokenizer is not None
        raw = self._tokenizer.token_bytes

        def told(token: int, logprob: float) -> dict[str, Any]:
            text = raw(token).decode("utf-8", "replace")
            value = max(logprob, -9999.0)
            return {"id": token, "token": text, "bytes": list(raw(token)), "logprob": value}

        return [
            {
                **told(one.token, one.logprob),
                "top_logprobs": [told(token, logprob) for token, logprob in one.top],
            }
            for one in noted or ()
        ]
