"""Normalizes JSON schemas for grammars: open choices decided, references resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....arguments import is_number
from ....errors import GrammarError

MAX_INTEGER = 2**53 - 1  # larger ones are not exact in JSON everywhere
HARD = frozenset({"pattern", "format", "multipleOf", "not", "if", "then", "else", "contains"})
"""JSON Schema keywords that not every grammar can express."""
DEFINITIONS = ("$defs", "definitions")
_NOTES = ("title", "description", "default", "examples", "deprecated", "$comment")
_NAMED = (*DEFINITIONS, "properties", "patternProperties")  # schemas by name
_VALUES = ("const", "enum", "default", "examples", "required")  # no schemas
FORMATS = frozenset(
    [
        *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
        *("uri", "unknown"),
    ]
)
"""Values of the keyword `format` that the grammar library supports."""
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
MAX_PARTS = 20_000
"""Maximum parts of a schema once its references are resolved."""
MAX_ALTERNATIVES = 1000
"""Maximum alternatives that `allOf` may multiply out to: a grammar has a rule for each."""
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<?[=!]|.", re.DOTALL)
_MERGED = ("allOf", "anyOf", "oneOf", "if", "then", "else")  # say more of the same object


def strict(schema: Mapping[str, Any], drop: Iterable[str] = ()) -> dict[str, Any]:
    """Return a strict copy of a schema: objects are closed, integers bounded to exact ones.

    Tools refuse unknown keys, and bounds keep a model from writing digits forever. An object that
    several schemas describe stays open: each would refuse the others' keys.

    Args:
        schema: of the arguments of a tool.
        drop: keywords to leave out.
    """
    return _decided(schema, lambda one: [one.pop(key, None) for key in drop])


def _decided(schema: Mapping[str, Any], relax: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    whole = resolved(schema)
    return _strict(whole, relax, {*_merged_targets(whole)}, close=True)


def resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with each `$ref` replaced, except references to definitions.

    A pointer into itself stays, too. A schema that is `true` allows anything, like `{}`.

    Raises:
        GrammarError: a few pointers would become a schema without end, or alternatives would.
    """
    whole = _Resolver(schema).resolved(schema, ())
    if _Alternatives(whole).largest(whole) > MAX_ALTERNATIVES:
        raise GrammarError(
            f"the schema combines more than {MAX_ALTERNATIVES:,} alternatives (anyOf or oneOf "
            "within allOf), or several multipleOf"
        )
    return whole


def merged(
    schema: Mapping[str, Any], root: Mapping[str, Any], seen: Container[str] = ()
) -> dict[str, Any]:
    """Merge a schema with its `$ref` target and `allOf` parts into one object.

    What two of them say differently stays under `allOf`.

    Args:
        schema: resolved.
        root: where its pointers begin.
        seen: pointers that led to it.
    """
    out = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    parts: list[Any] = list(schema.get("allOf") or ())
    left: list[Any] = []
    if isinstance(ref := schema.get("$ref"), str):
        target = _at(root, ref[2:].split("/")) if ref.startswith("#/") else None
        if target is None or ref in seen:
            out["$ref"] = ref
        else:
            seen = [ref, *(seen if isinstance(seen, list) else ())]
            parts.insert(0, target)
    for part in parts:
        if not isinstance(part, Mapping):
            left += [part] if part is False else []
            continue
        for key, value in merged(part, root, seen).items():
            known = out.get(key)
            if key == "properties" and isinstance(known, Mapping):
                same = {name for name in value if name in known and known[name] != value[name]}
                left += [{"properties": {name: value[name] for name in same}}] if same else []
                out[key] = {**known, **{n: one for n, one in value.items() if n not in known}}
            elif key == "required" and isinstance(known, list):
                out[key] = list(dict.fromkeys([*value, *known]))
            elif key not in out:
                out[key] = value
            elif known != value and key not in _NOTES and key not in DEFINITIONS:
                left.append({key: value})
    return {**out, "allOf": left} if left else out


