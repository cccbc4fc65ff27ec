"""A JSON list of all calls between two tags: Apriel, MiniMax M1 and Nemotron Nano.

<tool_calls>[{"name": "read_file", "arguments": {"path": "app.log"}}]</tool_calls>
<TOOLCALL>[{"name": "read_file", "arguments": {"path": "app.log"}}]</TOOLCALL>

MiniMax M1 writes an object a line in place of the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from .json_text import JsonText
from .mistral import call_rules
from .toolcalls import CallPrefix, Tag, ToolCall, Tools, quoted, written


class Listed(JsonText):
    """The Apriel format, base of others: all calls of a turn as a JSON list between tags."""

    name = "tool_calls"
    openings = (CallPrefix("<tool_calls>"),)
    closing = "</tool_calls>"
    around = ("[", ", ", "]")
    """The text before, between and after the calls."""
    example = '<tool_calls>[{"name": <name>, "arguments": <arguments>}]</tool_calls>'

    def speaks(self, template: str) -> bool:
        return self.opening in template

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        begin, between, finish = map(quoted, self.around)
        calls = f"calls: {begin} {self.many('call', between)} {finish} {tag(self.closing)}"
        return [calls, *call_rules(tools)]

    def render(self, calls: Sequence[ToolCall]) -> str:
        begin, between, finish = self.around
        return f"{self.opening}{begin}{between.join(map(written, calls))}{finish}{self.closing}"


class MiniMaxM1(Listed):
    """The MiniMax M1 format: one JSON object per line between the tags."""

    name = "minimax-m1"
    around = ("\n", "\n", "\n")
    example = '<tool_calls>\n{"name": <name>, "arguments": <arguments>}\n</tool_calls>'
    on_request = True


class Nemotron(Listed):
    """The Nemotron Nano format: a JSON list of calls between its tags."""

    name = "nemotron"
    openings = (CallPrefix("<TOOLCALL>"),)
    closing = "</TOOLCALL>"
    example = '<TOOLCALL>[{"name": <name>, "arguments": <arguments>}]</TOOLCALL>'
