"""``POST /v1/messages``: Anthropic's format."""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring
from secrets import token_hex
from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic_core import from_json, to_json
from starlette.requests import Request

from ....conversation.turn import Limits as TurnLimits
from ....conversation.turn import TurnRequest
from ....engine.sampling.settings import Sampling
from ....tokens.tokenizer import Tokenizer
from ...http.api_error import APIError
from ...models.events import Call, Done, Event
from ...models.generate import GenerationRequest
from ...models.loaded_model import LoadedModel
from ...models.model_request import ModelRequest
from ...models.prompts import Conversation, Prompt
from ...requests.agent_models import chat_request
from ...settings import Limits
from ..block_writer import BlockWriter, named_event
from ..body import Body
from ..messages import Content, Lenient
from ..sampling_body import stops_of
from ..tools import check_choice, schema_of, tools_of
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
"""Accepted versions of the API. The later one has no sampling settings; here both have them."""
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

    @classmethod
    def check_headers(cls, headers: Mapping[str, str]) -> None:
        version = headers.get("anthropic-version", VERSIONS[0])
        if version not in VERSIONS:
            raise APIError(
                f"anthropic-version {version:.50} is not known; known: {', '.join(VERSIONS)}",
                param="anthropic-version",
            )

    def conversation(self, model: LoadedModel, limits: Limits) -> Conversation:
        tools, notes = tools_of(offered(self.tools), limits, kind="custom", schema="input_schema")
        choice = self.tool_choice or ToolChoice(type="auto")
        calls, call_of = choice_of(choice)
        check_choice(calls, call_of, tools)
        output = None
        if (form := self.output_config.format) is not None:
            output = schema_of(form.schema_, "output_config.format.schema", limits)
        return Conversation(
            messages_of(self.system, self.messages),
            tools,
            calls,
            call_of,
            choice.disable_parallel_tool_use,
            output,
            self._options(model),
            thinking_tokens=None if self.thinking is None else self.thinking.budget_tokens,
            continues=True,
            notes=notes,
        )

    def _options(self, model: LoadedModel) -> dict[str, Any]:
        """Return the options for thinking that the model's template reads.

        Claude Code always sends both, so one that the template does not read is ignored.
        """
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
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)

    @property
    def max_answer(self) -> int:
        return self.max_tokens

    @property
    def ping_s(self) -> None:
        """None: the server's setting applies; see `ModelRequest.ping_s`."""

    def request_for(self, prompt: Prompt, model: LoadedModel, limits: Limits) -> GenerationRequest:
        turn = TurnRequest(
            self.sampling(model.engine.tokenizer),
            limits=TurnLimits(self.max_tokens),
            stops=tuple(self.stop_sequences),
        )
        return GenerationRequest(prompt, turn, pieces=self.stream)


async def messages(request: Request, body: MessagesBody) -> ModelRequest:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
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
    return chat_request(
        service,
        body,
        lambda shown: MessagesWriter(shown, body.max_tokens, thoughts=not omitted),
    )


class MessagesWriter(BlockWriter):
    """A writer of Anthropic's format: blocks, one after the other (see `BlockWriter`).

    Args:
        max_tokens: limit of the answer.
        thoughts: whether to show thoughts; else their blocks hold signatures only.
    """

    thought = "thinking"

    def __init__(self, model: str, max_tokens: int, *, thoughts: bool = True) -> None:
        super().__init__()
        self._thoughts = thoughts
        self._id, self._model, self._max = f"msg_{token_hex(12)}", model, max_tokens
        self._delta = b""

    def stream(self, event: Event) -> bytes:
        data = super().stream(event)
        if isinstance(event, Call):
            self._blocks[-1]["input"] = from_json(event.arguments)
        elif isinstance(event, Done):
            why = {key: value for key, value in self.whole().items() if key.startswith("stop_")}
            data += named_event("message_delta", delta=why, usage=self._usage())
        return data

    def end(self) -> bytes:
        return named_event("message_stop")

    def silent(self) -> bytes:
        return named_event("ping")

    def failed(self, error: APIError) -> bytes:
        return b"event: error\ndata: " + to_json(error.body_at("/v1/messages")) + b"\n\n"

    def whole(self) -> dict[str, Any]:
        done = self._done
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": self._blocks,
            "stop_reason": None if done is None else self._reason(done),
            "stop_sequence": None if done is None else done.stop,
            "usage": self._usage(),
        }

    def _reason(self, done: Done) -> str:
        if done.reason == "tool_calls":
            return "tool_use"
        if done.reason == "stop":
            return "end_turn" if done.stop is None else "stop_sequence"
        return "max_tokens" if done.tokens >= self._max else "model_context_window_exceeded"

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

    def _start(self) -> bytes:
        return named_event("message_start", message=self.whole())

    def _open_block(self, kind: str, name: str = "") -> bytes:
        block: dict[str, Any] = {"type": kind, kind: ""}
        if kind == "call":
            # Models count their calls, or write them as they like; a client may want its own form.
            block = {"type": "tool_use", "id": f"toolu_{token_hex(12)}", "name": name, "input": {}}
        elif kind == "thinking":
            block["signature"] = ""
        self._blocks.append(block)
        head = to_json({"type": "content_block_delta", "index": self._last})[:-1]
        delta = f',"delta":{{"type":"{kind}_delta","{kind}":'.encode()
        self._delta = b"event: content_block_delta\ndata: " + head + delta
        return named_event("content_block_start", index=self._last, content_block=block)

    def _extend_text(self, text: str, logprobs: object) -> bytes:
        if self._open == "thinking" and not self._thoughts:
            return b""
        return self._delta + encode_basestring(text).encode() + b"}}\n\n"

    def _extend_call(self, arguments: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return named_event("content_block_delta", index=self._last, delta=delta)

    def _close_block(self, text: str, *, complete: bool) -> bytes:
        block, signed = self._blocks[-1], b""
        if self._open == "text" or (self._open == "thinking" and self._thoughts):
            block[self._open] = text
        if self._open == "thinking":
            block["signature"] = signature_of(text, carrying=not self._thoughts)
            delta = {"type": "signature_delta", "signature": block["signature"]}
            signed = named_event("content_block_delta", index=self._last, delta=delta)
        return signed + named_event("content_block_stop", index=self._last)
