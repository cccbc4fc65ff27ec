"""How a model writes its tool calls, and how its output is read.

A `ToolFormat` is one such way: the tags around a call, the grammar of what stands between them,
and how that is read back. `FORMATS` holds the known ones; `register` adds another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

MAX_CALLS = 16  # in one turn; a model that goes on past that is lost in a loop
MAX_INTEGER = 2**53 - 1  # larger ones are not exact in JSON everywhere

JSON_STYLE = {
    # What json.dumps writes and models were trained on.
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    # No \uXXXX: half of a surrogate pair would be text that no file name or encoder takes.
    "json_allowed_escapes": 'nrbtf\\"',
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wrote: well-formed, not yet validated against the tool."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    """As the model wrote it, tags excluded."""
    problem: str = ""
    """Why it cannot be read, where no grammar held the model; such a call must not run."""

    @property
    def key(self) -> str:
        """The same for two calls that say the same."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


class ToolFormat(Protocol):
    """A way to write tool calls."""

    name: str
    opening: str
    """Text that begins a call; from there on the grammar holds."""
    closing: str
    """Text that ends one call."""
    reserved: tuple[str, ...]
    """Further tags that are not the model's to write."""

    def grammar(
        self,
        tools: Sequence[Mapping[str, Any]],
        tag: Callable[[str], str],
        lenient: Container[str] = (),
    ) -> str:
        """Lark rules of which ``calls`` is everything after the first opening tag.

        Args:
            tools: OpenAI-style schemas.
            tag: gives the grammar's word for a tag.
            lenient: names of the tools whose schemas hold what a grammar cannot express.
        """
        ...

    def parse(self, body: str) -> ToolCall:
        """The call between the tags.

        Raises:
            ValueError: it is not well-formed; says why.
        """
        ...


class Hermes:
    """``<tool_call>`` around a JSON object, as Hermes, Qwen and many others write it.

    <tool_call>
    {"name": "read_file", "arguments": {"path": "app.log"}}
    </tool_call>
    """

    name = "hermes"
    opening = "<tool_call>"
    closing = "</tool_call>"
    reserved: tuple[str, ...] = ("<tool_response>", "</tool_response>")

    def grammar(
        self,
        tools: Sequence[Mapping[str, Any]],
        tag: Callable[[str], str],
        lenient: Container[str] = (),
    ) -> str:
        """One line of JSON a call; several calls stand on lines of their own."""
        functions = [tool["function"] for tool in tools]
        more = f'("\\n" {tag(self.opening)} call){{0,{MAX_CALLS - 1}}}'
        names = " | ".join(f"call_{i}" for i in range(len(functions)))
        rules = [f"calls: call {more}", f'call: "\\n" ({names}) "\\n" {tag(self.closing)}']
        for i, function in enumerate(functions):
            head = json.dumps({"name": function["name"]}, ensure_ascii=False)[:-1]
            head = json.dumps(head + ', "arguments": ', ensure_ascii=False)
            style = {**JSON_STYLE, "lenient": function["name"] in lenient}
            drop = _HARD if function["name"] in lenient else frozenset()
            schema = strict(function.get("parameters") or {"type": "object"}, drop)
            schema = json.dumps({**schema, "x-guidance": style}, ensure_ascii=False)
            rules.append(f'call_{i}: {head} %json {schema} "}}"')
        return "\n".join(rules)

    def parse(self, body: str) -> ToolCall:
        """The JSON object between the tags."""
        try:
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the tool call is not JSON: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ValueError('a tool call must be {"name": …, "arguments": {…}}')
        arguments = data.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ValueError(f"{data['name']}: the arguments must be a JSON object")
        return ToolCall(data["name"], arguments, body.strip())


FORMATS: dict[str, ToolFormat] = {}
"""Known formats by name."""


def register(form: ToolFormat) -> None:
    """Make a format known; one of the same name is replaced."""
    FORMATS[form.name] = form


register(Hermes())


def format_of(template: str) -> ToolFormat | None:
    """The format that a chat template speaks of; None when it names no known one."""
    return next((form for form in FORMATS.values() if form.opening in template), None)


_HARD = frozenset({"pattern", "format", "multipleOf", "not", "if", "then", "else", "contains"})
"""Keywords that not every grammar can express."""


def strict(schema: Mapping[str, Any], drop: Container[str] = ()) -> dict[str, Any]:
    """The schema with what it leaves open decided: no unknown keys, integers that are exact.

    A closed object is what the tools accept, and bounds keep a model from writing digits forever.

    Args:
        schema: of the arguments of a tool.
        drop: keywords to leave out.
    """
    return _strict(schema, drop)


def _strict(value: Any, drop: Container[str]) -> Any:
    if isinstance(value, list):
        return [_strict(item, drop) for item in value]
    if not isinstance(value, Mapping):
        return value
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("properties", "$defs", "definitions", "patternProperties"):
            out[key] = {name: _strict(inner, drop) for name, inner in item.items()}
        elif key in ("const", "enum", "default", "examples", "required"):
            out[key] = item
        elif key not in drop:
            out[key] = _strict(item, drop)
    if "properties" in out and not {"additionalProperties", "patternProperties"} & out.keys():
        out["additionalProperties"] = False
    if out.get("type") == "integer" and not {"enum", "const"} & out.keys():
        if not {"minimum", "exclusiveMinimum"} & out.keys():
            out["minimum"] = -MAX_INTEGER
        if not {"maximum", "exclusiveMaximum"} & out.keys():
            out["maximum"] = MAX_INTEGER
    return out
