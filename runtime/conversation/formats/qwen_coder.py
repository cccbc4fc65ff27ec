"""Qwen3-Coder: arguments as plain text between tags.

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
from collections.abc import Sequence

from .tagged import Tagged, in_a_row, typed
from .toolcalls import CallPrefix, Tag, ToolCall, Tools, any_of

_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\n?(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)
_LOOSE = re.compile(
    r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)


class QwenCoder(Tagged):
    """The Qwen3-Coder format: one call per pair of tags, each argument on lines of its own."""

    name = "qwen3-coder"
    openings = (CallPrefix("<tool_call>"),)
    closing = "</tool_call>"
    hints = ("<function=",)
    reserved = ("<tool_response>", "</tool_response>")
    example = (
        "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nvalue\n</parameter>\n</function>\n"
        "</tool_call>"
    )
    on_request = True
    head_text, key_text = "<function={}>\n", "<parameter={}>\n"
    end, foot = "\n</parameter>\n", "</function>\n"
    python_words = True
    begun = re.compile(r"<parameter=[^>\n]+>\n")
    names = re.compile(r"[^>\n]+")

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        more = self.many("call", f'"\\n" {tag(self.opening)}')
        return [
            f'calls: {more} "\\n"?',  # as Nemotron's template does before the turn ends
            f'call: "\\n" {any_of("call", len(tools))} "</function>\\n" {tag(self.closing)}',
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the call between the tags; arguments get the types of the tool's schema."""
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
        return "\n".join(f"{self.opening}\n{self.written(c)}{self.closing}" for c in calls)
