"""Granite 3: ``<|tool_call|>`` and a JSON list, up to the end of the turn.

<|tool_call|>[{"name": "read_file", "arguments": {"path": "app.log"}}]
"""

from __future__ import annotations

from collections.abc import Sequence

from .mistral import Mistral
from .toolcalls import CallPrefix, ToolCall, written


class Granite(Mistral):
    """The Granite 3 format: a JSON list of calls after the tag ``<|tool_call|>``."""

    name = "granite"
    openings = (CallPrefix("<|tool_call|>"),)
    reserved = ("<|start_of_role|>", "<|end_of_role|>")
    example = '<|tool_call|>[{"name": <name>, "arguments": <arguments>}]'

    def speaks(self, template: str) -> bool:
        roles = "<|start_of_role|>" in template and "available_tools" in template
        return self.opening in template or roles

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"{self.opening}[{', '.join(map(written, calls))}]"
