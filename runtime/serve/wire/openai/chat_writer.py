"""Responses in OpenAI's chat format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from secrets import token_hex
from typing import Any

from pydantic_core import to_json

from ....conversation.logprobs import TokenLogprob
from ....tokens.tokenizer import Tokenizer
from ...models.events import (
    Answered,
    Call,
    CallPart,
    Done,
    Event,
    PromptProgress,
    PromptRead,
    Text,
    Thought,
    progress_of,
    timings,
    whole_of,
)
from ...models.writer import Writer

DONE = b"data: [DONE]\n\n"


def usage_of(read: Iterable[PromptRead | None], done: Sequence[Done]) -> dict[str, Any]:
    """Return the ``usage`` of a request: the tokens of its prompts and answers."""
    known = [one for one in read if one is not None]
    prompt, cached = sum(one.tokens for one in known), sum(one.cached for one in known)
    written = sum(one.tokens for one in done)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": sum(d.reasoning_tokens for d in done)},
    }


def shown_logprobs(noted: list[TokenLogprob], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Convert logprobs to the chat format's form."""

    def shown(token: int, logprob: float) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": max(logprob, -9999.0), "bytes": list(raw)}

    return [
        {**shown(one.token, one.logprob), "top_logprobs": [shown(*likely) for likely in one.top]}
        for one in noted
    ]


class ChatWriter(Writer):
    """A writer of OpenAI's chat format (see `Writer`).

    The parts that all chunks of a stream share are serialized once.
    """

    last = DONE

    def __init__(
        self, model: str, *, usage: bool, progress: bool = False, logprobs: bool = False
    ) -> None:
        self._progress, self._logprobs = progress, logprobs
        self.id = f"chatcmpl-{token_hex(12)}"
        self._created, self._model, self._usage = int(time.time()), model, usage
        self._head = b""
        self._starts: dict[int, bytes] = {}
        self._read: PromptRead | None = None
        self._done: list[Done] = []
        self._answers: dict[int, Answered] = {}

    # --- streamed

    def stream(self, event: Event) -> bytes:
        if isinstance(event, Text | Thought):
            noted, kind = b"null", b"content"
            if isinstance(event, Thought):
                kind = b"reasoning_content"
            elif event.logprobs is not None:
                noted = to_json({"content": shown_logprobs(event.logprobs, self._tokenizer)})
            delta = b'{"%s":%s}' % (kind, encode_basestring(event.text).encode())
            more = self._so_far(event.so_far)
            return self._chunk(event.choice, delta, logprobs=noted, more=more)
        if isinstance(event, CallPart):
            begun = self._call_begun(event) if event.first else b""
            return begun + self._call_part(event, event.text, self._so_far(event.so_far))
        if isinstance(event, Call):
            if event.streamed:
                return b""
            return self._call_begun(event) + self._call_part(event, event.arguments)
        if isinstance(event, PromptProgress):
            return self._progressed(event)
        if isinstance(event, PromptRead):
            self._read = event
            if self._progress:
                return self._progressed(whole_of(event))
        elif isinstance(event, Done):
            self._done.append(event)
            more = self._so_far((event.tokens, event.seconds))
            return self._chunk(event.choice, b"{}", to_json(event.reason), more=more)
        return b""

    def end(self) -> bytes:
        if not self._usage:
            return DONE
        used = to_json(usage_of([self._read], self._done))
        took = self._so_far((self._done[0].tokens, self._done[0].seconds))
        return b"data: " + self._common() + b'[],"usage":' + used + took + b"}\n\n" + DONE

    def _call_begun(self, call: Call | CallPart) -> bytes:
        function = {"name": call.name, "arguments": ""}
        first = {"index": call.index, "id": call.id, "type": "function", "function": function}
        return self._chunk(call.choice, to_json({"tool_calls": [first]}))

    def _call_part(self, call: Call | CallPart, arguments: str, more: bytes = b"") -> bytes:
        part = {"index": call.index, "function": {"arguments": arguments}}
        return self._chunk(call.choice, to_json({"tool_calls": [part]}), more=more)

    def _progressed(self, progress: PromptProgress) -> bytes:
        more = b',"prompt_progress":' + to_json(progress_of(progress))
        return self._chunk(0, b"{}", more=more)

    def _chunk(
        self,
        choice: int,
        delta: bytes,
        finish: bytes = b"null",
        *,
        logprobs: bytes = b"null",
        more: bytes = b"",
    ) -> bytes:
        start, first = self._starts.get(choice), b""
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
            self._head = to_json(self._about("chat.completion.chunk"))[:-1] + b',"choices":'
        return self._head

    def _about(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": "" if self._loaded is None else self._loaded.fingerprint,
        }

    def _tail(self) -> bytes:
        return b',"usage":null}' if self._usage else b"}"

    def _so_far(self, so_far: tuple[int, float] | None) -> bytes:
        """Return the field ``timings`` for the tokens and seconds of an answer so far."""
        if self._read is None or so_far is None:
            return b""
        return b',"timings":' + to_json(timings(self._read, *so_far))

    # --- whole

    def add(self, event: Event) -> None:
        if isinstance(event, PromptRead):
            self._read = event
        elif isinstance(event, Text | Thought | Call | Done):
            answer = self._answers.setdefault(event.choice, Answered())
            if isinstance(event, Call) and event.as_text:
                answer.text, answer.logprobs = [], []
            answer.add(event)
            if isinstance(event, Done):
                self._done.append(event)

    def whole(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            **self._about("chat.completion"),
            "choices": [self._choice(n) for n in sorted(self._answers)],
            "usage": usage_of([self._read], self._done),
        }
        if self._read is not None and self._done:
            first = self._done[0]
            made["timings"] = timings(self._read, first.tokens, first.seconds)
        return made

    def _choice(self, number: int) -> dict[str, Any]:
        found = self._answers[number]
        text, thought, noted = "".join(found.text), "".join(found.thinking), None
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if not text and not found.calls:
            message["content"] = ""
        if thought:
            message["reasoning_content"] = thought
        if found.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in found.calls
            ]
        if found.logprobs or (self._logprobs and not found.calls):  # those of no token, too
            noted = {"content": shown_logprobs(found.logprobs, self._tokenizer)}
        return {
            "index": number,
            "message": message,
            "logprobs": noted,
            "finish_reason": found.done.reason if found.done else None,
        }
