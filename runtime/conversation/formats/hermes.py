"""Hermes, Qwen and many others: a JSON object between tags.

<tool_call>
{"name": "read_file", "arguments": {"path": "app.log"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Sequence

from .toolcalls import (
    CallPrefix,
    JsonFormat,
    Tag,
    ToolCall,
    Tools,
    any_of,
    call_of,
    heads,
    read_json,
    written,
)


class Hermes(JsonFormat):
    """The Hermes format: each call a JSON object in ``<tool_call>`` tags, one per line."""

    name = "hermes"
    openings = (CallPrefix("<tool_call>"),)
    closing = "</tool_call>"
    reserved = ("<tool_response>", "</tool_response>")
    example = '<tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call>'

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        more = self.many("call", f'"\\n" {tag(self.opening)}')
        return [
            f'calls: {more} "\\n"?',  # some templates break the line before the turn ends
            f'call: "\\n" {any_of("call", len(tools))} "\\n" {tag(self.closing)}',
            *(f'call_{i}: {head} arguments_{i} "}}"' for i, head in enumerate(heads(tools))),
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the JSON object between the tags."""
        return [call_of(read_json(body), body)]

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"{self.opening}\n{written(c)}\n{self.closing}" for c in calls)
