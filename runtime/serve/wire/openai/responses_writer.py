"""Responses in OpenAI's Responses format."""

from __future__ import annotations

import time
from collections.abc import Callable
from json.encoder import encode_basestring
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from ....conversation.logprobs import TokenLogprob
from ...http.api_error import APIError
from ..block_writer import BlockWriter, named_event
from .chat_writer import shown_logprobs

if TYPE_CHECKING:
    from .responses_body import ResponsesBody


class Form(NamedTuple):
    """The names for a kind of text in the format: its item type, ID prefix, part and events."""

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

_ECHOED = (
    *("instructions", "max_output_tokens", "parallel_tool_calls", "previous_response_id"),
    *("prompt_cache_key", "safety_identifier", "store", "temperature", "top_p", "user"),
)
"""Parameters that a response repeats from its request."""


class ResponsesWriter(BlockWriter):
    """A writer of OpenAI's Responses format: items, one after the other (see `BlockWriter`)."""

    def __init__(self, model: str, body: ResponsesBody) -> None:
        super().__init__()
        self.model = model
        self.keep: Callable[[dict[str, Any]], None] | None = None
        """Stores the response; called when it has ended."""
        self._id, self._created = f"resp_{token_hex(16)}", int(time.time())
        functions = [tool for tool in body.tools if tool.type == "function"]
        choice = body.tool_choice
        settings = {
            **{name: getattr(body, name) for name in _ECHOED},
            "background": False,
            "metadata": body.metadata or {},
            "reasoning": body.reasoning.model_dump(include={"effort", "summary"}),
            "service_tier": "default",
            "text": {
                "format": {"type": "text"},
                **body.text.model_dump(by_alias=True, exclude_none=True),
            },
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [tool.model_dump() for tool in functions],
            "top_logprobs": body.top_logprobs or 0,
            "truncation": "disabled",
        }
        self._settings = dict(sorted(settings.items()))
        # Most clients show no thoughts but summaries, and these they ask for.
        if body.reasoning.summary not in (None, "none"):
            self.thought = "summary"
        self._count = 0  # of events
        self._noted: list[dict[str, Any]] = []  # probabilities of the last item's tokens

    def end(self) -> bytes:
        response = self.whole()
        return self._event(f"response.{response['status']}", response=response)

    def silent(self) -> bytes:
        """Repeat an event, since Codex does not count comments."""
        response = self._response("in_progress")
        return self._start() or self._event("response.in_progress", response=response)

    def failed(self, error: APIError) -> bytes:
        begun = self._start()
        about = {"code": error.code or error.type, "message": error.message}
        return begun + self._event(
            "response.failed", response=self._response("failed", error=about)
        )

    def whole(self) -> dict[str, Any]:
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
            **self._settings,
            "output": self._blocks,
            "usage": usage,
            **more,
        }

    def _event(self, kind: str, **data: Any) -> bytes:
        number, self._count = self._count, self._count + 1
        return named_event(kind, sequence_number=number, **data)

    def _start(self) -> bytes:
        if self._count:
            return b""
        kinds, response = ("created", "in_progress"), self._response("in_progress")
        return b"".join(self._event(f"response.{kind}", response=response) for kind in kinds)

    @property
    def _at(self) -> dict[str, Any]:
        """Position of the growing part: item ID, output index, and index of the part."""
        at = {"item_id": self._blocks[-1]["id"], "output_index": self._last}
        return at if self._open == "call" else {**at, f"{_FORMS[self._open].parts}_index": 0}

    def _part(self, text: str) -> dict[str, Any]:
        part: dict[str, Any] = {"type": _FORMS[self._open].part, "text": text}
        if self._open == "text":
            part |= {"annotations": [], "logprobs": self._noted}
        return part

    def _open_block(self, kind: str, name: str = "") -> bytes:
        self._noted = []
        if kind == "call":
            # Models count their calls, or write them as they like; a client may want its own form.
            call_id = f"call_{token_hex(12)}"
            return self._open_item("function_call", "fc", call_id=call_id, name=name, arguments="")
        form = _FORMS[kind]
        more = {"role": "assistant"} if kind == "text" else {"summary": []}
        begun = self._open_item(form.item, form.prefix, **{**more, form.parts: []})
        part = self._part("")
        return begun + self._event(f"response.{form.part_event}.added", **self._at, part=part)

    def _open_item(self, kind: str, prefix: str, **more: Any) -> bytes:
        item = {"id": f"{prefix}_{token_hex(16)}", "type": kind, "status": "in_progress", **more}
        self._blocks.append(item)
        return self._event("response.output_item.added", output_index=self._last, item=item)

    def _extend_text(self, text: str, logprobs: list[TokenLogprob] | None) -> bytes:
        form, more = _FORMS[self._open], b""
        if self._open == "text":
            noted: list[dict[str, Any]] = []
            if logprobs is not None:
                noted = shown_logprobs(logprobs, self._tokenizer)
            self._noted += noted
            more = b',"logprobs":' + to_json(noted)
        number, self._count = self._count, self._count + 1
        kind = f"response.{form.text_event}.delta".encode()
        # Put together by hand: this is done for each token.
        return b"".join((
            b"event: ", kind, b'\ndata: {"type":"', kind, b'","sequence_number":%d,' % number,
            b'"item_id":"%s","output_index":%d,' % (self._blocks[-1]["id"].encode(), self._last),
            b'"%s_index":0,"delta":' % form.parts.encode(), encode_basestring(text).encode(),
            more, b"}\n\n",
        ))  # fmt: skip

    def _extend_call(self, arguments: str) -> bytes:
        return self._event("response.function_call_arguments.delta", **self._at, delta=arguments)

    def _close_block(self, text: str, *, complete: bool) -> bytes:
        item, at = self._blocks[-1], self._at
        status = "completed" if complete else "incomplete"
        if self._open == "call":
            item |= {"arguments": text, "status": status}
            kind, name = "response.function_call_arguments.done", item["name"]
            closed = self._event(kind, **at, name=name, arguments=text)
        else:
            part, form = self._part(text), _FORMS[self._open]
            item |= {form.parts: [part], "status": status}
            more = {"logprobs": self._noted} if self._open == "text" else {}
            closed = self._event(f"response.{form.text_event}.done", **at, text=text, **more)
            closed += self._event(f"response.{form.part_event}.done", **at, part=part)
        return closed + self._event("response.output_item.done", output_index=self._last, item=item)