def relaxed(
    schema: Mapping[str, Any], allows: Callable[[str], bool]
) -> tuple[dict[str, Any], list[str]]:
    """Drop regular expressions that a grammar lacks; return the schema and the dropped keywords.

    Enumerated property names stay exact; `allows`: whether a grammar supports an expression.
    """
    left = set[str]()

    def relax(one: dict[str, Any]) -> None:
        _list_names(one, schema)
        pattern = one.get("pattern")
        if isinstance(pattern, str) and not allows(pattern):
            left.add("pattern")
            one["pattern"] = without_lookaround(pattern)
            if not allows(one["pattern"]):
                del one["pattern"]
        if not all(map(allows, one.get("patternProperties", ()))):
            left.add("patternProperties")
            del one["patternProperties"]
            one["additionalProperties"] = True

    return _decided(schema, relax), sorted(left)


def _list_names(schema: dict[str, Any], root: Mapping[str, Any]) -> None:
    """Move the names that `propertyNames` enumerates to `properties`."""
    names, known = schema.get("propertyNames"), schema.get("properties") or {}
    if not isinstance(names, Mapping) or "patternProperties" in schema:
        return
    names = merged(names, root)
    listed = names.get("enum", [names["const"]] if "const" in names else None)
    if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
        other = schema.get("additionalProperties", {})
        every = known if other is False else dict.fromkeys(listed, other) | known
        schema["properties"] = {name: every[name] for name in listed if name in every}
        schema["additionalProperties"] = False
        del schema["propertyNames"]


def without_lookaround(pattern: str) -> str:
    """Drop lookarounds and word boundaries from a pattern; the result matches a superset."""
    out, depth = "", 0
    for token in _TOKEN.findall(pattern):
        if depth or token.startswith("(?"):
            depth += token.startswith("(") - (token == ")")
            out += "" if depth else "(?:)"
        else:
            out += "(?:)" if token in (r"\b", r"\B") else token
    return out


def listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas of an object's properties, undescribed required ones included."""
    named, other = schema.get("properties") or {}, schema.get("additionalProperties", {})
    needed = [name for name in schema.get("required") or () if name not in named]
    return {**named, **dict.fromkeys(needed, other if isinstance(other, Mapping) else {})}


class _Resolver:
    """Replaces `$ref` pointers by their targets, up to `MAX_PARTS` parts in all."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_PARTS

    def resolved(self, value: Any, inside: tuple[str, ...]) -> Any:
        """Return a value with its `$ref`s replaced; `inside` are the pointers being expanded."""
        self._left -= 1
        if self._left < 0:
            raise GrammarError(
                f"the schema has more than {MAX_PARTS:,} parts with what its references ($ref) name"
            )
        if isinstance(value, list):
            return [self.resolved(item, inside) for item in value]
        return self._object(value, inside) if isinstance(value, Mapping) else value

    def _object(self, value: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
        pointer = value.get("$ref")
        if isinstance(pointer, str) and pointer.startswith("#/") and pointer not in inside:
            parts = pointer[2:].split("/")
            by_name = parts[0] in DEFINITIONS and len(parts) == 2
            target = None if by_name else _at(self._root, parts)
            if target is not None:
                siblings = {key: item for key, item in value.items() if key != "$ref"}
                return self.resolved({**target, **siblings}, (*inside, pointer))
        out: dict[str, Any] = {}
        for key, item in value.items():
            if key in _VALUES:
                out[key] = item
            elif key in _NAMED and isinstance(item, Mapping):
                named = {n: {} if one is True else one for n, one in item.items()}
                out[key] = {n: self.resolved(one, inside) for n, one in named.items()}
            else:
                out[key] = self.resolved(item, inside)
        return out


class _Alternatives:
    """Counts the alternatives that `allOf` multiplies out to in a grammar."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, int] = {}

    def largest(self, value: Any) -> int:
        """Return the largest count of alternatives of any part of a schema."""
        if isinstance(value, list):
            return max(map(self.largest, value), default=1)
        if not isinstance(value, Mapping):
            return 1
        count = self._of(value) if isinstance(value.get("allOf"), list) else 1
        for key, item in value.items():
            if key in _NAMED and isinstance(item, Mapping):
                count = max(count, self.largest(list(item.values())))
            elif key not in _VALUES:
                count = max(count, self.largest(item))
        return count

    def _of(self, value: Any) -> int:
        """Return how many alternatives a schema expands to, capped at the limit plus one."""
        if not isinstance(value, Mapping):
            return 1
        count = 1
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            if ref not in self._known:
                self._known[ref] = 1  # within itself
                self._known[ref] = self._of(_at(self._root, ref[2:].split("/")))
            count = self._known[ref]
        for key in ("anyOf", "oneOf"):
            if isinstance(several := value.get(key), list):
                count = min(count * max(1, sum(map(self._of, several))), MAX_ALTERNATIVES + 1)
        if isinstance(every := value.get("allOf"), list):
            for one in every:
                count = min(count * self._of(one), MAX_ALTERNATIVES + 1)
            of = [one for one in (value, *every) if isinstance(one, Mapping)]
            if sum("multipleOf" in one for one in of) > 1:
                count = MAX_ALTERNATIVES + 1
        return count


