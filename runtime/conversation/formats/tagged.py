"""What is common to formats that write arguments as text between tags of their own."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from ..schemas import DEFINITIONS, resolved, strict
from ..toolcalls import Tag, ToolFormat, json_rule, letters_of, quoted, read_json

_ANY = letters_of({})
_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
"""What a template that prints a value as Python does has shown the model."""


class Tagged(ToolFormat):
    """A text's value stands as it is, so that code needs no quoting; any other value is JSON."""

    end: str
    """Ends a value."""
    after_end = ""
    """A grammar's expression of what follows that."""
    python_words = False
    """Whether templates of this format write ``True``, ``False`` and ``None``."""

    @abstractmethod
    def head(self, name: str) -> str:
        """A grammar's expression of how a call of a function begins."""

    @abstractmethod
    def key(self, name: str, tag: Tag) -> str:
        """A grammar's expression of how an argument begins."""

    def call_rules(
        self, tools: Sequence[Mapping[str, Any]], tag: Tag, lenient: Container[str]
    ) -> list[str]:
        """The rules ``call_0`` …: each a call's head and its arguments in the schema's order."""
        rules = text_rules("text_value", _ANY, self.end, tag)
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = strict(function.get("parameters") or {})
            required = schema.get("required", ())
            loose = function["name"] in lenient
            parts = [self.head(function["name"])]
            for j, (name, value) in enumerate(schema.get("properties", {}).items()):
                optional = "" if name in required else "?"
                parts.append(f"({self.key(name, tag)} value_{i}_{j} {self.after_end}){optional}")
                value = {**value, **{n: schema[n] for n in DEFINITIONS if n in schema}}
                expression = self._value(value, tag, loose)
                if expression == "text_value" and (letters := letters_of(value, loose)) != _ANY:
                    expression = f"text_{i}_{j}"
                    rules += text_rules(expression, letters, self.end, tag)
                rules.append(f"value_{i}_{j}: {expression}")
            rules.append(f"call_{i}: {' '.join(parts)}")
        return rules

    def _value(self, schema: Mapping[str, Any], tag: Tag, lenient: bool) -> str:
        """A grammar's expression of a value, its end included."""
        if not _is_text(schema):
            words = map(quoted, _python_words(schema) if self.python_words else ())
            return f"({' | '.join([json_rule(schema, lenient), *words])}) {tag(self.end)}"
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return f"({' | '.join(map(quoted, values))}) {tag(self.end)}"
        return "text_value"


def text_rules(name: str, letters: str, end: str, tag: Tag) -> list[str]:
    """The rules of a text and what ends it.

    Args:
        name: of the rule.
        letters: what the text may be, as an expression of the grammar.
        end: the tag that ends it.
        tag: gives the grammar's word for that tag.
    """
    if not tag(end).startswith("<["):
        return [f"{name}[lazy]: {letters} {quoted(end)}"]
    ends = f"(/(?s:.*)/ {quoted(end)} /(?s:.*)/)"  # those letters would read as the end
    return [f"{name}: {name.upper()} {tag(end)}", f"{name.upper()}: {letters} & ~{ends}"]


def typed(
    found: Iterable[tuple[str, str]], name: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The arguments of a call, by the types that the schema of its function gives them."""
    schemas = {tool["function"]["name"]: tool["function"] for tool in tools}
    schema = resolved(schemas.get(name, {}).get("parameters") or {})
    arguments: dict[str, Any] = {}
    for key, text in found:
        value = schema.get("properties", {}).get(key, {})
        arguments[key] = _text(value, text) if _is_text(value) else _read(text)
    return arguments


def _text(schema: Mapping[str, Any], text: str) -> Any:
    """A value that may be any text; or another, if it is allowed and written as such."""
    kinds = _kinds(schema)
    if "null" in kinds and text in ("null", "None"):
        return None
    found = _read(text) if {"array", "object"} & kinds else text
    kind = "array" if isinstance(found, list) else "object" if isinstance(found, dict) else ""
    return found if kind in kinds else text


def in_a_row(pattern: re.Pattern[str], text: str, at: int = 0) -> tuple[list[tuple[str, str]], int]:
    """Key and text of each argument from a place on, and where the last of them ends."""
    found: list[tuple[str, str]] = []
    while match := pattern.match(text, at):
        found.append((match[1], match[2]))
        at = match.end()
    return found, at


def plain(value: Any) -> str:
    """An argument as these formats write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a value may be any text: then its letters are the value."""
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return all(isinstance(v, str) for v in schema.get("enum", [schema.get("const")]))
    if kind == "string" or (isinstance(kind, list) and "string" in kind):
        return True
    return any(_is_text(one) for one in schema.get("anyOf", ()) if isinstance(one, Mapping))


def _python_words(schema: Mapping[str, Any]) -> list[str]:
    """Python's words for the values of a schema that JSON writes in another way."""
    if "enum" in schema or "const" in schema:
        return []
    kinds = _kinds(schema)
    return [word for kind, words in _WORDS.items() if kind in kinds for word in words]


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema allows, as far as it says."""
    kinds = schema.get("type", [])
    found = {kinds} if isinstance(kinds, str) else {*kinds}
    choices = [one for one in schema.get("anyOf", ()) if isinstance(one, Mapping)]
    return found.union(*map(_kinds, choices))


def _read(text: str) -> Any:
    """A value that is not a text; what is no JSON stays text, and validation says so."""
    try:
        return read_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)
