"""``POST /v1/messages``: Anthropic's format, and how many tokens a conversation has."""

from __future__ import annotations

from json.encoder import encode_basestring
from secrets import token_hex
from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse

from ....engine.sampling.settings import Sampling
from ....tokens.tokenizer import Tokenizer
from ...http.api_error import APIError
from ...models.asked import Asked, Writer
from ...models.events import Call, CallPart, Done, Event, PromptRead, Text, Thought
from ...models.generate import GenerationRequest
from ...models.loading import LoadedModel
from ...models.prompts import Conversation
from ...settings import Limits
from ..body import Body, read_body
from ..messages import Content, Lenient
from ..sampling_body import stops_of
from ..tools import check_choice, check_size, tools_of
from .blocks import (
    BlocksMessage,
    ToolChoice,
    ToolItem,
    choice_of,
    messages_of,
    offered,
    signature_of,
)

VERSIONS = ("2023-06-01", "2026-10-21")
"""The later one takes no settings of sampling; here both do."""
_EFFORTS = {"xhigh": "high", "max": "high"}  # templates know up to high


class ThinkingSetting(Lenient):
    """Whether to think, for how many tokens, and whether the thoughts are shown."""

    type: Literal["enabled", "adaptive", "between_tools", "disabled"]
    budget_tokens: int | None = Field(default=None, ge=1)
    display: Literal["summarized", "omitted"] = "summarized"


class OutputFormat(Lenient):
    """A schema of answers."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How to answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Edit(Lenient):
    """What may go of a conversation: thoughts, of which the model's template decides."""

    type: Literal["clear_thinking_20251015"]


class ContextManagement(Body):
    """What may go of a conversation before it is read."""

    edits: list[Edit] = Field(default_factory=list)


class CountBody(Body):
    """The part of a request that says what a model is asked."""

    turns: ClassVar[str] = "messages"

    model: str | None = None
    messages: list[BlocksMessage] = Field(min_length=1)
    system: Content = ""
    tools: list[ToolItem] = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    thinking: ThinkingSetting | None = None
    output_config: OutputConfig = Field(default_factory=OutputConfig)
    # What says only what is done in any case:
    context_management: ContextManagement | None = None
    speed: Literal["standard"] | None = None

    def conversation(self, model: LoadedModel, limits: Limits) -> Conversation:
        """What the model is asked.

        Raises:
            APIError: a parameter makes no sense beside the others.
        """
        tools, notes = tools_of(offered(self.tools), limits, kind="custom", schema="input_schema")
        choice = self.tool_choice or ToolChoice(type="auto")
        calls, call_of = choice_of(choice)
        check_choice(calls, call_of, tools)
        output = None
        if self.output_config.format is not None:
            output = self.output_config.format.schema_ or {"type": "object"}
            check_size(output, "output_config.format.schema", limits)
        return Conversation(
            messages_of(self.system, self.messages),
            tools,
            calls,
            call_of,
            choice.disable_parallel_tool_use,
            output,
            self._options(model),
            thinking_tokens=None if self.thinking is None else self.thinking.budget_tokens,
            goes_on=True,
            notes=notes,
        )

    def _options(self, model: LoadedModel) -> dict[str, Any]:
        """The switches for thinking that the model's template has. Claude Code always sends both,
        so where there is none the model thinks as it does."""
        options: dict[str, Any] = {}
        if self.thinking is not None and model.prompts.reads("enable_thinking"):
            options["enable_thinking"] = self.thinking.type != "disabled"
        effort = self.output_config.effort
        if effort is not None and model.prompts.reads("reasoning_effort"):
            options["reasoning_effort"] = _EFFORTS.get(effort, effort)
        return options


class MessagesBody(CountBody):
    """See Anthropic's reference; what is not here is refused by name."""

    max_tokens: int = Field(ge=1)
    stream: bool = False
    thread: dict[str, Any] | None = None
    stop_sequences: list[str] = Field(default_factory=list)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0)

    def sampling(self, _: Tokenizer) -> Sampling:
        """For the engine."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)

    @property
    def max_answer(self) -> int:
        """See `ChatRequest.max_answer`."""
        return self.max_tokens

    @property
    def ping_s(self) -> None:
        """See `Asked.ping_s`: as the server's settings say."""

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """See `ChatRequest.generation`."""
        return GenerationRequest(
            model.prompts.prompt(self.conversation(model, limits)),
            self.sampling(model.engine.tokenizer),
            self.max_tokens,
            tuple(self.stop_sequences),
            pieces=self.stream,
        )


async def messages(request: Request) -> Asked:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    _check_version(request)
    body = await read_body(request, MessagesBody)
    if body.thread is not None:
        raise APIError(
            "this server keeps no message threads; send the whole conversation in messages",
            param="thread",
            code="unsupported_parameter",
            # By this word the client's tool runner does.
            details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        )
    stops_of(body.stop_sequences, limits, "stop_sequences")
    omitted = body.thinking is not None and body.thinking.display == "omitted"
    return Asked.chat(
        service,
        body,
        lambda shown: MessagesWriter(shown, body.max_tokens, thoughts=not omitted),
    )


async def count_tokens(request: Request) -> JSONResponse:
    """How many tokens a conversation has."""
    service = request.app.state.service
    _check_version(request)
    body = await read_body(request, CountBody)

    def work(model: LoadedModel) -> int:
        asked = body.conversation(model, service.settings.limits)
        return len(model.prompts.prompt(asked).ids)

    return JSONResponse({"input_tokens": await service.with_model(body.model, work)})