def _at(root: Any, parts: list[str]) -> Mapping[str, Any] | None:
    """Return the schema at a JSON pointer (RFC 6901); None if there is none."""
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping):
            root = root.get(name)
        else:
            listed = isinstance(root, list) and name.isdecimal() and int(name) < len(root)
            root = root[int(name)] if listed else None
    return {} if root is True else root if isinstance(root, Mapping) else None


def _merged_targets(value: Any, merged: bool = False) -> Iterator[str]:
    """Yield the names of definitions that describe an object together with other schemas."""
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
    """Return whether the schemas under a key are the only ones that describe their object."""
    if "properties" in value or key in ("if", "then", "else"):
        return False
    if any(other != key and other in value for other in _MERGED):
        return False
    return key != "allOf" or len(value[key]) == 1


def _strict(
    value: Any, relax: Callable[[dict[str, Any]], Any], opened: Container[str], *, close: bool
) -> Any:
    if isinstance(value, list):
        return [_strict(item, relax, opened, close=close) for item in value]
    if not isinstance(value, Mapping):
        return value
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in _VALUES:
            out[key] = item
        elif key in _NAMED and isinstance(item, Mapping):
            shut = opened if key in DEFINITIONS else ()
            out[key] = {n: _strict(s, relax, opened, close=n not in shut) for n, s in item.items()}
        else:
            inner = _alone(value, key) and close if key in _MERGED else key != "not"
            out[key] = _strict(item, relax, opened, close=inner)
    relax(out)
    decided = {"additionalProperties", "patternProperties", *_MERGED} & out.keys()
    named, needed = out.get("properties"), out.get("required", ())
    if close and isinstance(named, Mapping) and not decided and all(n in named for n in needed):
        out["additionalProperties"] = False
    _drop_redundant(out)
    if out.get("type") == "integer" and not {"enum", "const"} & out.keys():
        low, high = (_bound(out, keys) for keys in (_LOWER, _UPPER))
        if low is None and (high is None or high > -MAX_INTEGER):
            out["minimum"] = -MAX_INTEGER
        if high is None and (low is None or low < MAX_INTEGER):
            out["maximum"] = MAX_INTEGER
    return out


def _drop_redundant(schema: dict[str, Any]) -> None:
    """Drop keywords without effect: unknown formats, trivial `propertyNames`, huge bounds."""
    if schema.get("format") not in FORMATS:  # an annotation, as JSON Schema has it
        schema.pop("format", None)
    if schema.get("propertyNames") in (True, {}, {"type": "string"}):
        del schema["propertyNames"]
    for sign, keys in ((-1, _LOWER), (1, _UPPER)):
        bound = _bound(schema, keys)
        if bound is not None and sign * bound > MAX_INTEGER:
            for key in keys:
                schema.pop(key, None)


def _bound(schema: Mapping[str, Any], keys: Sequence[str]) -> float | None:
    return next((schema[key] for key in keys if is_number(schema.get(key))), None)
