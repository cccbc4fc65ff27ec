"""``POST /v1/responses``: OpenAI's format of items."""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring
from secrets import token_hex
from typing import Any, ClassVar, Literal, NamedTuple

import anyio.to_thread
from pydantic import Field
from pydantic_core import from_json, to_json
from starlette.requests import Request

from ....tokens.tokenizer import Tokenizer
from ...http.api_error import APIError
from ...http.scope import BODY, NAMESPACE
from ...models.asked import Asked, Writer
from ...models.events import Call, CallPart, Done, Event, PromptRead, Text, Thought
from ...models.generate import GenerationRequest
from ...models.loading import LoadedModel
from ...models.prompts import Conversation
from ...settings import Limits
from ..body import Body, checked, read_body
from ..messages import Effort, Lenient
from ..sampling_body import SamplingBody, check_logprobs
from ..tools import check_choice, check_turns, tools_of
from .chat_writer import tokens_told
from .responses_input import (
    Item,
    TextFormat,
    Tool,
    ToolChoice,
    choice_of,
    messages_of,
    offered,
    output_of,
)
from .stored_responses import ResponseStore, items_of

LOGPROBS = "message.output_text.logprobs"  # of `include`


class Form(NamedTuple):
    """How a text is told: as an item of a type, with one part in a list."""

    item: str
    prefix: str
    parts: str
    part: str
    part_event: str
    text_event: str


_THOUGHT = ("reasoning", "rs")
_FORMS = {
    "text": Form("message", "msg", "content", "output_text", "content_part", "output_text"),
    "thought": Form(*_THOUGHT, "content", "reasoning_text", "content_part", "reasoning_text"),
    "summary": Form(
        *_THOUGHT, "summary", "summary_text", "reasoning_summary_part", "reasoning_summary_text"
    ),
}


class TextSetting(Body):
    """The form of answers."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningSetting(Lenient):
    """How much to think. Thoughts are told as they are, where summaries are asked for too."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    mode: Literal["standard"] | None = None


class ResponseStreamOptions(Body):
    """What a stream holds besides the answer."""

    include_obfuscation: bool = False


class Items(Body):
    """A conversation."""

    input: list[Item]


class ResponsesBody(SamplingBody):
    """See OpenAI's reference; what is not here is refused by name."""

    turns: ClassVar[str] = "input"

    model: str | None = None
    input: str | list[Item] = Field(min_length=1)
    instructions: str | None = None
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    text: TextSetting = Field(default_factory=TextSetting)
    reasoning: ReasoningSetting = Field(default_factory=ReasoningSetting)
    include: list[str] = Field(default_factory=list)
    top_logprobs: int | None = Field(default=None, ge=0)
    previous_response_id: str | None = None
    store: bool = True
    # Events of this format have no place for them.
    timings_per_token: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]
    # What says nothing about the answer, or only what is done in any case:
    background: Literal[False] | None = None
    truncation: Literal["disabled"] | None = None
    metadata: dict[str, Any] | None = None
    client_metadata: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    max_tool_calls: int | None = Field(default=None, ge=1)  # of tools that a server runs itself

    def conversation(self, _: object, limits: Limits) -> Conversation:
        """What the model is asked.

        Raises:
            APIError: a parameter makes no sense beside the others.
        """
        tools, notes = tools_of(offered(self.tools), limits)
        calls, call_of = choice_of(self.tool_choice)
        check_choice(calls, call_of, tools)
        return Conversation(
            messages_of(self.instructions, self.input),
            tools,
            calls,
            call_of,
            not self.parallel_tool_calls,
            output_of(self.text.format, limits),
            effort=self.reasoning.effort,
            notes=notes,
        )

    @property
    def max_answer(self) -> int | None:
        """See `ChatRequest.max_answer`."""
        return self.most_tokens(self.max_output_tokens)

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """See `ChatRequest.generation`."""
        return GenerationRequest(
            model.prompts.prompt(self.conversation(model, limits)),
            max_tokens=self.max_answer,
            logprobs=(self.top_logprobs or 0) if LOGPROBS in self.include else None,
            pieces=self.stream,
            **self.options(model.engine.tokenizer, limits),
        )


