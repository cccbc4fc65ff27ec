"""The base of formats that write arguments as plain text between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .arguments import arguments_of, left_out
from .schemas import DEFINITIONS, listed, merged, resolved
from .toolcalls import Tag, ToolCall, ToolFormat, Tools, json_rule, letters_of, quoted, read_json

_ANY = letters_of({})
_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
"""Python's spellings of JSON constants by type, as some templates show them to the model."""
_DEEPEST = 8  # choices within choices


class Tagged(ToolFormat):
    """Base of formats with tagged arguments: strings are raw text, other values JSON."""

    head_text: str
    """Text that begins a call, with a placeholder for the tool's name."""
    key_text: str
    """Text that begins an argument, with a placeholder for its name."""
    end: str
    """Text that ends a value."""
    foot: str
    """Text that ends a call."""
    after_end = ""
    """Grammar expression of what follows `end`."""
    python_words = False
    """Whether templates of this format write ``True``, ``False`` and ``None``."""
    names: re.Pattern[str]
    """Pattern of the argument names that the format can write."""
    begun: re.Pattern[str]
    """Pattern of the text that begins a value."""

    def within_text(self, body: str) -> bool:
        """Return whether a partial call is inside a value, which ends at the first `end`."""
        at = 0
        while begun := self.begun.search(body, at):
            # The line break before an end may be the one that the value began with.
            at = body.find(self.end, begun.end())
            if at < 0:
                return True
            at += len(self.end)
        return False

    def head(self, name: str) -> str:
        """Return the grammar literal that begins a call."""
        return quoted(self.head_text.format(name))

    def key(self, name: str, tag: Tag) -> str:
        """Return the grammar expression that begins an argument."""
        return quoted(self.key_text.format(name))

    def written(self, call: ToolCall) -> str:
        """Render a call as the model writes it, without the tags around calls."""
        items = call.arguments.items()
        arguments = (f"{self.key_text.format(key)}{plain(v)}{self.end}" for key, v in items)
        return "".join([self.head_text.format(call.name), *arguments, self.foot])

    def notes(self, tools: Tools, lenient: Container[str] = ()) -> Iterator[str]:
        return left_out(tools, self.names, lenient)

    def argument_rules(self, tools: Tools, tag: Tag, lenient: Container[str]) -> list[str]:
        """Return the rules ``call_0`` …: a call's head and arguments in schema order."""
        rules = text_rules("text_value", _ANY, self.end, tag)
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = arguments_of(function, self.names, self.name)
            required = schema.get("required", ())
            loose = function["name"] in lenient
            parts = [self.head(function["name"])]
            for j, (name, value) in enumerate(schema["properties"].items()):
                optional = "" if name in required else "?"
                parts.append(f"({self.key(name, tag)} value_{i}_{j} {self.after_end}){optional}")
                choices = _choices(value, schema)
                letters = _letters(choices, loose)
                if letters:
                    expression = "text_value" if letters == _ANY else f"text_{i}_{j}"
                else:
                    expression = self._value(value, choices, schema, tag, loose)
                if letters not in ("", _ANY):
                    rules += text_rules(expression, letters, self.end, tag)
                rules.append(f"value_{i}_{j}: {expression}")
            rules.append(f"call_{i}: {' '.join(parts)}")
        return rules

    def _value(
        self,
        schema: Mapping[str, Any],
        choices: Sequence[Mapping[str, Any]],
        root: Mapping[str, Any],
        tag: Tag,
        lenient: bool,
    ) -> str:
        """Return the grammar expression of a value that is not free text, its end included."""
        words = [quoted(word) for one in choices for word in _words(one)]
        others = [one for one in choices if not _is_text(one)]
        if others or not choices:  # texts are unquoted, and what else there is in JSON
            whole = {"anyOf": others} if words else schema
            known = {name: root[name] for name in DEFINITIONS if name in root}
            words.insert(0, json_rule({**whole, **known}, lenient))
        if self.python_words:
            words += [quoted(word) for one in choices for word in _python_words(one)]
        return f"({' | '.join(words)}) {tag(self.end)}"


def text_rules(name: str, letters: str, end: str, tag: Tag) -> list[str]:
    """Return the grammar rules of a text and its end tag.

    Args:
        name: of the rule.
        letters: grammar expression of the text.
        end: the tag that ends it.
        tag: gives the grammar's word for that tag.
    """
    if not tag(end).startswith("<["):
        return [f"{name}[lazy]: {letters} {quoted(end)}"]
    ends = f"(/(?s:.*)/ {quoted(end)} /(?s:.*)/)"  # those letters would read as the end
    return [f"{name}: {name.upper()} {tag(end)}", f"{name.upper()}: {letters} & ~{ends}"]


