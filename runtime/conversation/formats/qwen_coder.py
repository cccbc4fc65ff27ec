"""Qwen3-Coder: arguments as text between tags of their own.

<tool_call>
<function=read_file>
<parameter=path>
app.log
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..toolcalls import CallPrefix, Tag, ToolCall, any_of, quoted
from .tagged import Tagged, in_a_row, plain, typed

_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\n?(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)
_LOOSE = re.compile(
    r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)


class QwenCoder(Tagged):
    """One function between two tags, each of its arguments on lines of its own."""

    name = "qwen3-coder"
    openings = (CallPrefix("<tool_call>"),)
    closing = "</tool_call>"
    reserved = ("<tool_response>", "</tool_response>")
    example = (
        "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nvalue\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    asked = True
    end = "\n</parameter>\n"
    python_words = True
    begun = re.compile(r"<parameter=[^>\n]+>\n")
    names = re.compile(r"[^>\n]+")

    def speaks(self, template: str) -> bool:
        """See `ToolFormat.speaks`."""
        return self.opening in template and "<function=" in template

    def head(self, name: str) -> str:
        """See `Tagged.head`."""
        return quoted(f"<function={name}>\n")

    def key(self, name: str, tag: Tag) -> str:
        """See `Tagged.key`."""
        return quoted(f"<parameter={name}>\n")

    def grammar(
        self, tools: Sequence[Mapping[str, Any]], tag: Tag, lenient: Container[str] = ()
    ) -> str:
        """See `ToolFormat.grammar`."""
        more = self.many("call", f'"\\n" {tag(self.opening)}')
        rules = [
            f'calls: {more} "\\n"?',  # as Nemotron's template does before the turn ends
            f'call: "\\n" {any_of("call", len(tools))} "</function>\\n" {tag(self.closing)}',
        ]
        return "\n".join([*rules, *self.call_rules(tools, tag, lenient)])

    def parse(self, body: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[ToolCall]:
        """The function and its parameters, by the types that its schema gives them."""
        match = _FUNCTION.fullmatch(body)
        if match is None:
            raise ValueError(f"a tool call must be <function=…>…</function>, not {body[:60]!r}")
        name, inside = match.groups()
        for pattern in (_PARAMETER, _LOOSE):  # as the grammar writes it, or nearly so
            found, end = in_a_row(pattern, inside)
            if not inside[end:].strip():
                return [ToolCall(name, typed(found, name, tools), body.strip())]
        raise ValueError(f"{name}: a tool call's parameters are malformed: {inside[:60]!r}")

    def render(self, calls: Sequence[ToolCall]) -> str:
        """See `ToolFormat.render`."""
        texts = []
        for call in calls:
            lines = [self.opening, f"<function={call.name}>"]
            for key, value in call.arguments.items():
                lines += [f"<parameter={key}>", plain(value), "</parameter>"]
            texts.append("\n".join([*lines, "</function>", self.closing]))
        return "\n".join(texts)
