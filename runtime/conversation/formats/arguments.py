"""Argument schemas for formats that are not wholly JSON, and the schema parts they omit."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from ....errors import GrammarError
from .schemas import DEFINITIONS, listed, merged, strict
from .toolcalls import Tools

_OBJECTS = frozenset(
    [
        *("minProperties", "maxProperties", "patternProperties", "propertyNames"),
        *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
    ]
)
_ANY = frozenset(["allOf", "not", "if"])
_LISTS = frozenset(["prefixItems", "uniqueItems", "contains", "unevaluatedItems"])
_SIDES = frozenset(["type", "properties", "required", "items", "additionalProperties"])
_CHOICES = ("anyOf", "oneOf")
_POINTERS = tuple(f"#/{name}/" for name in DEFINITIONS)


def arguments_of(function: Mapping[str, Any], names: re.Pattern[str], form: str) -> dict[str, Any]:
    """Return the strict object schema of the arguments that a format can write.

    Args:
        function: OpenAI-style.
        names: pattern of the argument names that the format can write.
        form: the format's name.

    Raises:
        GrammarError: an argument that is needed cannot be written, or is not allowed.
    """
    schema = _whole(function)
    known = listed(schema)
    for name in schema.get("required", ()):
        if name not in schema.get("properties", {}) and schema.get("additionalProperties") is False:
            raise GrammarError(
                f"tool {function['name']}: its schema needs an argument {name!r} and allows none "
                "of that name; describe it under properties"
            )
        if not names.fullmatch(name):
            raise GrammarError(
                f"tool {function['name']}: the format {form} of the model's calls cannot write "
                f"the name of its argument {name!r}; rename it"
            )
    return {**schema, "properties": {n: one for n, one in known.items() if names.fullmatch(n)}}


def _whole(function: Mapping[str, Any]) -> dict[str, Any]:
    schema = strict(function.get("parameters") or {})
    return merged(schema, schema)


def left_out(
    tools: Tools,
    names: re.Pattern[str],
    lenient: Container[str],
    *,
    deep: bool = False,
    free: bool = False,
) -> Iterator[str]:
    """Return notes on the parts of tool schemas that a format's grammar omits.

    Args:
        tools: OpenAI-style schemas.
        names: pattern of the argument names that the format can write.
        lenient: names of the tools that are already reported.
        deep: whether values are in a notation of the format's own.
        free: whether the grammar has arguments that no schema names.
    """
    for tool in tools:
        function = tool["function"]
        schema = _whole(function)
        about = f"tool {function['name']}: "
        known = listed(schema)
        lost = [f"the argument {name!r}" for name in known if not names.fullmatch(name)]
        if not known and not free and schema.get("additionalProperties"):
            lost = ["what its schema does not name"]
        if lost:
            yield f"{about}{lost[0]} cannot be written in the format of the model's calls"
        found = min((_OBJECTS | _ANY | {*_CHOICES}) & schema.keys(), default="")
        if deep and not found:
            parts = [*known.values(), *(d for n in DEFINITIONS for d in schema.get(n, {}).values())]
            found = next(filter(None, (_beyond(part, schema, ()) for part in parts)), "")
        elif not found:  # of texts; of other values JSON has it all
            values = [one for one in known.values() if isinstance(one, Mapping)]
            found = "allOf" if any("allOf" in merged(one, schema) for one in values) else ""
        if found and function["name"] not in lenient:
            yield (
                f"{about}a part of its schema is checked only once the call is written: the format "
                f"of the model's calls has no grammar for {found}"
            )


def _beyond(schema: Any, root: Mapping[str, Any], inside: tuple[str, ...]) -> str:
    """Return the first keyword, at any depth, that a grammar of `Values` lacks."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return ""
    if isinstance(ref := schema.get("$ref"), str):
        return "" if ref.startswith(_POINTERS) else "$ref"
    if "allOf" in schema:
        text = json.dumps(schema)
        if text in inside:
            return ""
        schema, inside = merged(schema, root), (*inside, text)
    found = (_OBJECTS | _ANY | _LISTS) & schema.keys()
    several = {key for key in _CHOICES if key in schema}
    if several and (_SIDES & schema.keys() or len(several) > 1):
        found |= several
    if not _apart(schema.get("oneOf", ())):
        found |= {"oneOf"}
    if found:
        return min(found)
    held = [*(schema.get("properties") or {}).values()]
    held += [schema.get("items"), schema.get("additionalProperties")]
    held += [one for key in _CHOICES for one in schema.get(key) or ()]
    return next(filter(None, (_beyond(one, root, inside) for one in held)), "")


def _apart(choices: Sequence[Any]) -> bool:
    """Return whether the schemas can be distinguished by type."""
    kinds = [one.get("type") if isinstance(one, Mapping) else None for one in choices]
    texts = {kind for kind in kinds if isinstance(kind, str)}
    return len(choices) < 2 or (len(texts) == len(kinds) and not texts >= {"integer", "number"})
