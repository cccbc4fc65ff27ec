"""Phi-4: a JSON list between tags; some fine-tunes write it after the word ``functools``.

<|tool_call|>[{"name": "read_file", "arguments": {"path": "app.log"}}]<|/tool_call|>
functools[{"name": "read_file", "arguments": {"path": "app.log"}}]
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
    calls_of,
    heads,
    quoted,
    written,
)


class Phi(JsonFormat):
    """The Phi-4 format: a JSON list of calls, or one call, between two tags."""

    name = "phi"
    openings = (CallPrefix("<|tool_call|>"), CallPrefix("functools[", "turn", in_call=True))
    closing = "<|/tool_call|>"
    reserved = ("<|tool|>", "<|/tool|>", "<|tool_response|>")
    example = '<|tool_call|>[{"name": <name>, "arguments": <arguments>}]<|/tool_call|>'

    def speaks(self, template: str) -> bool:
        return self.closing in template or "<|/tool|>" in template

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        list_ = f'{self.many("call", quoted(", "))} "]"'
        return [
            f'calls: (call | "[" {list_}) {tag(self.closing)}',
            f"kept_0: {list_}",
            f'whole_0: "functools[" {list_}',
            f"call: {any_of('call', len(tools))}",
            *(f'call_{i}: {head} arguments_{i} "}}"' for i, head in enumerate(heads(tools))),
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse a JSON list of calls, or a single call."""
        return calls_of(body.strip().removeprefix("functools"))

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"{self.opening}[{', '.join(map(written, calls))}]{self.closing}"
