"""``POST /v1/completions``: texts, or token ids, that the model goes on with."""

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
from ....tokens.tokenizer import Tokenizer, TokenStream
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
from ...models.infill import filled
from ...models.loading import LoadedModel
from ...settings import Limits
from ..body import read_body
from ..prompt_body import Piece, PromptBody, Prompts, ids_of, pieces_of, prompts_of
from ..sampling_body import check_logprobs
from .chat_writer import DONE, usage_of


class CompletionBody(PromptBody):
    """See OpenAI's reference; what is not here is refused by name."""

    prompt: Prompts
    suffix: str = ""
    best_of: int | None = None
    logprobs: int | None = Field(default=None, ge=0)
    echo: bool = False

    @property
    def told_logprobs(self) -> int | None:
        """With 0 those of the tokens alone in OpenAI's words, and none in llama-server's."""
        return (self.n_probs or None) if self.logprobs is None else self.logprobs

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


async def completions(request: Request) -> Asked:
    """Go on with texts."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, CompletionBody)
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
    if body.echo and (body.told_logprobs is not None or len(texts) < len(prompts)):
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
        ids = filled(model, before, behind, body.most_tokens(body.max_tokens), param="suffix")
        return body.generation(model, ids, limits, tokenizer.fill_ends)

    prepares = [functools.partial(prepare, one) for one in prompts]
    return Asked(name, prepares, writer, body.stream, body.n, body.ping_s)


class CompletionWriter(Writer):
    """Answers in OpenAI's first format (see `Writer`).

    Args:
        model: its name.
        usage: whether a stream ends with what it took.
        progress: whether it tells how far the prompts are read.
        echo: texts with which the answers to each prompt begin.
        each: answers to each prompt.
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
        self._progress, self._each = progress, each
        self._common: dict[str, Any] = {
            "id": f"cmpl-{token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._usage, self._echo = usage, echo
        self._tokenizer: Tokenizer | None = None
        self._reads: dict[int, PromptRead] = {}
        self._done: list[Done] = []
        self._texts: dict[int, str] = {}
        self._noted: dict[int, list[TokenLogprob]] = {}
        # Of the tokens whose probabilities were told: their text as it grows, and its end.
        self._told_until: dict[int, tuple[TokenStream, int]] = {}

    def of(self, model: LoadedModel) -> None:
        """The model is there: what it is goes into the answer."""
        self._tokenizer = model.engine.tokenizer
        self._common["system_fingerprint"] = model.fingerprint

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        if isinstance(event, PromptRead):
            self._reads[event.choice] = event
            if self._progress:
                return self._progressed(whole_of(event))
        elif isinstance(event, PromptProgress):
            return self._progressed(event)
        elif isinstance(event, Text):
            echo = self._echo_of(event.choice) if event.choice not in self._texts else ""
            at = self._begun(event.choice)
            self._texts[event.choice] = at + event.text
            told = self._told(event.choice, event.logprobs)
            more = self._timings(event.choice, event.so_far)
            return self._chunk(event.choice, echo + event.text, told, more=more)
        elif isinstance(event, Done):
            self._done.append(event)
            more = self._timings(event.choice, (event.tokens, event.seconds))
            echo = self._echo_of(event.choice) if event.choice not in self._texts else ""
            return self._chunk(event.choice, echo, None, event.reason, more)
        return b""

    def _progressed(self, progress: PromptProgress) -> bytes:
        more = {"prompt_progress": progress_of(progress)}
        return self._chunk(progress.choice, "", None, None, more)

    def _timings(self, choice: int, told: tuple[int, float] | None) -> dict[str, Any]:
        read = self._reads.get(choice - choice % self._each)
        return {} if read is None or told is None else {"timings": timings(read, *told)}

    def end(self) -> bytes:
        """See `Writer.end`."""
        if not self._usage:
            return DONE
        used = usage_of(self._reads.values(), self._done)
        last = {**self._common, "choices": [], "usage": used}
        last |= self._timings(self._done[0].choice, (self._done[0].tokens, self._done[0].seconds))
        return b"data: " + to_json(last) + b"\n\n" + DONE

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, PromptRead):
            self._reads[event.choice] = event
        elif isinstance(event, Text):
            self._texts[event.choice] = self._begun(event.choice) + event.text
            self._noted.setdefault(event.choice, []).extend(event.logprobs or ())
        elif isinstance(event, Done):
            self._done.append(event)

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        done = sorted(self._done, key=lambda one: one.choice)
        self._told_until.clear()
        choices = [
            self._choice(
                one.choice,
                self._begun(one.choice),
                self._told(one.choice, self._noted.get(one.choice)),
                one.reason,
            )
            for one in done
        ]
        used = usage_of(self._reads.values(), done)
        made = {**self._common, "choices": choices, "usage": used}
        for one in done[:1]:
            made |= self._timings(one.choice, (one.tokens, one.seconds))
        return made

    def _echo_of(self, choice: int) -> str:
        return self._echo[choice // self._each] if self._echo else ""

    def _begun(self, choice: int) -> str:
        return self._texts.get(choice, self._echo_of(choice))

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

    def _told(self, choice: int, noted: list[TokenLogprob] | None) -> dict[str, Any] | None:
        """Probabilities as this format has them, of the next tokens of an answer."""
        if not noted:
            return None
        assert self._tokenizer is not None
        raw, offsets = self._tokenizer.token_bytes, list[int]()
        begun = self._tokenizer.stream(), len(self._echo_of(choice))
        stream, at = self._told_until.get(choice, begun)
        for one in noted:
            offsets.append(at)
            at += len(stream.push(one.token))
        self._told_until[choice] = stream, at
        return {
            "tokens": [_name(raw(one.token)) for one in noted],
            "token_logprobs": [one.logprob for one in noted],
            "top_logprobs": [{_name(raw(t)): logprob for t, logprob in one.top} for one in noted],
            "text_offset": offsets,
        }


def _name(raw: bytes) -> str:
    """A token as OpenAI writes it: a part of a character by its bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