async def responses(request: Request) -> Asked:
    """Answer a conversation."""
    service = request.app.state.service
    limits: Limits = service.settings.limits
    body = await read_body(request, ResponsesBody)
    if body.top_logprobs:
        if LOGPROBS not in body.include:
            raise APIError(f"top_logprobs needs include: [{LOGPROBS!r}]", param="top_logprobs")
        check_logprobs(True, body.top_logprobs, limits)
    if body.stream_options is not None and not body.stream:
        raise APIError("stream_options needs stream: true", param="stream_options")
    body, items = await continued(request, body)

    def writer_for(shown: str) -> ResponsesWriter:
        writer = ResponsesWriter(shown, body)
        store: ResponseStore = request.app.state.responses
        if body.store and store.enabled:
            namespace = request.scope.get(NAMESPACE, "")
            writer.keep = lambda response: store.put(namespace, response, items)
        return writer

    return Asked.chat(service, body, writer_for)


async def continued(
    request: Request, body: ResponsesBody
) -> tuple[ResponsesBody, list[dict[str, Any]]]:
    """The request with the conversation that it goes on with, and its items, if they are of use.

    Raises:
        APIError: the response before it is not there any more.
    """
    kept: ResponseStore = request.app.state.responses
    if "store" in body.model_fields_set and body.store and not kept.enabled:
        raise APIError(
            "this server keeps no responses (--keep-responses)",
            param="store",
            code="unsupported_parameter",
        )
    before = body.previous_response_id
    parts = ("type", "content", "summary")
    refers = any(_refers(*(getattr(one, name, None) for name in parts)) for one in body.input)
    if before is None and not refers and not (body.store and kept.enabled):
        return body, []
    return await anyio.to_thread.run_sync(_with_kept, request, body, refers)


