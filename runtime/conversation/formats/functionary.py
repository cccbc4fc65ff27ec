"""Functionary 3.1: a tag that holds the name, and a JSON object.

<function=read_file>{"path": "app.log"}</function>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .toolcalls import (
    CallPrefix,
    Tag,
    ToolCall,
    ToolFormat,
    Tools,
    any_of,
    quoted,
    read_value,
)

_HEAD = re.compile(r"\s*(?:<function=)?([^>\s]+)>\s*")
_END = re.compile(r"\s*</function>\s*")


class Functionary(ToolFormat):
    """The Functionary 3.1 format: calls one after another, up to the end of the turn.

    The tag that ends a call is no `closing`: it has no token, and the text of an argument may hold
    its letters. The JSON object itself determines where it ends.
    """

    name = "functionary"
    openings = (CallPrefix("<function="),)
    call_head = re.compile(r"(?:^(?!</)|<function=)\s*([^>]+)>\s*(?=\{)")
    example = "<function=NAME><arguments></function>"
    hints = ("</function>",)
    on_request = True

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        rules = [f"calls: {self.many('call', tag(self.opening))}"]
        rules.append(f'call: {any_of("call", len(tools))} "</function>"')
        for i, tool in enumerate(tools):
            rules.append(f"call_{i}: {quoted(tool['function']['name'] + '>')} arguments_{i}")
        return rules

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the calls of a text whose first opening tag is already removed."""
        calls: list[ToolCall] = []
        at = 0
        while not calls or body[at:].strip():
            head = _HEAD.match(body, at)
            if head is None:
                raise ValueError(f"a tool call must be <function=…>{{…}}, not {body[at:][:60]!r}")
            arguments, end = read_value(body, head.end())
            done = _END.match(body, end)
            if done is None or not isinstance(arguments, dict):
                raise ValueError(f"{head[1]}: a tool call must be a JSON object and </function>")
            text = body[head.start() : done.end()].strip()
            calls.append(ToolCall(head[1], arguments, text))
            at = done.end()
        return calls

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "".join(f"<function={c.name}>{c.json_arguments}</function>" for c in calls)
