"""The messages of a conversation, and their conversion for chat templates, texts as marks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..tokens.segments import Marks, Origin
from .formats.toolcalls import ToolCall, ToolFormat

Role = Literal["system", "user", "assistant", "tool"]

_PLAIN_NAME = re.compile(r"[\w.-]*")
_ORIGINS: dict[str, Origin] = {
    "system": "system",
    "user": "user",
    "tool": "tool_result",
    "assistant": "model",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str = ""
    """For an assistant: everything it generated, calls and thinking included."""
    name: str = ""
    """Of a tool result: the name of the tool."""
    call_id: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Of an assistant: its calls, for templates that take them as `tool_calls`."""
    text: str | None = None
    """Of an assistant: its text without the calls; None: the whole content."""
    thinking: str = ""
    """Of an assistant: its thinking before the text."""
    seen: dict[str, str] = field(default_factory=dict, compare=False)
    """Of a tool result: the files that it showed or changed, as `tools.seen` records them."""
    by: Literal["", "harness"] = ""
    """``harness``: written by the runtime, not by the user or the model."""

    @property
    def origin(self) -> Origin:
        """Return the origin of the content; a tool result is one even if the harness called."""
        if self.by and self.role != "tool":
            return "harness"
        return _ORIGINS[self.role]


def shown_to_template(
    message: Message, index: int, marks: Marks, *, calls: bool = False
) -> dict[str, Any]:
    """Convert a message for the template, its content a mark; `calls` includes its calls."""
    content = message.content
    if message.role == "assistant":
        # Already in the session: only its place matters, so something of it is always marked. With
        # calls that is in the last of them: the text may be before them or after results.
        if not calls or not message.calls:
            return {"role": "assistant", "content": marks.put(content, "model", index)}
        placed = [replace(c, arguments={**c.arguments, "end": "x"}) for c in message.calls]
        shown = [call_shown(call, index, marks) for call in placed]
        return {"role": "assistant", "content": "", "tool_calls": shown}
    mark = marks.put(content, message.origin, index) if content else ""
    shown = {"role": message.role, "content": mark}
    if message.role == "tool":
        shown |= {"name": message.name, "tool_call_id": message.call_id}
    return shown


def parts_of(thought: str, text: str) -> list[dict[str, str]]:
    """Return a message content of two parts: thinking, and text if there is any."""
    parts = [{"type": "thinking", "thinking": thought}]
    return [*parts, {"type": "text", "text": text}] if text else parts


def whole_answer(
    message: Message, index: int, marks: Marks, form: ToolFormat | None, *, in_parts: bool = False
) -> dict[str, Any]:
    """Convert an assistant's message for the template in full: text, thinking and calls.

    Args:
        message: of an assistant.
        index: its index in the conversation.
        marks: where its texts are stored.
        form: how its calls are written into the text; None for a template that writes them.
        in_parts: whether a thought is a part of its content, and has no field of its own.
    """
    text = message.content if message.text is None else message.text
    shown: dict[str, Any] = {"role": "assistant", "content": ""}
    if text:
        shown["content"] = marks.put(text, message.origin, index)
    thought = marks.put(message.thinking, "model", index) if message.thinking else ""
    if thought and not in_parts:
        shown["reasoning_content"] = thought
    if message.calls and form is None:
        calls = message.calls
        shown["tool_calls"] = [call_shown(call, index, marks, message.origin) for call in calls]
    elif message.calls and form is not None:
        marked = [
            replace(
                call,
                name=_marked_name(call.name, index, marks, message.origin),
                arguments=_marked(call.arguments, index, marks, message.origin),
            )
            for call in message.calls
        ]
        shown["content"] += ("\n" if text else "") + form.render(marked)
    if thought and in_parts:
        shown["content"] = parts_of(thought, shown["content"])
    return shown


def call_shown(
    call: ToolCall, index: int, marks: Marks, origin: Origin = "model"
) -> dict[str, Any]:
    """Convert a call for the template, with a mark for each text in its arguments."""
    name = _marked_name(call.name, index, marks, origin)
    function = {"name": name, "arguments": _marked(call.arguments, index, marks, origin)}
    return {"type": "function", "id": call.id, "function": function}


def _marked(value: Any, index: int, marks: Marks, origin: Origin) -> Any:
    if isinstance(value, str):
        return marks.put(value, origin, index)
    if isinstance(value, Mapping):
        return {
            _marked_name(key, index, marks, origin): _marked(item, index, marks, origin)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_marked(item, index, marks, origin) for item in value]
    return value


def _marked_name(name: str, index: int, marks: Marks, origin: Origin) -> str:
    """Return a name, as a mark only where it may contain a control token."""
    return name if _PLAIN_NAME.fullmatch(name) else marks.put(name, origin, index)


def results_as_user(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert tool results to user messages, for a template without tools.

    Results of one turn make one message: such templates want user and assistant in turns.
    """
    out: list[dict[str, Any]] = []
    before = ""
    for message in shown:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            if before == "tool":
                out[-1]["content"] += "\n" + text
            else:
                out.append({"role": "user", "content": text})
        else:
            out.append(message)
        before = message["role"]
    return out


def results_in_calls(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move tool results into the calling message, as early Gemma 4 templates need."""
    out: list[dict[str, Any]] = []
    for message in shown:
        if message["role"] == "tool" and out and out[-1].get("tool_calls"):
            result = {"name": message["name"], "response": message["content"]}
            given = out[-1].get("tool_responses", [])
            out[-1] = {**out[-1], "tool_responses": [*given, result]}
        else:
            out.append(message)
    return out
