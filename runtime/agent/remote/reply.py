"""Puts the pieces of a streamed answer together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ...conversation.formats import FORMATS
from ...conversation.toolcalls import ToolCall, ToolFormat

MAX_CALLS = 64  # in one answer; a server that sends more is broken

Mode = Literal["answer", "thinking"]


@dataclass
class Pending:
    """A tool call while it comes in."""

    name: str = ""
    arguments: str = ""
    id: str = ""


@dataclass
class StreamedReply:
    """What a server has said so far.

    Attributes:
        finish: why it ended: ``stop``, ``tool_calls``, ``length``, …; empty while it goes on.
        done: the stream said itself that it is over.
        usage, timings: what the server counted, where it says so.
    """

    answer: str = ""
    thinking: str = ""
    calls: dict[int, Pending] = field(default_factory=dict)
    finish: str = ""
    done: bool = False
    pieces: int = 0
    as_text: bool = False
    """Whether the server passed the calls on as the text that the model wrote."""
    held: str = ""
    """Text that may be the beginning of such a call, so that it is not shown yet."""
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    _seen: list[int] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)  # of indices that were given twice

    def take(self, chunk: dict[str, Any]) -> list[tuple[Mode, str]]:
        """Take one chunk in; gives the text in it. What has an unknown form is passed over."""
        self.done = self.done or chunk.get("done") is True
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        if isinstance(chunk.get("timings"), dict):
            self.timings = chunk["timings"]
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return []
        choice = choices[0]
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        delta = choice.get("delta")
        return self._delta(delta) if isinstance(delta, dict) else []

    def fresh(self) -> str:
        """What was written since the last time that this was asked, in thinking, answer or call."""
        texts = [self.thinking, self.answer, *(call.arguments for call in self.calls.values())]
        seen = [*self._seen, *[0] * len(texts)]
        new = "".join(text[n:] for text, n in zip(texts, seen, strict=False))
        self._seen = [len(text) for text in texts]
        return new

    def _delta(self, delta: dict[str, Any]) -> list[tuple[Mode, str]]:
        said: list[tuple[Mode, str]] = []
        for name in ("reasoning_content", "reasoning"):
            if isinstance(text := delta.get(name), str) and text:
                self.thinking += text
                said.append(("thinking", text))
                break
        if isinstance(text := delta.get("content"), str) and text:
            self.answer += text
            self.held += text
            if not _may_be_call(self.answer):
                said.append(("answer", self.held))
                self.held = ""
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)
        self.pieces += bool(said or calls or text)
        return said

    def _call(self, call: dict[str, Any]) -> None:
        function = call.get("function")
        if not isinstance(function, dict):
            return
        index = call.get("index")
        if not isinstance(index, int):  # some servers send each call whole, without a number
            index = len(self.calls)
        name, given = function.get("name"), call.get("id")
        place = self._places.get(index, index)
        if place in self.calls and name and given and self.calls[place].id not in ("", given):
            place = self._places[index] = max(self.calls) + 1  # another one, as from Ollama
        if place not in self.calls and len(self.calls) >= MAX_CALLS:
            return
        pending = self.calls.setdefault(place, Pending())
        if isinstance(given, str):
            pending.id = pending.id or given
        if isinstance(name, str):
            pending.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            pending.arguments += arguments
        elif isinstance(arguments, dict):
            pending.arguments = json.dumps(arguments, ensure_ascii=False)

    def tool_calls(self) -> list[ToolCall]:
        """The calls in order. One that cannot be read says so, and must not run."""
        return [_read(self.calls[index]) for index in sorted(self.calls)]

    def read_text(self) -> str:
        """At the end: take calls that came as text for what they are; gives text not shown yet.

        Only an answer that is nothing but calls counts: one that quotes a call calls nothing.
        """
        held, self.held = self.held, ""
        found = [] if self.calls or not held else _calls_in(self.answer.strip())
        if not found:
            return held
        for call in found:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            self.calls[len(self.calls)] = Pending(call.name, arguments)
        self.as_text, self.answer = True, ""
        self.finish = "tool_calls" if self.finish == "stop" else self.finish
        return ""


def _may_be_call(text: str) -> bool:
    """Whether a text may still turn out to be a call in one of the known formats."""
    text = text.lstrip()
    return any(text.startswith(tag) or tag.startswith(text) for _, tag in _tags())


def _tags() -> Iterator[tuple[ToolFormat, str]]:
    """The tags that open a call, and whose they are."""
    for form in FORMATS.values():
        for opening in form.openings:
            if not opening.kept:
                yield form, opening.text


def _calls_in(text: str) -> list[ToolCall]:
    """The calls that a text is made of; none when it is anything else too."""
    for form, tag in _tags():
        calls: list[ToolCall] = []
        rest = text
        while rest.startswith(tag):
            body, end, rest = rest[len(tag) :].partition(form.closing or "\0")
            rest = rest.lstrip()
            try:
                calls += form.parse(body)
            except ValueError:
                break
            if form.closing and not end:
                break
        else:
            if calls and not rest:
                return calls
    return []


def _read(pending: Pending) -> ToolCall:
    text = pending.arguments.strip() or "{}"
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = f"the arguments of {pending.name} are not JSON: {error}"
        return ToolCall(pending.name, {}, text, problem)
    if not isinstance(arguments, dict):
        problem = f"the arguments of {pending.name} must be a JSON object"
        return ToolCall(pending.name, {}, text, problem)
    return ToolCall(pending.name, arguments, text)