def _check_version(request: Request) -> None:
    version = request.headers.get("anthropic-version", VERSIONS[0])
    if version not in VERSIONS:
        raise APIError(
            f"anthropic-version {version:.50} is not known; known: {', '.join(VERSIONS)}",
            param="anthropic-version",
        )


class MessagesWriter(Writer):
    """Answers in Anthropic's format (see `Writer`): blocks, one after the other.

    Args:
        model: its name.
        max_tokens: that the answer may have.
        thoughts: whether they are shown; else their blocks are empty but for their signatures.
    """

    def __init__(self, model: str, max_tokens: int, *, thoughts: bool = True) -> None:
        self._thoughts = thoughts
        self._id, self._model, self._most = f"msg_{token_hex(12)}", model, max_tokens
        self._read: PromptRead | None = None
        self._done: Done | None = None
        self._content: list[dict[str, Any]] = []
        self._open = ""  # the type of the block that grows
        self._pieces: list[str] = []
        self._space = ""  # with which a block would begin: no block is of nothing else
        self._delta = b""

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        if isinstance(event, Text):
            return self._grow("text", event.text)
        if isinstance(event, Thought):
            return self._grow("thinking", event.text)
        if isinstance(event, CallPart):
            begun = self._call_begun(event.name) if event.first else b""
            return begun + self._call_part(event.text)
        if isinstance(event, Call):
            begun = b"" if event.told else self._call_begun(event.name)
            told = b"" if event.told else self._call_part(event.arguments)
            self._content[-1] = {**self._content[-1], "input": from_json(event.arguments)}
            return begun + told + self._closed()
        if isinstance(event, PromptRead):
            self._read = event
            return _event("message_start", message=self.whole())
        if isinstance(event, Done):
            closed, self._done = self._closed(), event
            told = {key: value for key, value in self.whole().items() if key.startswith("stop_")}
            return closed + _event("message_delta", delta=told, usage=self._usage())
        return b""

    def end(self) -> bytes:
        """See `Writer.end`."""
        return _event("message_stop")

    def silent(self) -> bytes:
        """See `Writer.silent`."""
        return _event("ping")

    def failed(self, error: APIError) -> bytes:
        """See `Writer.failed`."""
        return b"event: error\ndata: " + to_json(error.body_at("/v1/messages")) + b"\n\n"

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, Call) and event.as_text and self._open == "text":
            del self._content[-1]
            self._open, self._pieces = "", []
        self.stream(event)

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        done = self._done
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._content,
            "stop_reason": None if done is None else self._reason(done),
            "stop_sequence": None if done is None else done.stop,
            "usage": self._usage(),
        }

    def _reason(self, done: Done) -> str:
        if done.reason == "tool_calls":
            return "tool_use"
        if done.reason == "stop":
            return "end_turn" if done.stop is None else "stop_sequence"
        return "max_tokens" if done.tokens >= self._most else "model_context_window_exceeded"

    def _usage(self) -> dict[str, Any]:
        read, done = self._read, self._done
        assert read is not None
        return {
            "input_tokens": read.tokens - read.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": read.cached,
            "output_tokens": 0 if done is None else done.tokens,
            "output_tokens_details": {
                "thinking_tokens": 0 if done is None else done.reasoning_tokens
            },
        }

    def _grow(self, kind: Literal["text", "thinking"], text: str) -> bytes:
        begun = b""
        if self._open != kind:
            text = self._space + text
            begun = self._closed()
            if not text.strip():
                self._space = text
                return begun
            empty = {"type": kind, kind: ""}
            if kind == "thinking":
                empty["signature"] = ""
            begun += self._begun(empty)
            self._open = kind
            head = {"type": "content_block_delta", "index": len(self._content) - 1}
            told = f',"delta":{{"type":"{kind}_delta","{kind}":'
            self._delta = b"event: content_block_delta\ndata: " + to_json(head)[:-1] + told.encode()
        self._pieces.append(text)
        if kind == "thinking" and not self._thoughts:
            return begun
        return begun + self._delta + encode_basestring(text).encode() + b"}}\n\n"

    def _call_begun(self, name: str) -> bytes:
        # Models count their calls, or write them as they like; a client may want its own form.
        block = {"type": "tool_use", "id": f"toolu_{token_hex(12)}", "name": name, "input": {}}
        begun = self._closed() + self._begun(block)
        self._open = "tool_use"
        return begun

    def _call_part(self, arguments: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return _event("content_block_delta", index=len(self._content) - 1, delta=delta)

    def _begun(self, block: dict[str, Any]) -> bytes:
        self._content.append(block)
        return _event("content_block_start", index=len(self._content) - 1, content_block=block)

    def _closed(self) -> bytes:
        self._space = ""
        if not self._open:
            return b""
        text, index = "".join(self._pieces), len(self._content) - 1
        block, signed = self._content[-1], b""
        if self._open == "text" or (self._open == "thinking" and self._thoughts):
            block[self._open] = text
        if self._open == "thinking":
            block["signature"] = signature_of(text, carrying=not self._thoughts)
            delta = {"type": "signature_delta", "signature": block["signature"]}
            signed = _event("content_block_delta", index=index, delta=delta)
        self._open, self._pieces = "", []
        return signed + _event("content_block_stop", index=index)


def _event(kind: str, **data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json({"type": kind, **data}))