def typed(found: Iterable[tuple[str, str]], name: str, tools: Tools) -> dict[str, Any]:
    """Convert the texts of a call's arguments to the types of the function's schema."""
    choices = _choices_of(name, tools)
    return {key: _value_of(choices(key), text) for key, text in found}


def json_names(name: str, tools: Tools) -> Callable[[str], bool]:
    """Return a predicate: whether an argument is always written as JSON."""
    choices = _choices_of(name, tools)
    return lambda key: not any(map(_is_text, choices(key)))


def _choices_of(name: str, tools: Tools) -> Callable[[str], list[Mapping[str, Any]]]:
    schemas = {tool["function"]["name"]: tool["function"] for tool in tools}
    schema = resolved(schemas.get(name, {}).get("parameters") or {})
    properties = listed(merged(schema, schema))
    return lambda key: _choices(properties.get(key, {}), schema)


def _value_of(choices: Sequence[Mapping[str, Any]], text: str) -> Any:
    """Convert a text to its value: the text itself where a string is allowed, else parsed JSON."""
    texts = [one for one in choices if _is_text(one)]
    if any(text in _words(one) for one in texts):
        return text
    if all(map(_words, texts)):
        return _read(text)
    kinds = {one.get("type") for one in choices}
    if "null" in kinds and text in ("null", "None"):
        return None
    found = _read(text) if {"array", "object"} & kinds else text
    kind = "array" if isinstance(found, list) else "object" if isinstance(found, dict) else ""
    return found if kind in kinds else text


def in_a_row(pattern: re.Pattern[str], text: str, at: int = 0) -> tuple[list[tuple[str, str]], int]:
    """Match arguments from an index on; return their keys and texts, and where they end."""
    found: list[tuple[str, str]] = []
    while match := pattern.match(text, at):
        found.append((match[1], match[2]))
        at = match.end()
    return found, at


def plain(value: Any) -> str:
    """Format an argument: a string as raw text, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _choices(schema: Any, root: Mapping[str, Any], left: int = _DEEPEST) -> list[Mapping[str, Any]]:
    """Split a value's schema into alternatives by `anyOf`, type and enumerated strings."""
    if not isinstance(schema, Mapping):
        return []
    schema = merged(schema, root)
    several, kinds = schema.get("anyOf"), schema.get("type")
    if "enum" in schema:
        texts = [value for value in schema["enum"] if isinstance(value, str)]
        others = [value for value in schema["enum"] if not isinstance(value, str)]
        return [{**schema, "enum": some} for some in (texts, others) if some]
    if "const" in schema or not left:
        return [schema]
    if isinstance(several, list) and several:
        siblings = {key: value for key, value in schema.items() if key != "anyOf"}
        given = [one if isinstance(one, Mapping) else {} for one in several if one is not False]
        found = (_choices({**siblings, **one}, root, left - 1) for one in given)
        return [one for some in found for one in some]
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Return whether all allowed values are strings, so that the raw text is the value."""
    return bool(_words(schema)) or (
        schema.get("type") == "string" and not {"enum", "const"} & schema.keys()
    )


def _words(schema: Mapping[str, Any]) -> list[str]:
    """Return the values of a schema that enumerates strings only (`enum`, `const`); else none."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return list(values) if all(isinstance(value, str) for value in values) else []


def _letters(choices: Sequence[Mapping[str, Any]], lenient: bool) -> str:
    """Return the grammar expression of the non-enumerated strings of a value; empty for none."""
    free = [letters_of(one, lenient) for one in choices if _is_text(one) and not _words(one)]
    if not free or _ANY in free:
        return _ANY if free else ""
    words = [word for one in choices for word in _words(one)]
    words += ["null"] * any(one.get("type") == "null" for one in choices)
    every = [*free, *map(quoted, words)]
    return f"({' | '.join(every)})" if every[1:] else free[0]


def _python_words(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the Python spellings of a schema's boolean and null values."""
    decided = {"enum", "const", "allOf"} & schema.keys()
    return () if decided else _WORDS.get(str(schema.get("type")), ())


def _read(text: str) -> Any:
    """Parse a non-string value; invalid JSON stays text, for validation to report."""
    try:
        return read_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)
