"""``POST /v1/chat/completions``: OpenAI's chat format, and llama-server's additions to it."""

from __future__ import annotations

import time
from json.encoder import encode_basestring
from secrets import token_hex
from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic_core import to_json
from starlette.requests import Request

from ..inference.sampling import Sampling
from ..tokens.tokenizer import Tokenizer
from .agent_models import agent_request
from .api_error import APIError
from .generate import (
    Call,
    CallPart,
    Done,
    Event,
    GenerationRequest,
    PromptProgress,
    PromptRead,
    Text,
    Thought,
    progress_of,
    timings,
)
from .llama_parameters import LlamaBody
from .logprobs import TokenLogprob
from .models import LoadedModel
from .openai_messages import (
    NamedTool,
    ResponseFormat,
    Talk,
    ToolChoice,
    messages_of,
    offered,
    output_of,
)
from .prompts import Conversation
from .settings import Limits
from .turns import check_size, tools_of
from .wire import Answer, Body, read_body

DONE = b"data: [DONE]\n\n"


class StreamOptions(Body):
    """What a stream holds besides the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingBody(LlamaBody):
    """The settings of decodes, which several formats share."""

    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    repeat_penalty: float | None = Field(default=None, ge=0.01, le=100)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    presence_penalty: float | None = Field(default=None, ge=-100, le=100)
    frequency_penalty: float | None = Field(default=None, ge=-100, le=100)
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None

    @field_validator("logit_bias")
    @classmethod
    def _are_tokens(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for name, value in (bias or {}).items():
            if not (name.isascii() and name.isdigit()):
                raise ValueError(f"{name[:20]!r} is not the id of a token")
            if not -100 <= value <= 100:
                raise ValueError(f"{value} is not from -100 to 100")
        return bias

    def sampling(self) -> Sampling:
        """For the engine."""
        names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty")
        found = {name: getattr(self, name) for name in (*names, "frequency_penalty")}
        return Sampling(
            **found,
            seed=None if self.seed is None else self.seed % 2**64,
            penalty_last=self.repeat_last_n,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()}
            or None,
        )

    def stops(self, limits: Limits) -> tuple[str, ...]:
        """Texts that end an answer.

        Raises:
            APIError: they are too many, empty or too long.
        """
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > limits.stops or not all(0 < len(stop) <= 256 for stop in stops):
            raise APIError(
                f"Invalid 'stop': give at most {limits.stops} texts of 1 to 256 characters.",
                param="stop",
            )
        return stops


class ChatBody(SamplingBody, Talk):
    """See OpenAI's reference; what is not here is refused by name."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_progress: bool = False
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: int = Field(default=1, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    # What says nothing about the answer, or only what is done in any case:
    user: str | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: Literal[False] | None = None
    modalities: list[Literal["text"]] | None = None
    n_probs: int | None = Field(default=None, ge=0)
    json_schema: dict[str, Any] | None = None
    reasoning_format: Literal["auto", "deepseek"] | None = None

    def conversation(self, limits: Limits) -> Conversation:
        """What the model is asked.

        Raises:
            APIError: a parameter makes no sense beside the others.
        """
        calls, call_of = self.tool_choice or "auto", None
        if isinstance(calls, NamedTool):
            call_of, calls = calls.function.name, "required"
            if call_of not in (tool.function.name for tool in self.tools):
                raise APIError(f"there is no tool {call_of:.100}", param="tool_choice")
        if calls == "required" and not self.tools:
            raise APIError("tool_choice needs tools", param="tool_choice")
        return Conversation(
            messages_of(self.messages, limits),
            tools_of(offered(self.tools), limits, schema="function.parameters"),
            calls,
            call_of,
            not self.parallel_tool_calls,
            self._output(limits),
            self.chat_template_kwargs,
            self.reasoning_effort,
        )

    def _output(self, limits: Limits) -> dict[str, Any] | None:
        if self.json_schema is None:
            return output_of(self.response_format, limits)
        if self.response_format is not None:
            raise APIError("give json_schema or response_format", param="json_schema")
        check_size(self.json_schema, "json_schema", limits)
        return self.json_schema or {"type": "object"}

    @property
    def told_logprobs(self) -> int | None:
        """Likeliest tokens that are told beside each one; None: no probabilities are told."""
        if self.logprobs:
            return self.top_logprobs or 0
        return self.n_probs or None

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """What is asked of the engine."""
        return GenerationRequest(
            model.prompts.prompt(self.conversation(limits)),
            self.sampling(),
            self.most_tokens(self.max_completion_tokens, self.max_tokens),
            self.stops(limits),
            self.n,
            self.told_logprobs,
            self.return_progress and self.stream,
            self.stream,
            self.cache_prompt,
        )


async def chat_completions(request: Request) -> Answer:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, ChatBody)
    if body.n > limits.choices:
        raise APIError(f"Invalid 'n': at most {limits.choices}, not {body.n}.", param="n")
    check_logprobs(body.logprobs, body.top_logprobs, limits)
    check_logprobs(True, body.n_probs, limits, "n_probs")
    if body.stream_options is not None and not body.stream:
        raise APIError("stream_options is for streams", param="stream_options")
    folder = service.settings.agents.get(body.model)
    name = service.models.check(None if folder is not None else body.model)
    writer = ChatWriter(
        name if folder is None else body.model or name,
        usage=body.stream_options is not None and body.stream_options.include_usage,
        progress=body.return_progress,
    )

    def prepare(model: LoadedModel) -> GenerationRequest:
        writer.of(model)
        if folder is None:
            return body.generation(model, limits)
        return agent_request(
            model,
            folder,
            body.conversation(limits),
            body.sampling(),
            body.most_tokens(body.max_completion_tokens, body.max_tokens),
            body.model_fields_set,
            service.traces,
        )

    return Answer(service, name, prepare, writer, streamed=body.stream)


