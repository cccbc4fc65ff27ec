"""The arguments of a call that is written as text, and what models copy into them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .dress_head import Head
from .formats.lfm2 import words_as_json
from .toolcalls import DECODER, MOST_LEVELS, ToolCall, is_flat

_LOOSE = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\])])', re.DOTALL)
_COPIED = frozenset(
    [
        *("additionalProperties", "required", "properties", "type", "description", "title"),
        *("default", "examples", "enum", "$schema", "$defs", "items", "format"),
    ]
)
"""Keys of JSON Schema, which models copy from a tool's schema into its arguments."""
_LINES = json.JSONDecoder(
    parse_float=DECODER.parse_float, parse_constant=DECODER.parse_constant, strict=False
)  # it takes line breaks in texts as they are


def read_call(
    head: Head, text: str, schemas: Mapping[str, Mapping[str, Any]], notes: list[str]
) -> ToolCall | None:
    """The call of a head and its arguments; None where they are none.

    Args:
        head: of the call.
        text: of the arguments.
        schemas: of the arguments of the tools that there are, by name.
        notes: takes what was left out.
    """
    schema = schemas.get(head.name)
    known = (schema or {}).get("properties") or {}
    try:
        arguments = _keywords(text, schema) if head.python else _object(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    if isinstance(arguments.get("properties"), dict) and "properties" not in known:
        return None  # a tool's definition
    if not is_flat(arguments):
        problem = f"the arguments of {head.name} are nested more than {MOST_LEVELS} deep"
        return ToolCall(head.name, problem=problem)
    if schema is None:
        problem = f"no such tool: {head.name}; the tools are {', '.join(schemas)}"
        return ToolCall(head.name, arguments, problem=problem)
    closed = not schema.get("additionalProperties") and "patternProperties" not in schema
    copied = [key for key in arguments if key in _COPIED and key not in known]
    for key in copied if closed else ():
        del arguments[key]
        notes.append(f"{head.name}: the argument {key!r}, copied from its schema, was left out")
    return ToolCall(head.name, arguments)


def _object(text: str) -> Any:
    """The value of an object of JSON, in a text of JSON, or of Python's.

    Raises:
        ValueError: it is none.
    """
    tries = [text, text[1:-1]] if text.startswith("{{") else [text]
    for one in tries:
        for form in (str, words_as_json):
            try:
                value = _LINES.decode(_LOOSE.sub(lambda mark: mark[1] or "", form(one)))
            except ValueError:
                continue
            return _object(value) if isinstance(value, str) and value[:1] == "{" else value
    raise ValueError("no object")


def _keywords(text: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call as Python writes it; those without a name in the schema's order.

    Raises:
        ValueError: they are none.
    """
    text = _LOOSE.sub(lambda mark: mark[1] or "", words_as_json(text) + ")")[:-1]
    places, arguments, at = list((schema or {}).get("properties") or {}), dict[str, Any](), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        keyword = re.compile(r"(\w+)\s*=\s*").match(text, at)
        if keyword is not None:
            key, at = keyword[1], keyword.end()
        elif schema is None:  # of a tool that is not there
            key = f"argument_{len(arguments) + 1}"
        elif len(arguments) < len(places) and list(arguments) == places[: len(arguments)]:
            key = places[len(arguments)]
        else:
            raise ValueError("an argument has no name")
        if key in arguments:
            raise ValueError("an argument is there twice")
        arguments[key], at = _LINES.raw_decode(text, at)
        after = text[at:].lstrip()
        if after and after[0] != ",":
            raise ValueError("a comma is missing")
        at = len(text) - len(after) + bool(after)
    return arguments
