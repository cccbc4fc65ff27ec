"""OLMo 3: calls in Python syntax, one a line, usually with JSON values.

<function_calls>read_file(path="app.log", start=2)
list_dir()</function_calls>

What Python would write in a value's place is read too, as with LFM2 (`lfm2.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .lfm2 import Lfm2
from .schemas import DEFINITIONS, HARD, strict
from .toolcalls import CallPrefix, ToolCall, Tools, json_rule, quoted
from .values import Values


class Olmo3(Lfm2):
    """The OLMo 3 format: calls in Python syntax between two tags, one per line."""

    name = "olmo3"
    openings = (CallPrefix("<function_calls>"),)
    closing = "</function_calls>"
    reserved = ("<functions>", "</functions>")
    example = '<function_calls>NAME(ARGUMENT="value")</function_calls>'
    brackets, between, separator = ("", ""), "\n", r"\s*,?\s*"
    deep = False

    def speaks(self, template: str) -> bool:
        return self.opening in template

    def values(self, prefix: str, schema: Mapping[str, Any], lenient: bool) -> Values:
        """Return the grammar rules of the arguments, whose values are JSON."""
        return _JsonValues(prefix, schema, lenient)

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse one call per line, with JSON values or else Python literals."""
        try:
            return self.listed(body.strip())
        except ValueError:
            return super().parse(body, tools)

    def render(self, calls: Sequence[ToolCall]) -> str:
        texts = []
        for call in calls:
            values = call.arguments.items()
            arguments = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values)
            texts.append(f"{call.name}({', '.join(arguments)})")
        return f"{self.opening}{self.between.join(texts)}{self.closing}"


class _JsonValues(Values):
    """Grammar rules for the values of a schema as JSON."""

    comma = ", "

    def ordered(self, properties: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return keys and schemas in the order of the schema."""
        return properties.items()

    def rule(self, schema: Any) -> str:
        known = schema if isinstance(schema, Mapping) else {}
        name = f"{self.prefix}_{len(self.rules)}"
        whole = {**known, **{name: self.defs for name in DEFINITIONS}} if self.defs else known
        plain = strict(whole, HARD if self.lenient else ())
        self.rules.append(f"{name}: {json_rule(plain, self.lenient)}")
        return name

    def text(self, schema: Mapping[str, Any]) -> str:
        return json_rule(schema, self.lenient)

    def quoted_text(self, value: str) -> str:
        return quoted(json.dumps(value, ensure_ascii=False))