def check_logprobs(
    wanted: bool, top: int | None, limits: Limits, name: str = "top_logprobs"
) -> None:
    """Whether probabilities can be told as asked.

    Raises:
        APIError: they cannot; names the parameter.
    """
    if top is not None and not wanted:
        raise APIError("top_logprobs needs logprobs: true", param="top_logprobs")
    if top is not None and top > limits.logprobs:
        raise APIError(f"Invalid '{name}': at most {limits.logprobs}, not {top}.", param=name)


def usage_of(read: PromptRead | None, done: list[Done]) -> dict[str, Any]:
    """What a request took, in tokens."""
    prompt, cached = (read.tokens, read.cached) if read is not None else (0, 0)
    written = sum(one.tokens for one in done)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(d.reasoning_tokens for d in done)},
    }


def tokens_told(noted: list[TokenLogprob], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Probabilities as the chat format has them."""

    def told(token: int, logprob: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token)
        return {
            "token": raw.decode("utf-8", "replace"),
            "logprob": max(logprob, -9999.0),
            "bytes": list(raw),
        }

    return [
        {
            **told(one.token, one.logprob),
            "top_logprobs": [told(token, logprob) for token, logprob in one.top],
        }
        for one in noted
    ]


class ChatWriter:
    """Answers in OpenAI's chat format (see `Writer`).

    The parts of a chunk that are the same in all of a stream are put together once.
    """

    def __init__(self, model: str, *, usage: bool, progress: bool = False) -> None:
        self._progress = progress
        self.id = f"chatcmpl-{token_hex(12)}"
        self._created, self._model, self._usage = int(time.time()), model, usage
        self._tokenizer: Tokenizer | None = None
        self._head = b""
        self._starts: dict[int, bytes] = {}
        self._read: PromptRead | None = None
        self._done: list[Done] = []
        self._choices: dict[int, dict[str, Any]] = {}
        self._fingerprint = ""

    def of(self, model: LoadedModel) -> None:
        """The model is there: what it is goes into the answer."""
        self._tokenizer, self._fingerprint = model.engine.tokenizer, model.fingerprint

    # --- streamed

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        if isinstance(event, Text):
            told = b"null"
            if event.logprobs is not None:
                assert self._tokenizer is not None
                told = to_json({"content": tokens_told(event.logprobs, self._tokenizer)})
            text = encode_basestring(event.text).encode()
            return self._chunk(event.choice, b'{"content":' + text + b"}", logprobs=told)
        if isinstance(event, Thought):
            text = encode_basestring(event.text).encode()
            return self._chunk(event.choice, b'{"reasoning_content":' + text + b"}")
        if isinstance(event, CallPart):
            begun = self._call_begun(event) if event.first else b""
            return begun + self._call_part(event, event.text)
        if isinstance(event, Call):
            if event.told:
                return b""
            return self._call_begun(event) + self._call_part(event, event.arguments)
        if isinstance(event, PromptProgress):
            return self._progressed(event)
        if isinstance(event, PromptRead):
            self._read = event
            if self._progress:
                whole = event.tokens
                return self._progressed(PromptProgress(whole, event.cached, whole, event.seconds))
        elif isinstance(event, Done):
            self._done.append(event)
            finish = to_json(event.reason)
            return self._chunk(event.choice, b"{}", finish, more=self._timings(event))
        return b""

    def end(self) -> bytes:
        """See `Writer.end`."""
        if not self._usage:
            return DONE
        used = to_json(usage_of(self._read, self._done))
        return b"data: " + self._common() + b'[],"usage":' + used + b"}\n\n" + DONE

    def failed(self, error: APIError) -> bytes:
        """See `Writer.failed`."""
        return error.event() + DONE

    def _call_begun(self, call: Call | CallPart) -> bytes:
        function = {"name": call.name, "arguments": ""}
        first = {"index": call.index, "id": call.id, "type": "function", "function": function}
        return self._chunk(call.choice, to_json({"tool_calls": [first]}))

    def _call_part(self, call: Call | CallPart, arguments: str) -> bytes:
        part = {"index": call.index, "function": {"arguments": arguments}}
        return self._chunk(call.choice, to_json({"tool_calls": [part]}))

    def _progressed(self, progress: PromptProgress) -> bytes:
        told = b',"prompt_progress":' + to_json(progress_of(progress))
        return self._chunk(0, b"{}", more=told)

    def _chunk(
        self,
        choice: int,
        delta: bytes,
        finish: bytes = b"null",
        *,
        logprobs: bytes = b"null",
        more: bytes = b"",
    ) -> bytes:
        start = self._starts.get(choice)
        first = b""
        if start is None:
            start = b"data: " + self._common() + b'[{"index":%d,"delta":' % choice
            self._starts[choice] = start
            first = start + b'{"role":"assistant","content":null},"logprobs":null,'
            first += b'"finish_reason":null}]' + self._tail() + b"\n\n"
        return (
            first + start + delta + b',"logprobs":' + logprobs + b',"finish_reason":' + finish
            + b"}]" + more + self._tail() + b"\n\n"
        )  # fmt: skip

    def _common(self) -> bytes:
        if not self._head:
            head = {
                "id": self.id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": self._model,
                "system_fingerprint": self._fingerprint,
            }
            self._head = to_json(head)[:-1] + b',"choices":'
        return self._head

    def _tail(self) -> bytes:
        return b',"usage":null}' if self._usage else b"}"

    def _timings(self, done: Done) -> bytes:
        return b"" if self._read is None else b',"timings":' + to_json(timings(self._read, done))

    # --- whole

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, PromptRead):
            self._read = event
            return
        if isinstance(event, Text | Thought | Call | Done):
            choice = self._choices.setdefault(
                event.choice, {"text": [], "thought": [], "calls": [], "noted": [], "done": None}
            )
            if isinstance(event, Text):
                choice["text"].append(event.text)
                choice["noted"] += event.logprobs or ()
            elif isinstance(event, Thought):
                choice["thought"].append(event.text)
            elif isinstance(event, Call):
                function = {"name": event.name, "arguments": event.arguments}
                choice["calls"].append({"id": event.id, "type": "function", "function": function})
            else:
                choice["done"] = event
                self._done.append(event)

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        made: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": [self._choice(n) for n in sorted(self._choices)],
            "usage": usage_of(self._read, self._done),
        }
        if self._read is not None and self._done:
            made["timings"] = timings(self._read, self._done[0])
        return made

    def _choice(self, number: int) -> dict[str, Any]:
        found = self._choices[number]
        text, thought = "".join(found["text"]), "".join(found["thought"])
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if not text and not found["calls"]:
            message["content"] = ""
        if thought:
            message["reasoning_content"] = thought
        if found["calls"]:
            message["tool_calls"] = found["calls"]
        noted = None
        if found["noted"]:
            assert self._tokenizer is not None
            noted = {"content": tokens_told(found["noted"], self._tokenizer)}
        return {
            "index": number,
            "message": message,
            "logprobs": noted,
            "finish_reason": found["done"].reason if found["done"] else None,
        }
