"""Mistral: ``[TOOL_CALLS]`` and a JSON list, or, in later models, name and arguments apart.

[TOOL_CALLS][{"name": "read_file", "arguments": {"path": "app.log"}}]
[TOOL_CALLS]read_file[ARGS]{"path": "app.log"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from .call_pieces import JSON_HEAD
from .toolcalls import (
    CallPrefix,
    Tag,
    ToolCall,
    ToolFormat,
    Tools,
    any_of,
    calls_of,
    heads,
    quoted,
    read_value,
    written,
)

_ID = '", \\"id\\": \\"" /[a-zA-Z0-9]{9}/ "\\""'  # some models give their calls a name


class Mistral(ToolFormat):
    """The Mistral format: a JSON list of calls after a tag, up to the end of the turn."""

    name = "mistral"
    openings = (CallPrefix("[TOOL_CALLS]"),)
    call_head = JSON_HEAD
    reserved = (
        *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        *("[INST]", "[/INST]"),
    )
    example = '[TOOL_CALLS][{"name": <name>, "arguments": <arguments>}]'

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        return [
            f'calls: " "? "[" {self.many("call", quoted(", "))} "]"',
            *call_rules(tools),
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse a JSON list of calls."""
        return calls_of(body)

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"{self.opening}[{', '.join(map(_named, calls))}]"


class MistralArgs(Mistral):
    """The format of later Mistral models: a tag, the name, a tag and the arguments per call."""

    name = "mistral-args"
    inner = ("[ARGS]", "[CALL_ID]", "[TOOL_CALLS]")
    call_head = re.compile(
        r"^\s*(?:\[TOOL_CALLS\])?\s*(.+?)\s*(?:\[CALL_ID\]\w+)?\[ARGS\]\s*(?=\{)", re.DOTALL
    )
    example = "[TOOL_CALLS]<name>[ARGS]<arguments>"
    hints = ("[ARGS]",)
    on_request = True

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        rules = [f"calls: {self.many('call', tag(self.opening))}"]
        rules.append(f"call: {any_of('call', len(tools))}")
        call_id = f"({tag('[CALL_ID]')} /[a-zA-Z0-9]{{9}}/)?"
        for i, tool in enumerate(tools):
            name = quoted(tool["function"]["name"])
            rules.append(f"call_{i}: {name} {call_id} {tag('[ARGS]')} arguments_{i}")
        return rules

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the calls between the tags."""
        calls: list[ToolCall] = []
        while body.strip():
            head, found, rest = body.partition("[ARGS]")
            if not found:
                raise ValueError(f"a tool call needs [ARGS] after its name, not {body[:60]!r}")
            arguments, end = read_value(rest := rest.lstrip())
            name, _, call_id = head.strip().partition("[CALL_ID]")
            if not name or not isinstance(arguments, dict):
                raise ValueError(f"{name}: a tool call needs a name and a JSON object")
            calls.append(ToolCall(name, arguments, f"{head}[ARGS]{rest[:end]}".strip(), id=call_id))
            body = rest[end:].lstrip().removeprefix(self.opening)
        if not calls:
            raise ValueError("the tool call is empty")
        return calls

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "".join(f"{self.opening}{c.name}[ARGS]{c.json_arguments}" for c in calls)


def call_rules(tools: Tools) -> list[str]:
    """Return the rule ``call``: a JSON object that may have an identifier."""
    rules = [f'call_{i}: {head} arguments_{i} ({_ID})? "}}"' for i, head in enumerate(heads(tools))]
    return [f"call: {any_of('call', len(tools))}", *rules]


def _named(call: ToolCall) -> str:
    """Render a call as JSON, with its identifier where it has one."""
    text = written(call)
    return f'{text[:-1]}, "id": {json.dumps(call.id)}}}' if call.id else text
