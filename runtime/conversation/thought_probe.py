"""Probes how a template renders thinking in the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from secrets import token_hex
from typing import Any

from ...errors import TemplateError
from ..tokens.segments import Marks
from .formats.toolcalls import ToolCall
from .messages import call_shown, parts_of
from .reasoning_tags import Thinking

_QUESTION = {"role": "user", "content": "What-of-zyzzyva?"}
_NEXT = {"role": "user", "content": "And?"}
_ANSWER = "It-is-zyzzyva."


class ThoughtProbe:
    """Renders conversations with thinking to see what a template keeps of it.

    A template that reads a thinking field is probed through it, any other by tags in the text.

    Args:
        render: renders the template with the tools and options of its conversation.
        tags: around thinking.
        call: an example call.
        calls: whether the template writes calls; None where it has no tools.
    """

    def __init__(
        self,
        render: Callable[[Sequence[Mapping[str, Any]]], str],
        tags: Thinking,
        call: ToolCall,
        calls: bool | None,
    ) -> None:
        self._render, self._tags, self._calls = render, tags, calls
        self._called = [call_shown(call, 1, Marks())]
        self._result = {
            "role": "tool",
            "name": call.name,
            "tool_call_id": call.id,
            "content": "x",
        }

    @cached_property
    def keeps(self) -> dict[bool, bool]:
        """Map whether thinking precedes the last question to whether it stays in the history."""
        shown = {old: self._shows_field(old) for old in (False, True)}
        return shown if any(shown.values()) else {old: self._shows_tags(old) for old in shown}

    @cached_property
    def in_parts(self) -> bool:
        """Return whether the template takes a thought as a content part, as Mistral's do."""
        word = token_hex(8)
        answer = {"role": "assistant", "content": parts_of(word, _ANSWER)}
        try:
            shown = self._render([_QUESTION, answer, _NEXT])
        except TemplateError:
            return False
        return f"{self._tags.opening}{word}{self._tags.closing}" in shown

    def left(self) -> str:
        """Return what the template leaves in place of a dropped thought."""
        answer = {"role": "assistant", "content": _ANSWER, "reasoning_content": "x"}
        try:
            old, now = self._render([_QUESTION, answer, _NEXT]), self._render([_QUESTION])
        except TemplateError:
            return ""
        head = now.rpartition(_QUESTION["content"])[2]
        if self._tags.opened_by(head):
            head = head[: head.rindex(self._tags.opening)]
        before, found, _ = old.rpartition(_ANSWER)
        before = before.rpartition(_QUESTION["content"])[2]
        return before[len(head) :] if found and before.startswith(head) else ""

    def _shows_field(self, old: bool) -> bool:
        word = token_hex(8)
        answer: dict[str, Any] = {
            "role": "assistant",
            "content": _ANSWER,
            "reasoning_content": word,
        }
        if not old:  # within a turn nothing but a call can follow
            answer |= {"content": "", "tool_calls": self._called}
        try:
            return word in self._render([_QUESTION, answer, _NEXT if old else self._result])
        except TemplateError:
            return False

    def _shows_tags(self, old: bool) -> bool:
        word, tags = token_hex(8), self._tags
        text = f"{tags.opening}\n{word}\n{tags.closing}\n\n{_ANSWER}"
        answer: dict[str, Any] = {"role": "assistant", "content": text}
        if not old and self._calls:
            answer["tool_calls"] = self._called
        then = _NEXT if old or self._calls is None else self._result
        try:
            return word in self._render([_QUESTION, answer, then])
        except TemplateError:
            return True
