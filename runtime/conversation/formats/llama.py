"""Llama 3.x: the whole turn is a JSON object, after ``<|python_tag|>`` or without it.

{"name": "read_file", "parameters": {"path": "app.log"}}
"""

from __future__ import annotations

import ast
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
    call_of,
    head_texts,
    heads,
    read_value,
    spelled,
    written,
)

_BUILT_IN = re.compile(r"\s*([A-Za-z_][\w.]*)\.call\((.*)\)\s*", re.DOTALL)


class Llama(ToolFormat):
    """The Llama 3 format: one call per turn, as its template refuses more."""

    name = "llama"
    openings = (
        CallPrefix("<|python_tag|>"),
        CallPrefix('{"name": "', "turn", in_call=True),
        CallPrefix('{"type": "function", "name": "', "turn", in_call=True),
    )
    example = '{"name": <name>, "parameters": <arguments>}'
    single = True
    call_head = JSON_HEAD

    def speaks(self, template: str) -> bool:
        headers = "<|start_header_id|>" in template and '"parameters":' in template
        return self.opening in template or headers

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        count, begun = len(tools), len(self.openings[1].text)
        rules = [f"calls: {any_of('call', count)}"]
        rules += [f"kept_{i}: {any_of('rest', count)}" for i in range(2)]
        rules += ["whole_0: calls", f"whole_1: {any_of('typed', count)}"]
        for i, head in enumerate(head_texts(tools, "parameters")):
            typed = f'{{"type": "function", {head[1:]}'
            rules.append(f'call_{i}: {spelled(head)} arguments_{i} "}}"')
            rules.append(f'typed_{i}: {spelled(typed)} arguments_{i} "}}"')
        for i, head in enumerate(heads(tools, "parameters", begun)):
            rules.append(f'rest_{i}: {head} arguments_{i} "}}"')
        return rules

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse JSON objects, or ``name.call(key="value")`` of the model's built-in tools."""
        if built_in := _BUILT_IN.fullmatch(body):
            return [_built_in(built_in[1], built_in[2], body.strip())]
        calls: list[ToolCall] = []
        at, text = 0, body.strip()
        while True:
            data, end = read_value(text, at, "the tool call is")
            calls.append(call_of(data, text[at:end]))
            rest = text[end:].lstrip()
            if not rest:
                return calls
            if not rest.startswith(";"):
                raise ValueError(f"the tool call is followed by {rest[:40]!r}")
            at = len(text) - len(rest[1:].lstrip())

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(written(call, "parameters") for call in calls)


def _built_in(name: str, arguments: str, text: str) -> ToolCall:
    """Parse a Python call that has only keywords with literal values."""
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        assert isinstance(call, ast.Call)
        values = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords if k.arg}
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise ValueError(f"the tool call {text[:80]!r} cannot be read") from None
    if call.args or len(values) != len(call.keywords):
        raise ValueError(f"the tool call {text[:80]!r} has arguments without a name")
    return ToolCall(name, values, text)
