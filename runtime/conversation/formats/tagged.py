"""What is common to formats that write arguments as text between tags of their own."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..schemas import DEFINITIONS, listed, merged, resolved
from ..toolcalls import Tag, ToolFormat, Tools, json_rule, letters_of, quoted, read_json
from .arguments import arguments_of, left_out

_ANY = letters_of({})
_WORDS = {"boolean": ("True", "False"), "null": ("None",)}
"""What a template that prints a value as Python does has shown the model."""
_DEEPEST = 8  # choices within choices


class Tagged(ToolFormat):
    """A text's value stands as it is, so that code needs no quoting; any other value is JSON."""

    end: str
    """Ends a value."""
    after_end = ""
    """A grammar's expression of what follows that."""
    python_words = False
    """Whether templates of this format write ``True``, ``False`` and ``None``."""
    names: re.Pattern[str]
    """What the name of an argument can be."""
    begun: re.Pattern[str]
    """How a value begins."""

    def within_text(self, body: str) -> bool:
        """See `ToolFormat.within_text`: a value ends at the first `end`."""
        at = 0
        while begun := self.begun.search(body, at):
            # The line break before an end may be the one that the value began with.
            at = body.find(self.end, begun.end())
            if at < 0:
                return True
            at += len(self.end)
        return False

    @abstractmethod
    def head(self, name: str) -> str:
        """A grammar's expression of how a call of a function begins."""

    @abstractmethod
    def key(self, name: str, tag: Tag) -> str:
        """A grammar's expression of how an argument begins."""

    def notes(self, tools: Tools, lenient: Container[str] = ()) -> Iterator[str]:
        """See `ToolFormat.notes`."""
        return left_out(tools, self.names, lenient)

    def argument_rules(self, tools: Tools, tag: Tag, lenient: Container[str]) -> list[str]:
        """The rules ``call_0`` …: each a call's head and its arguments in the schema's order."""
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
        """A grammar's expression of a value that is not any text, its end included."""
        words = [quoted(word) for one in choices for word in _words(one)]
        others = [one for one in choices if not _is_text(one)]
        if others or not choices:  # texts stand as they are, and what else there is in JSON
            whole = {"anyOf": others} if words else schema
            known = {name: root[name] for name in DEFINITIONS if name in root}
            words.insert(0, json_rule({**whole, **known}, lenient))
        if self.python_words:
            words += [quoted(word) for one in choices for word in _python_words(one)]
        return f"({' | '.join(words)}) {tag(self.end)}"


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


def typed(found: Iterable[tuple[str, str]], name: str, tools: Tools) -> dict[str, Any]:
    """The arguments of a call, by the types that the schema of its function gives them."""
    choices = _choices_of(name, tools)
    return {key: _value_of(choices(key), text) for key, text in found}


def json_names(name: str, tools: Tools) -> Callable[[str], bool]:
    """Tells of an argument of a function whether it is written in JSON, whatever its value is."""
    choices = _choices_of(name, tools)
    return lambda key: not any(map(_is_text, choices(key)))


def _choices_of(name: str, tools: Tools) -> Callable[[str], list[Mapping[str, Any]]]:
    schemas = {tool["function"]["name"]: tool["function"] for tool in tools}
    schema = resolved(schemas.get(name, {}).get("parameters") or {})
    properties = listed(merged(schema, schema))
    return lambda key: _choices(properties.get(key, {}), schema)


def _value_of(choices: Sequence[Mapping[str, Any]], text: str) -> Any:
    """What a text stands for: itself, where it may, else what it is as JSON."""
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
    """Key and text of each argument from a place on, and where the last of them ends."""
    found: list[tuple[str, str]] = []
    while match := pattern.match(text, at):
        found.append((match[1], match[2]))
        at = match.end()
    return found, at


def plain(value: Any) -> str:
    """An argument as these formats write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _choices(schema: Any, root: Mapping[str, Any], left: int = _DEEPEST) -> list[Mapping[str, Any]]:
    """The schemas of which a value has to fit one, with what they name in its place."""
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
        beside = {key: value for key, value in schema.items() if key != "anyOf"}
        given = [one if isinstance(one, Mapping) else {} for one in several if one is not False]
        found = (_choices({**beside, **one}, root, left - 1) for one in given)
        return [one for some in found for one in some]
    return [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether all values are texts: then their letters are the value."""
    return bool(_words(schema)) or (
        schema.get("type") == "string" and not {"enum", "const"} & schema.keys()
    )


def _words(schema: Mapping[str, Any]) -> list[str]:
    """All values of a schema, if it lists them and they are texts."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return list(values) if all(isinstance(value, str) for value in values) else []


def _letters(choices: Sequence[Mapping[str, Any]], lenient: bool) -> str:
    """An expression of the texts of a value that may be a text which no list names; else empty."""
    free = [letters_of(one, lenient) for one in choices if _is_text(one) and not _words(one)]
    if not free or _ANY in free:
        return _ANY if free else ""
    words = [word for one in choices for word in _words(one)]
    words += ["null"] * any(one.get("type") == "null" for one in choices)
    every = [*free, *map(quoted, words)]
    return f"({' | '.join(every)})" if every[1:] else free[0]


def _python_words(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Python's words for the values of a schema that JSON writes in another way."""
    decided = {"enum", "const", "allOf"} & schema.keys()
    return () if decided else _WORDS.get(str(schema.get("type")), ())


def _read(text: str) -> Any:
    """A value that is not a text; what is no JSON stays text, and validation says so."""
    try:
        return read_json(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text.strip(), text)
