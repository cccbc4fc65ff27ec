"""``POST /v1/completions``: a text, or token ids, that the model goes on with."""

from __future__ import annotations

import time
from secrets import token_hex
from typing import Any

from pydantic import Field, field_validator
from pydantic_core import to_json
from starlette.requests import Request

from ..tokens.tokenizer import Tokenizer
from .api_error import APIError
from .chat_completions import DONE, SamplingBody, StreamOptions, usage_of
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


class CompletionBody(SamplingBody):
    """See OpenAI's reference; what is not here is refused by name."""

    model: str | None = None
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1)
    best_of: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_progress: bool = False
    logprobs: int | None = Field(default=None, ge=0)
    echo: bool = False
    user: str | None = None

    @field_validator("prompt")
    @classmethod
    def _is_one(cls, prompt: Any) -> Any:
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise ValueError("one prompt a request; send a request for each")
            prompt = prompt[0]
        if not prompt:
            raise ValueError("the prompt is empty")
        return prompt

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """What is asked of the engine."""
        return GenerationRequest(
            Prompt(ids_of(self.prompt, model.engine.tokenizer)),
            self.sampling(),
            self.most_tokens(self.max_tokens),
            self.stops(limits),
            self.n,
            self.logprobs,
            self.return_progress and self.stream,
            cached=self.cache_prompt,
        )


def ids_of(prompt: Any, tokenizer: Tokenizer) -> list[int]:
    """The tokens of a prompt: a text, or tokens.

    Raises:
        APIError: one is not in the vocabulary.
    """
    if not isinstance(prompt, str):
        ids: list[int] = list(prompt)
        bad = next((token for token in ids if not 0 <= token < tokenizer.n_vocab), None)
        if bad is not None:
            raise APIError(f"{bad} is not in the vocabulary of {tokenizer.n_vocab}", param="prompt")
        return ids
    # The whole prompt is the caller's own text, control tokens included.
    ids = tokenizer.encode(prompt, special=True)
    if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    return ids


async def completions(request: Request) -> Answer:
    """Go on with a text."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, CompletionBody)
    if body.n > limits.choices:
        raise APIError(f"Invalid 'n': at most {limits.choices}, not {body.n}.", param="n")
    if body.best_of is not None and body.best_of != body.n:
        raise APIError("best_of is not supported beside n", param="best_of")
    if body.logprobs is not None and body.logprobs > limits.logprobs:
        raise APIError(f"Invalid 'logprobs': at most {limits.logprobs}.", param="logprobs")
    if body.echo and (body.logprobs is not None or not isinstance(body.prompt, str)):
        raise APIError("echo is for texts, and without logprobs", param="echo")
    if body.stream_options is not None and not body.stream:
        raise APIError("stream_options is for streams", param="stream_options")
    name = service.models.check(body.model)
    usage = body.stream_options is not None and body.stream_options.include_usage
    echo = body.prompt if body.echo and isinstance(body.prompt, str) else ""
    writer = CompletionWriter(name, usage=usage, progress=body.return_progress, echo=echo)

    def prepare(model: LoadedModel) -> GenerationRequest:
        writer.of(model)
        return body.generation(model, limits)

    return Answer(service, name, prepare, writer, streamed=body.stream)


class CompletionWriter:
    """Answers in OpenAI's first format (see `Writer`)."""

    def __init__(self, model: str, *, usage: bool, progress: bool = False, echo: str = "") -> None:
        self._progress = progress
        self._common: dict[str, Any] = {
            "id": f"cmpl-{token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._usage, self._echo = usage, echo
        self._tokenizer: Tokenizer | None = None
        self._read: PromptRead | None = None
        self._done: list[Done] = []
        self._texts: dict[int, str] = {}
        self._noted: dict[int, list[TokenLogprob]] = {}

    def of(self, model: LoadedModel) -> None:
        """The model is there: what it is goes into the answer."""
        self._tokenizer = model.engine.tokenizer
        self._common["system_fingerprint"] = model.fingerprint

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        if isinstance(event, PromptRead):
            self._read = event
            if self._progress:
                whole = event.tokens
                return self._progressed(PromptProgress(whole, event.cached, whole, event.seconds))
        elif isinstance(event, PromptProgress):
            return self._progressed(event)
        elif isinstance(event, Text):
            echo = self._echo if event.choice not in self._texts else ""
            at = self._begun(event.choice)
            self._texts[event.choice] = at + event.text
            told = self._told(event.logprobs, len(at))
            return self._chunk(event.choice, echo + event.text, told)
        elif isinstance(event, Done):
            self._done.append(event)
            more = {} if self._read is None else {"timings": timings(self._read, event)}
            echo = self._echo if event.choice not in self._texts else ""
            return self._chunk(event.choice, echo, None, event.reason, more)
        return b""

    def _progressed(self, progress: PromptProgress) -> bytes:
        return self._chunk(0, "", None, None, {"prompt_progress": progress_of(progress)})

    def end(self) -> bytes:
        """See `Writer.end`."""
        if not self._usage:
            return DONE
        last = {**self._common, "choices": [], "usage": usage_of(self._read, self._done)}
        return b"data: " + to_json(last) + b"\n\n" + DONE

    def failed(self, error: APIError) -> bytes:
        """See `Writer.failed`."""
        return error.event() + DONE

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, PromptRead):
            self._read = event
        elif isinstance(event, Text):
            self._texts[event.choice] = self._begun(event.choice) + event.text
            self._noted.setdefault(event.choice, []).extend(event.logprobs or ())
        elif isinstance(event, Done):
            self._done.append(event)

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        done = sorted(self._done, key=lambda one: one.choice)
        choices = [
            self._choice(
                one.choice,
                self._begun(one.choice),
                self._told(self._noted.get(one.choice), len(self._echo)),
                one.reason,
            )
            for one in done
        ]
        made = {**self._common, "choices": choices, "usage": usage_of(self._read, done)}
        if self._read is not None and done:
            made["timings"] = timings(self._read, done[0])
        return made

    def _begun(self, choice: int) -> str:
        return self._texts.get(choice, self._echo)

    def _chunk(
        self,
        choice: int,
        text: str,
        told: dict[str, Any] | None,
        reason: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        made = {
            **self._common,
            "choices": [self._choice(choice, text, told, reason)],
            **(more or {}),
        }
        if self._usage:
            made["usage"] = None
        return b"data: " + to_json(made) + b"\n\n"

    @staticmethod
    def _choice(
        index: int, text: str, told: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": told, "finish_reason": reason}

    def _told(self, noted: list[TokenLogprob] | None, at: int) -> dict[str, Any] | None:
        """Probabilities as this format has them; `at`: where the text of the first begins."""
        if not noted:
            return None
        assert self._tokenizer is not None

        def name(token: int) -> str:
            assert self._tokenizer is not None
            return self._tokenizer.token_bytes(token).decode("utf-8", "replace")

        tokens = [name(one.token) for one in noted]
        offsets = [at + sum(map(len, tokens[:n])) for n in range(len(tokens))]
        return {
            "tokens": tokens,
            "token_logprobs": [one.logprob for one in noted],
            "top_logprobs": [{name(t): logprob for t, logprob in one.top} for one in noted],
            "text_offset": offsets,
        }
