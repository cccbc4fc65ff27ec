"""``POST /v1/completions``: texts, or token ids, that the model goes on with."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, ClassVar

from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request

from ..conversation.logprobs import TokenLogprob
from ..tokens.tokenizer import Tokenizer, TokenStream
from .api_error import APIError
from .chat_writer import DONE, usage_of
from .events import Done, Event, PromptProgress, PromptRead, Text, progress_of, timings
from .generate import GenerationRequest
from .infill import filled
from .models import LoadedModel
from .prompts import Prompt
from .sampling_body import StreamBody, check_logprobs
from .service import Prepare, Service
from .settings import Limits
from .wire import Answer, Body, Writer, read_body

Piece = int | str
"""Of a prompt: a token, or a text."""


class PromptObject(Body):
    """How llama-server also takes a text; what else it takes there are images and sounds."""

    prompt_string: str
    multimodal_data: list[Any] | None = Field(default=None, max_length=0)


Prompts = str | PromptObject | list[Piece] | list[str | PromptObject | list[Piece]]


class PromptBody(StreamBody):
    """What both formats of completions have."""

    goes_on = True
    prompt_param: ClassVar[str] = "prompt"

    max_tokens: int | None = Field(default=None, ge=-1)

    @property
    def told_logprobs(self) -> int | None:
        """Likeliest tokens that are told beside each one; None: no probabilities are told."""
        return None

    def generation(
        self,
        model: LoadedModel,
        prompt: list[int],
        limits: Limits,
        *,
        ends: frozenset[int] = frozenset(),
    ) -> GenerationRequest:
        """What is asked of the engine for one of the prompts."""
        tokenizer = model.engine.tokenizer
        form = self.output_format(limits)
        if form is not None and self.ignore_eos:
            raise APIError(
                "with a grammar, the answer ends where the grammar ends", param="ignore_eos"
            )
        required = None if form is None else model.prompts.text_required(form)
        return GenerationRequest(
            Prompt(prompt, required=required, param=self.prompt_param),
            self.sampling(tokenizer),
            self.most_tokens(self.max_tokens),
            self.stops(limits),
            self.n,
            self.told_logprobs,
            self.return_progress and self.stream,
            cached=self.cache_prompt,
            ids=self.native,
            timed=self.timings_per_token and self.stream,
            sampled_probs=self.post_sampling_probs,
            ends=ends | self.ends(tokenizer),
            min_tokens=self.min_tokens,
            predict_s=self.predict_s,
            indent=self.n_indent,
            endless=self.ignore_eos,
            operation="text_completion",
        )

    def prepares(
        self,
        prompts: Sequence[str | list[Piece]],
        found: Callable[[LoadedModel], None],
        make: Callable[[LoadedModel, str | list[Piece]], GenerationRequest],
    ) -> list[Callable[[LoadedModel], GenerationRequest]]:
        """What makes the request of each prompt, once its model is there and `found` knows it."""

        def prepare(prompt: str | list[Piece], model: LoadedModel) -> GenerationRequest:
            found(model)
            return make(model, prompt)

        return [functools.partial(prepare, one) for one in prompts]

    def answer(
        self, service: Service, model: str, prepares: Sequence[Prepare], writer: Writer
    ) -> Answer:
        """The response, one answer after the other counted through all prompts."""
        more = {"streamed": self.stream, "choices": self.n, "ping_s": self.ping_s}
        return Answer(service, model, prepares, writer, **more)


class CompletionBody(PromptBody):
    """See OpenAI's reference; what is not here is refused by name."""

    prompt: Prompts
    suffix: str = ""
    best_of: int | None = None
    logprobs: int | None = Field(default=None, ge=0)
    n_probs: int | None = Field(default=None, ge=0)
    echo: bool = False

    @property
    def told_logprobs(self) -> int | None:
        """With 0 those of the tokens alone in OpenAI's words, and none in llama-server's."""
        return (self.n_probs or None) if self.logprobs is None else self.logprobs


def prompts_of(given: Prompts, most: int, param: str = "prompt") -> list[str | list[Piece]]:
    """Each prompt: a text, or tokens with texts between them.

    Raises:
        APIError: they are too many, or one is empty.
    """
    several = isinstance(given, list) and (
        all(isinstance(one, str) for one in given)
        or any(isinstance(one, list | PromptObject) for one in given)
    )
    found: list[Any] = list(given) if several and isinstance(given, list) else [given]
    found = [one.prompt_string if isinstance(one, PromptObject) else one for one in found]
    if len(found) > most:
        raise APIError(f"Invalid '{param}': at most {most:,} of them.", param=param)
    if not found or not all(found):
        raise APIError(f"Invalid '{param}': it is empty.", param=param)
    return found


def pieces_of(
    given: str | Sequence[Piece], tokenizer: Tokenizer, param: str, *, special: bool = False
) -> list[int]:
    """The tokens of texts, or of tokens with texts between them; none begins them.

    Raises:
        APIError: one is not in the vocabulary.
    """
    ids: list[int] = []
    for piece in [given] if isinstance(given, str) else given:
        if isinstance(piece, str):
            ids += tokenizer.encode(piece, special=special)
        elif not 0 <= piece < tokenizer.n_vocab:
            raise APIError(f"{piece} is not in the vocabulary of {tokenizer.n_vocab}", param=param)
        else:
            ids.append(piece)
    return ids


def ids_of(prompt: str | Sequence[Piece], tokenizer: Tokenizer, param: str = "prompt") -> list[int]:
    """The tokens of a prompt: a text, or tokens with texts between them.

    Raises:
        APIError: one is not in the vocabulary.
    """
    # The whole prompt is the caller's own text, control tokens included.
    ids = pieces_of(prompt, tokenizer, param, special=True)
    begins = isinstance(prompt, str) or isinstance(prompt[0], str)
    if begins and tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    if not ids:
        raise APIError(f"Invalid '{param}': it has no tokens.", param=param)
    return ids


async def completions(request: Request) -> Answer:
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
    check_logprobs(True, body.n_probs, limits, "n_probs")
    texts = [one for one in prompts if isinstance(one, str)]
    if body.echo and (body.told_logprobs is not None or len(texts) < len(prompts)):
        raise APIError("echo needs a text prompt and no logprobs", param="echo")
    name = service.models.check(body.model)
    usage = body.stream_options is not None and body.stream_options.include_usage
    writer = CompletionWriter(
        name,
        usage=usage,
        progress=body.return_progress,
        echo=texts if body.echo else (),
        each=body.n,
    )

    def make(model: LoadedModel, one: str | list[Piece]) -> GenerationRequest:
        tokenizer = model.engine.tokenizer
        if not body.suffix:
            return body.generation(model, ids_of(one, tokenizer), limits)
        before = pieces_of(one, tokenizer, "prompt")
        behind = tokenizer.encode(body.suffix)
        ids = filled(model, before, behind, body.most_tokens(body.max_tokens), param="suffix")
        return body.generation(model, ids, limits, ends=tokenizer.fill_ends)

    prepares = body.prepares(prompts, writer.of, make)
    return body.answer(service, name, prepares, writer)


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


def whole_of(read: PromptRead) -> PromptProgress:
    """The last that is told of a prompt that is being read."""
    return PromptProgress(read.tokens, read.cached, read.tokens, read.seconds, read.choice)
