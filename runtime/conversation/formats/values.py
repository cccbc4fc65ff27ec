"""Grammar rules for the values that a schema allows, in notations other than JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, ClassVar

from .schemas import DEFINITIONS, listed, merged
from .toolcalls import json_rule, quoted


class Values(ABC):
    """Builds the grammar rules for the values that one schema allows.

    Args:
        prefix: of the rules' names.
        schema: a strict one, with the definitions that `$ref` refers to.
        lenient: leave out what no grammar can express.

    Attributes:
        rules: those built so far.
    """

    comma, colon = ",", ":"
    free_key = "/[A-Za-z_][A-Za-z0-9_]*/"
    """Grammar expression of a key that the schema does not list."""
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Spellings of the values of a type; types that are not listed use JSON's."""

    def __init__(self, prefix: str, schema: Mapping[str, Any], lenient: bool) -> None:
        self.rules: list[str] = []
        self.prefix, self.lenient = prefix, lenient
        self.defs = {**schema.get("definitions", {}), **schema.get("$defs", {})}
        self._named: dict[str, str] = {}
        self._free = ""

    @abstractmethod
    def text(self, schema: Mapping[str, Any]) -> str:
        """Return the grammar expression of the strings that a schema allows, quotes included."""

    @abstractmethod
    def quoted_text(self, value: str) -> str:
        """Return the grammar expression of one string, quotes included."""

    def key(self, name: str) -> str:
        """Return the grammar expression of a key and the separator after it."""
        return quoted(f"{name}{self.colon}")

    def ordered(self, properties: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return an object's keys and schemas in output order."""
        return sorted(properties.items())

    def rule(self, schema: Any) -> str:
        """Add a rule for the values that a schema allows; return its name."""
        name = f"{self.prefix}_{len(self.rules)}"
        self.rules.append("")  # its place: what it holds comes after it
        self.rules[int(name.rpartition("_")[2])] = f"{name}: {self._expression(schema)}"
        return name

    def _expression(self, schema: Any) -> str:
        schema = schema if isinstance(schema, Mapping) else {}
        if "enum" in schema or "const" in schema:
            return " | ".join(map(self.literal, schema.get("enum", [schema.get("const")])))
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "allOf" in schema:
            return self._joined(schema)
        kinds = schema.get("anyOf") or schema.get("oneOf")
        if not kinds and isinstance(schema.get("type"), list):
            kinds = [{**schema, "type": kind} for kind in schema["type"]]
        if kinds:
            return " | ".join(map(self.rule, kinds))
        match schema.get("type"):
            case "string":
                return self.text(schema)
            case "array":
                return self._array(schema)
            case "object":
                return self.object(schema)
            case "boolean" | "null" as kind if kind in self.words:
                return " | ".join(map(quoted, self.words[kind]))
            case "integer" | "number" | "boolean" | "null":
                return json_rule(schema, self.lenient)
        if {"properties", "additionalProperties"} & schema.keys():
            return self.object(schema)
        if {"items", "prefixItems"} & schema.keys():
            return self._array(schema)
        return self._anything()

    def _anything(self) -> str:
        """Return the name of the rule for any value; add it on first use."""
        if not self._free:
            self._free = f"{self.prefix}_{len(self.rules)}"
            self.rules.append("")
            kinds = ("string", "number", "boolean", "null", "array", "object")
            every = " | ".join(self.rule({"type": kind}) for kind in kinds)
            self.rules[int(self._free.rpartition("_")[2])] = f"{self._free}: {every}"
        return self._free

    def _array(self, schema: Mapping[str, Any]) -> str:
        fewest, limit = schema.get("minItems", 0), schema.get("maxItems")
        if limit == 0 and not fewest:
            return '"[]"'
        items = self.rule(schema.get("items", {}))
        if limit != 1 or fewest > 1:
            more = "" if limit is None else limit - 1
            items += f" ({quoted(self.comma)} {items}){{{max(fewest - 1, 0)},{more}}}"
        return f'"[" {items} "]"' if fewest else f'"[" ({items})? "]"'

    def _reference(self, ref: str) -> str:
        if ref not in self._named:
            target = self.defs.get(ref.rpartition("/")[2], {})
            self._named[ref] = f"{self.prefix}_{len(self.rules)}"
            self.rule(target)
        return self._named[ref]

    def _joined(self, schema: Mapping[str, Any]) -> str:
        """Return the name of the rule for a schema with `allOf`, whose parts apply together."""
        text = json.dumps(schema, sort_keys=True)
        if text not in self._named:
            self._named[text] = f"{self.prefix}_{len(self.rules)}"
            whole = merged(schema, dict.fromkeys(DEFINITIONS, self.defs))
            self.rule({key: value for key, value in whole.items() if key != "allOf"})
        return self._named[text]

    def object(self, schema: Mapping[str, Any]) -> str:
        """Return the grammar expression of the objects that a schema allows."""
        if not listed(schema):
            # An object without names is closed by `strict`, unless it says what it takes.
            extra = schema.get("additionalProperties", {})
            if extra is False:
                return '"{}"'
            item = f"{self.free_key} {quoted(self.colon)} {self.rule(extra)}"
            return f'"{{" ({item} ({quoted(self.comma)} {item})*)? "}}"'
        return f'"{{" {self.keys(schema)} "}}"'

    def keys(self, schema: Mapping[str, Any], key: Callable[[str], str] | None = None) -> str:
        """Return the grammar expression of an object's keys and values; `key` formats one key."""
        items = list(self.ordered(listed(schema)))
        named = [((key or self.key)(name), name, value) for name, value in items]
        return self._keys(named, schema.get("required", ()), "")

    def _keys(self, items: list[tuple[str, str, Any]], required: Container[str], comma: str) -> str:
        """Return the grammar expression of the keys in order, comma-separated."""
        if not items:
            return '""'
        (written, name, schema), rest = items[0], items[1:]
        key = f"{comma} {written} {self.rule(schema)}".strip()
        here = f"{key} {self._keys(rest, required, quoted(self.comma))}"
        if name in required:
            return here
        if comma:  # what follows is the same with and without this key
            return f"({key})? {self._keys(rest, required, comma)}"
        return f"({here} | {self._keys(rest, required, comma)})"

    def literal(self, value: Any) -> str:
        """Return the grammar expression of one constant value."""
        return self.quoted_text(value) if isinstance(value, str) else quoted(json.dumps(value))