def _with_kept(
    request: Request, body: ResponsesBody, refers: bool
) -> tuple[ResponsesBody, list[dict[str, Any]]]:
    kept: ResponseStore = request.app.state.responses
    limits = request.app.state.service.settings.limits
    before, space = body.previous_response_id, request.scope.get(NAMESPACE, "")
    given = from_json(request.scope[BODY])["input"]
    if refers:
        given = [_item(kept, space, one, n) for n, one in enumerate(given)]
        body = body.model_copy(update={"input": checked(Items, {"input": given}).input})
    items = items_of(given)
    if before is None:
        return body, items
    found = kept.get(space, before)
    if found is None:
        raise APIError(
            f"Previous response with id '{before:.100}' not found: responses are kept only for a "
            "while; send the whole conversation as input.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    response, asked = found
    items = [*asked, *response["output"], *items]
    check_turns(items, "input", limits)
    whole = checked(Items, {"input": items}).input
    return body.model_copy(update={"input": whole}), items


def _refers(kind: str | None, content: object, summary: object) -> bool:
    """Whether an item stands for one of a response by its name: as a reference, or as a thought
    without its text, as LangChain's streams keep it."""
    return kind == "item_reference" or (kind == "reasoning" and not (content or summary))


def _item(kept: ResponseStore, space: str, item: dict[str, Any], number: int) -> dict[str, Any]:
    """An item of the input; one that is a reference stands for an item of a response."""
    if not _refers(item.get("type"), item.get("content"), item.get("summary")):
        return item
    name = str(item.get("id"))
    found = kept.item(space, name)
    if found is None and item["type"] == "reasoning":
        return item  # of another server
    if found is None:
        raise APIError(
            f"Item with id '{name:.100}' not found: responses are kept only for a while; send the "
            "whole conversation as input.",
            param=f"input[{number}].id",
            code="item_not_found",
        )
    return found


class ResponsesWriter(Writer):
    """Answers in OpenAI's format of items (see `Writer`): one after the other."""

    def __init__(self, model: str, body: ResponsesBody) -> None:
        self.model = model
        self.keep: Callable[[dict[str, Any]], None] | None = None
        """Takes the response when it has ended."""
        self._id, self._created = f"resp_{token_hex(16)}", int(time.time())
        functions = [tool for tool in body.tools if tool.type == "function"]
        choice = body.tool_choice
        self._asked = {
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": body.previous_response_id,
            "prompt_cache_key": body.prompt_cache_key,
            "reasoning": body.reasoning.model_dump(include={"effort", "summary"}),
            "safety_identifier": body.safety_identifier,
            "service_tier": "default",
            "store": body.store,
            "temperature": body.temperature,
            "text": {
                "format": {"type": "text"},
                **body.text.model_dump(by_alias=True, exclude_none=True),
            },
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [tool.model_dump() for tool in functions],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": body.top_p,
            "truncation": "disabled",
            "user": body.user,
        }
        # Most clients show no thoughts but summaries, and these they ask for.
        asked = body.reasoning.summary not in (None, "none")
        self._thought: Literal["thought", "summary"] = "summary" if asked else "thought"
        self._tokenizer: Tokenizer | None = None
        self._read: PromptRead | None = None
        self._done: Done | None = None
        self._count = 0  # of events
        self._items: list[dict[str, Any]] = []
        # What the last item is, while it grows:
        self._open: Literal["", "text", "thought", "summary", "call"] = ""
        self._pieces: list[str] = []
        self._noted: list[dict[str, Any]] = []
        self._space = ""  # with which an item would begin: none is of nothing else

    def of(self, model: LoadedModel) -> None:
        """The model is there."""
        self._tokenizer = model.engine.tokenizer

    def stream(self, event: Event) -> bytes:
        """See `Writer.stream`."""
        if isinstance(event, Text):
            noted = None
            if event.logprobs is not None:
                assert self._tokenizer is not None
                noted = tokens_told(event.logprobs, self._tokenizer)
            return self._grow("text", event.text, noted)
        if isinstance(event, Thought):
            return self._grow(self._thought, event.text)
        if isinstance(event, CallPart):
            begun = self._call_begun(event.name) if event.first else b""
            return begun + self._call_part(event.text)
        if isinstance(event, Call):
            begun = b"" if event.told else self._call_begun(event.name)
            told = b"" if event.told else self._call_part(event.arguments)
            return begun + told + self._closed("completed")
        if isinstance(event, PromptRead):
            self._read = event
            return b"" if self._count else self._created_events()
        if isinstance(event, Done):
            self._done = event
            return self._closed("incomplete" if event.reason == "length" else "completed")
        return b""

    def end(self) -> bytes:
        """See `Writer.end`."""
        response = self.whole()
        return self._event(f"response.{response['status']}", response=response)

    def silent(self) -> bytes:
        """See `Writer.silent`; Codex counts no comments."""
        begun = b"" if self._count else self._created_events()
        response = self._response("in_progress")
        return begun or self._event("response.in_progress", response=response)

    def failed(self, error: APIError) -> bytes:
        """See `Writer.failed`."""
        begun = b"" if self._count else self._created_events()
        told = {"code": error.code or error.type, "message": error.message}
        response = self._response("failed", error=told)
        return begun + self._event("response.failed", response=response)

    def add(self, event: Event) -> None:
        """See `Writer.add`."""
        if isinstance(event, Call) and event.as_text and self._open == "text":
            del self._items[-1]
            self._open, self._pieces, self._noted = "", [], []
        self.stream(event)

    def whole(self) -> dict[str, Any]:
        """See `Writer.whole`."""
        if self._done is not None and self._done.reason == "length":
            reason = {"reason": "max_output_tokens"}
            response = self._response("incomplete", incomplete_details=reason)
        else:
            response = self._response("completed")
        if self.keep is not None:
            self.keep(response)
        return response

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        usage, read, done = None, self._read, self._done
        if read is not None and done is not None:
            usage = {
                "input_tokens": read.tokens,
                "input_tokens_details": {"cached_tokens": read.cached, "cache_write_tokens": 0},
                "output_tokens": done.tokens,
                "output_tokens_details": {"reasoning_tokens": done.reasoning_tokens},
                "total_tokens": read.tokens + done.tokens,
            }
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            **self._asked,
            "output": self._items,
            "usage": usage,
            **more,
        }

    def _created_events(self) -> bytes:
        kinds, response = ("created", "in_progress"), self._response("in_progress")
        return b"".join(self._event(f"response.{kind}", response=response) for kind in kinds)

    def _event(self, kind: str, **data: Any) -> bytes:
        number, self._count = self._count, self._count + 1
        told = to_json({"type": kind, "sequence_number": number, **data})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), told)

    def _begun(self, kind: str, prefix: str, **more: Any) -> bytes:
        item = {"id": f"{prefix}_{token_hex(16)}", "type": kind, "status": "in_progress", **more}
        self._items.append(item)
        return self._event("response.output_item.added", output_index=self._last, item=item)

    @property
    def _last(self) -> int:
        return len(self._items) - 1

    @property
    def _place(self) -> dict[str, Any]:
        """Of the part that grows."""
        index = f"{_FORMS[self._open].parts}_index"
        return {"item_id": self._items[-1]["id"], "output_index": self._last, index: 0}

    def _part(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": _FORMS[self._open].part, "text": text}
        if self._open == "text":
            part |= {"annotations": [], "logprobs": self._noted}
        return part

    def _grow(
        self,
        mode: Literal["text", "thought", "summary"],
        text: str,
        noted: list[dict[str, Any]] | None = None,
    ) -> bytes:
        begun, form = b"", _FORMS[mode]
        if self._open != mode:
            text = self._space + text
            begun = self._closed("completed")
            if not text.strip():
                self._space = text
                return begun
            self._open = mode
            more = {"role": "assistant"} if mode == "text" else {"summary": []}
            begun += self._begun(form.item, form.prefix, **{**more, form.parts: []})
            part = self._part("")
            begun += self._event(f"response.{form.part_event}.added", **self._place, part=part)
        self._pieces.append(text)
        self._noted += noted or ()
        number, self._count = self._count, self._count + 1
        more = b',"logprobs":' + to_json(noted or []) if mode == "text" else b""
        kind = f"response.{form.text_event}.delta".encode()
        # Put together by hand: this is done for each token.
        return begun + b"".join((
            b"event: ", kind, b'\ndata: {"type":"', kind, b'","sequence_number":%d,' % number,
            b'"item_id":"%s","output_index":%d,' % (self._items[-1]["id"].encode(), self._last),
            b'"%s_index":0,"delta":' % form.parts.encode(), encode_basestring(text).encode(),
            more, b"}\n\n",
        ))  # fmt: skip

    def _call_begun(self, name: str) -> bytes:
        # Models count their calls, or write them as they like; a client may want its own form.
        own = {"call_id": f"call_{token_hex(12)}", "name": name}
        begun = self._closed("completed")
        begun += self._begun("function_call", "fc", **own, arguments="")
        self._open = "call"
        return begun

    def _call_part(self, arguments: str) -> bytes:
        self._pieces.append(arguments)
        place = {"item_id": self._items[-1]["id"], "output_index": self._last}
        return self._event("response.function_call_arguments.delta", **place, delta=arguments)

    def _closed(self, status: str) -> bytes:
        """End the item that grows, if there is one."""
        self._space = ""
        if not self._open:
            return b""
        text, item = "".join(self._pieces), self._items[-1]
        if self._open == "call":
            item |= {"arguments": text, "status": status}
            place = {"item_id": item["id"], "output_index": self._last}
            told = self._event(
                "response.function_call_arguments.done", **place, name=item["name"], arguments=text
            )
        else:
            part, place, form = self._part(text), self._place, _FORMS[self._open]
            more = {"logprobs": self._noted} if self._open == "text" else {}
            item |= {form.parts: [part], "status": status}
            told = self._event(f"response.{form.text_event}.done", **place, text=text, **more)
            told += self._event(f"response.{form.part_event}.done", **place, part=part)
        self._open, self._pieces, self._noted = "", [], []
        return told + self._event("response.output_item.done", output_index=self._last, item=item)
