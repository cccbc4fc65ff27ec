"""JSON schemas as grammars want them: decided where they leave things open, pointers resolved."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

MAX_INTEGER = 2**53 - 1  # larger ones are not exact in JSON everywhere
HARD = frozenset({"pattern", "format", "multipleOf", "not", "if", "then", "else", "contains"})
"""Keywords that not every grammar can express."""
DEFINITIONS = ("$defs", "definitions")
_NAMED = (*DEFINITIONS, "properties", "patternProperties")  # schemas by name
_VALUES = ("const", "enum", "default", "examples", "required")  # no schemas
_MERGED = ("allOf", "anyOf", "oneOf", "if", "then", "else")  # say more of the same object


def strict(schema: Mapping[str, Any], drop: Container[str] = ()) -> dict[str, Any]:
    """The schema with what it leaves open decided: no unknown keys, integers that are exact.

    A closed object is what the tools accept, and bounds keep a model from writing digits forever.
    An object of which several schemas speak stays open: each would refuse the others' keys.

    Args:
        schema: of the arguments of a tool.
        drop: keywords to leave out.
    """
    whole = resolved(schema)
    return _strict(whole, drop, {*_merged_targets(whole)}, close=True)


def resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with what `$ref` names in its place, but for definitions, which stay by name.

    A pointer into itself stays, too. A schema that is `true` allows anything, like `{}`.
    """
    return _resolved(schema, schema, ())


def _resolved(value: Any, root: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_resolved(item, root, inside) for item in value]
    if not isinstance(value, Mapping):
        return value
    pointer = value.get("$ref")
    if isinstance(pointer, str) and pointer.startswith("#/") and pointer not in inside:
        parts = pointer[2:].split("/")
        target = None if parts[0] in DEFINITIONS and len(parts) == 2 else _at(root, parts)
        if target is not None:
            beside = {key: item for key, item in value.items() if key != "$ref"}
            return _resolved({**target, **beside}, root, (*inside, pointer))
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in _VALUES:
            out[key] = item
        elif key in _NAMED and isinstance(item, Mapping):
            named = {n: {} if one is True else one for n, one in item.items()}
            out[key] = {n: _resolved(one, root, inside) for n, one in named.items()}
        else:
            out[key] = _resolved(item, root, inside)
    return out


def _at(root: Any, parts: list[str]) -> Mapping[str, Any] | None:
    """What a JSON pointer (RFC 6901) names, if that is a schema."""
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping):
            root = root.get(name)
        else:
            listed = isinstance(root, list) and name.isdecimal() and int(name) < len(root)
            root = root[int(name)] if listed else None
    return {} if root is True else root if isinstance(root, Mapping) else None


def _merged_targets(value: Any, merged: bool = False) -> Iterator[str]:
    """Names of the definitions that are one of several schemas of an object."""
    if isinstance(value, list):
        for item in value:
            yield from _merged_targets(item, merged)
    elif isinstance(value, Mapping):
        if merged and isinstance(ref := value.get("$ref"), str):
            yield ref.rpartition("/")[2]
        for key, item in value.items():
            if key not in _VALUES:
                yield from _merged_targets(item, key in _MERGED and not _alone(value, key))


def _alone(value: Mapping[str, Any], key: str) -> bool:
    """Whether nothing else speaks of the object that one of the schemas under a key describes."""
    if "properties" in value or key in ("if", "then", "else"):
        return False
    if any(other != key and other in value for other in _MERGED):
        return False
    return key != "allOf" or len(value[key]) == 1


def _strict(value: Any, drop: Container[str], opened: Container[str], *, close: bool) -> Any:
    if isinstance(value, list):
        return [_strict(item, drop, opened, close=close) for item in value]
    if not isinstance(value, Mapping):
        return value
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in _VALUES:
            out[key] = item
        elif key in _NAMED and isinstance(item, Mapping):
            shut = opened if key in DEFINITIONS else ()
            out[key] = {n: _strict(s, drop, opened, close=n not in shut) for n, s in item.items()}
        elif key not in drop:
            inner = _alone(value, key) and close if key in _MERGED else key != "not"
            out[key] = _strict(item, drop, opened, close=inner)
    decided = {"additionalProperties", "patternProperties", *_MERGED} & out.keys()
    if close and "properties" in out and not decided:
        out["additionalProperties"] = False
    if out.get("type") == "integer" and not {"enum", "const"} & out.keys():
        if not {"minimum", "exclusiveMinimum"} & out.keys():
            out["minimum"] = -MAX_INTEGER
        if not {"maximum", "exclusiveMaximum"} & out.keys():
            out["maximum"] = MAX_INTEGER
    return out
