"""Accumulates the deltas of a streamed reply."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ...arguments import without_surrogates
from ..conversation.formats import FORMATS
from ..conversation.formats.toolcalls import MAX_LEVELS, ToolCall, ToolFormat, is_flat
from ..conversation.reasoning_tags import Thinking
from ..conversation.stop_strings import overlap

MAX_CALLS = 64  # in one answer; a server that sends more is broken

TAGS = Thinking()
"""Tags around thinking at the start of an answer, for servers that do not separate it."""

Mode = Literal["answer", "thinking"]


@dataclass
class Pending:
    """A tool call that is still being received."""

    name: str = ""
    arguments: str = ""
    id: str = ""

    def named(self, name: str) -> bool:
        """Return whether the call has this name already: some servers repeat it in each delta."""
        return len(name) > 1 and name == self.name

    def differs(self, name: object, given: object, *, free: bool = False) -> bool:
        """Return whether a named delta starts another call than this one.

        Args:
            name, given: name and id in the delta.
            free: whether the server does not number calls, so that another name is another call.
        """
        if given and self.id:
            return given != self.id
        if free and not (self.arguments.strip() and name == self.name):
            return True
        return bool(self.name) and _is_object(self.arguments)


@dataclass
class StreamedReply:
    """Accumulated reply of a server.

    Attributes:
        finish: finish reason: ``stop``, ``tool_calls``, ``length``, …; empty until the end.
        content: the answer as received, tagged thinking included, to be sent back.
        usage, timings: the server's own counts, where sent.
        thinks_as: name of the delta field with thinking, where there is one.
    """

    answer: str = ""
    content: str = ""
    thinking: str = ""
    calls: dict[int, Pending] = field(default_factory=dict)
    finish: str = ""
    pieces: int = 0
    as_text: bool = False
    """Whether the server returned calls as plain text, unparsed."""
    held: str = ""
    """Buffered text that may be the beginning of a call in plain text."""
    usage: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    thinks_as: str = ""
    _tagged: bool | None = None  # whether tagged thinking is open; None: no text yet
    _rest: str = ""  # text that is not read yet: it may be a part of a tag
    _seen: list[int] = field(default_factory=list)
    _reassigned: dict[int, int] = field(default_factory=dict)  # of indices that were given twice
    _last: int = 0  # place of the call that the last piece belonged to

    def take(self, chunk: dict[str, Any]) -> list[tuple[Mode, str]]:
        """Add one chunk; return its texts with their modes. Ignore chunks of an unknown form."""
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        if isinstance(chunk.get("timings"), dict):
            self.timings = chunk["timings"]
        choice = _first_choice(chunk.get("choices"))
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        delta = choice.get("delta")
        return self._delta(delta) if isinstance(delta, dict) else []

    def fresh(self) -> str:
        """Return the thinking, answer and call text received since the last call."""
        texts = [self.thinking, self.answer, *(call.arguments for call in self.calls.values())]
        seen = [*self._seen, *[0] * len(texts)]
        new = "".join(text[n:] for text, n in zip(texts, seen, strict=False))
        self._seen = [len(text) for text in texts]
        return new

    def _delta(self, delta: dict[str, Any]) -> list[tuple[Mode, str]]:
        pieces: list[tuple[Mode, str]] = []
        for name in ("reasoning_content", "reasoning"):
            if isinstance(text := delta.get(name), str) and text:
                self.thinking += text
                self.thinks_as = self.thinks_as or name
                pieces.append(("thinking", text))
                break
        content = delta.get("content")
        if text := _thoughts_in(content):
            self.thinking += text
            pieces.append(("thinking", text))
        if text := _text_in(content) or _text_in(delta.get("refusal")):
            self.content += text
            pieces += self._answer_pieces(text)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._call(call)
        self.pieces += bool(pieces or calls or text)
        return pieces

    def _answer_pieces(self, text: str) -> list[tuple[Mode, str]]:
        """Add a piece of the answer, which may begin with thinking in tags."""
        pieces: list[tuple[Mode, str]] = []
        text, self._rest = self._rest + text, ""
        if self._tagged is None:
            head = text.lstrip()
            if TAGS.opening.startswith(head):
                self._rest = text
                return []
            self._tagged = head.startswith(TAGS.opening)
            text = head.removeprefix(TAGS.opening) if self._tagged else text
        if self._tagged:
            thought, closed, text = text.partition(TAGS.closing)
            self._tagged = not closed
            if not closed:
                cut = len(thought) - overlap(thought, TAGS.closing)
                thought, self._rest = thought[:cut], thought[cut:]
            self.thinking += thought
            if thought:
                pieces.append(("thinking", thought))
        if self.thinking and not self.answer:
            text = text.lstrip()
        self.answer += text
        self.held += text
        if text and not _may_be_call(self.answer):
            pieces.append(("answer", self.held))
            self.held = ""
        return pieces

    def _call(self, call: dict[str, Any]) -> None:
        function = call.get("function")
        if not isinstance(function, dict):
            return
        name, given = function.get("name"), call.get("id")
        index = self._index_of(call.get("index"), name, given)
        if index not in self.calls and len(self.calls) >= MAX_CALLS:
            return
        self._last = index
        pending = self.calls.setdefault(index, Pending())
        if isinstance(given, str):
            pending.id = pending.id or given
        if isinstance(name, str) and not pending.named(name):
            pending.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            pending.arguments += arguments
        elif isinstance(arguments, dict):
            pending.arguments = json.dumps(arguments, ensure_ascii=False)

    def _index_of(self, index: object, name: object, given: object) -> int:
        """Return the index of the call that a delta belongs to; create the call if missing."""
        free = max(self.calls, default=-1) + 1
        if not isinstance(index, int):
            # Without a number: a delta without a name continues a call that has begun.
            if not self.calls:
                return free
            known = [n for n, one in self.calls.items() if given and one.id == given]
            found = known[0] if known else self._last
            return free if name and self.calls[found].differs(name, given, free=True) else found
        found = self._reassigned.get(index, index)
        if found in self.calls and name and self.calls[found].differs(name, given):
            found = self._reassigned[index] = free  # another one, as from Ollama
        return found

    def tool_calls(self) -> list[ToolCall]:
        """Return the calls in order; one that cannot be parsed has a `problem`."""
        return [_read(self.calls[index]) for index in sorted(self.calls)]

    def end(self) -> None:
        """Release text that was buffered for an incomplete tag."""
        rest, self._rest = self._rest, ""
        if self._tagged:
            self.thinking += rest
        else:
            self.answer += rest
            self.held += rest

    def read_text(self) -> str:
        """Parse calls in plain text once the reply has ended; return text not released yet.

        Only an answer that is nothing but calls counts: one that quotes a call calls nothing.
        """
        held, self.held = self.held, ""
        found = [] if self.calls or not held else _calls_in(self.answer.strip())
        if not found:
            return held
        for call in found:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            self.calls[len(self.calls)] = Pending(call.name, arguments)
        self.content = self.content[: len(self.content) - len(self.answer)]
        self.as_text, self.answer = True, ""
        self.finish = "tool_calls" if self.finish == "stop" else self.finish
        return ""


def _first_choice(choices: object) -> dict[str, Any]:
    """Return choice 0, wherever it is in the list; empty where it is missing."""
    for one in choices if isinstance(choices, list) else ():
        if isinstance(one, dict) and one.get("index") in (0, None):
            return one
    return {}


def _text_in(content: object) -> str:
    """Return the text in a delta's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [one.get("text") for one in parts if isinstance(one, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _thoughts_in(content: object) -> str:
    """Return the thinking in a list of parts, as Mistral's models send it."""
    parts = content if isinstance(content, list) else ()
    return "".join(_text_in(one.get("thinking")) for one in parts if isinstance(one, dict))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _may_be_call(text: str) -> bool:
    """Return whether a text may still become a call in one of the known formats."""
    text = text.lstrip()
    return any(text.startswith(tag) or tag.startswith(text) for _, tag in _tags())


def _tags() -> Iterator[tuple[ToolFormat, str]]:
    """Return the tags that open a call, and their formats."""
    for form in FORMATS.values():
        for opening in form.openings:
            if not opening.in_call:
                yield form, opening.text


def _calls_in(text: str) -> list[ToolCall]:
    """Parse the calls that a text consists of; none when it holds anything else."""
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
    if not is_flat(arguments):
        problem = f"the arguments of {pending.name} are nested more than {MAX_LEVELS} deep"
        return ToolCall(pending.name, {}, text, problem)
    return ToolCall(pending.name, arguments, text)


def sendable(call: ToolCall) -> str:
    """Return a call's arguments as JSON that every server can parse.

    They are the model's own bytes where possible, for the server's prefix cache. But Python parses
    more than JSON: NaN, a huge number or a lone surrogate would be an error on the server, in each
    later request.
    """
    if call.problem:
        return "{}"
    try:
        json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return without_surrogates(json.dumps(_finite(call.arguments), ensure_ascii=False))
    return call.text


def _finite(value: object) -> object:
    """Replace numbers that JSON lacks by strings, recursively."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
