"""Qwen3-Coder: arguments as text between tags of their own, so that code needs no quoting.

<tool_call>
<function=read_file>
<parameter=path>
app.log
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..toolcalls import (
    Opening,
    Tag,
    ToolCall,
    ToolFormat,
    any_of,
    json_rule,
    letters_of,
    quoted,
    read_json,
    strict,
)

_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\n?(.*?)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)
_LOOSE = re.compile(
    r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)
_END = "\n</parameter>\n"
_ANY = letters_of({})


class QwenCoder(ToolFormat):
    """A text's value stands as it is; any other value is JSON."""

    name = "qwen3-coder"
    openings = (Opening("<tool_call>"),)
    closing = "</tool_call>"
    reserved = ("<tool_response>", "</tool_response>")
    example = (
        "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nvalue\n</parameter>\n</function>\n"
        "</tool_call>"
    )

    def speaks(self, template: str) -> bool:
        """See `ToolFormat.speaks`."""
        return self.opening in template and "<function=" in template

    def grammar(
        self, tools: Sequence[Mapping[str, Any]], tag: Tag, lenient: Container[str] = ()
    ) -> str:
        """See `ToolFormat.grammar`."""
        more = self.many("call", f'"\\n" {tag(self.opening)}')
        rules = [
            f"calls: {more}",
            f'call: "\\n" {any_of("call", len(tools))} "</function>\\n" {tag(self.closing)}',
            # As long as the text does not go on with the tag that ends it.
            f"text_value[lazy]: {_ANY} {quoted(_END)}",
        ]
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = strict(function.get("parameters") or {})
            required = schema.get("required", ())
            parts = []
            for j, (name, value) in enumerate(schema.get("properties", {}).items()):
                optional = "" if name in required else "?"
                parts.append(f"({quoted(f'<parameter={name}>' + chr(10))} value_{i}_{j}){optional}")
                value = {**value, "$defs": schema["$defs"]} if "$defs" in schema else value
                loose = function["name"] in lenient
                expression = _value(value, loose)
                if expression == "text_value" and (letters := letters_of(value, loose)) != _ANY:
                    expression = f"text_{i}_{j}"
                    rules.append(f"{expression}[lazy]: {letters} {quoted(_END)}")
                rules.append(f"value_{i}_{j}: {expression}")
            head = quoted(f"<function={function['name']}>\n")
            rules.append(f"call_{i}: {' '.join([head, *parts])}")
        return "\n".join(rules)

    def parse(self, body: str, tools: Sequence[Mapping[str, Any]] = ()) -> list[ToolCall]:
        """The function and its parameters, by the types that its schema gives them."""
        match = _FUNCTION.fullmatch(body)
        if match is None:
            raise ValueError(f"a tool call must be <function=…>…</function>, not {body[:60]!r}")
        name, inside = match.groups()
        schemas = {tool["function"]["name"]: tool["function"] for tool in tools}
        schema = schemas.get(name, {}).get("parameters") or {}
        found = _in_a_row(_PARAMETER, inside)
        if found is None:  # not as the grammar writes it
            found = _in_a_row(_LOOSE, inside)
        if found is None:
            raise ValueError(f"{name}: a tool call's parameters are malformed: {inside[:60]!r}")
        arguments: dict[str, Any] = {}
        for key, text in found:
            value = schema.get("properties", {}).get(key, {})
            arguments[key] = text if _is_text(value) else _read(text)
        return [ToolCall(name, arguments, body.strip())]

    def render(self, calls: Sequence[ToolCall]) -> str:
        """See `ToolFormat.render`."""
        texts = []
        for call in calls:
            lines = [self.opening, f"<function={call.name}>"]
            for key, value in call.arguments.items():
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                lines += [f"<parameter={key}>", text, "</parameter>"]
            texts.append("\n".join([*lines, "</function>", self.closing]))
        return "\n".join(texts)


def _in_a_row(pattern: re.Pattern[str], text: str) -> list[tuple[str, str]] | None:
    """Key and text of each parameter; None where there is anything else in the text."""
    at, found = 0, []
    while match := pattern.match(text, at):
        found.append((match[1], match[2]))
        at = match.end()
    return None if text[at:].strip() else found


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a value may be any text: then its letters are the value."""
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return all(isinstance(v, str) for v in schema.get("enum", [schema.get("const")]))
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        return True
    return any(map(_is_text, schema.get("anyOf", ())))


def _value(schema: Mapping[str, Any], lenient: bool) -> str:
    """A grammar's expression of a value, the tag after it included."""
    if not _is_text(schema):
        return f"({json_rule(schema, lenient)}) {quoted(_END)}"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"({' | '.join(map(quoted, values))}) {quoted(_END)}"
    return "text_value"


def _read(text: str) -> Any:
    """A value that is not a text; what is no JSON stays text, and validation says so."""
    try:
        return read_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)
