"""Gemma: JSON in its text (2 and 3), or calls in a notation of its own.

{"name": "read_file", "parameters": {"path": "app.log"}}
<start_function_call>call:read_file{path:<escape>app.log<escape>}<end_function_call>
<|tool_call>call:read_file{path:<|"|>app.log<|"|>}<tool_call|>

The notation: keys without quotes, in the order of the alphabet; texts between two quote tokens, so
that nothing in them needs escaping.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .arguments import arguments_of, left_out
from .json_text import JsonText
from .tagged import text_rules
from .toolcalls import (
    CallPrefix,
    Tag,
    ToolCall,
    ToolFormat,
    Tools,
    any_of,
    letters_of,
    quoted,
    read_json,
)
from .values import Values

_KEY = re.compile(r'[^:{}\[\],"]+')
_WORD = re.compile(r"[^,{}\[\]]+")
_PLAIN = re.compile(r'[^:{}\[\],"\s]+(?: [^:{}\[\],"\s]+)*')
"""A key that needs no quotes."""
MAX_DEPTH = 64


class Gemma(JsonText):
    """The format of Gemma 2 and 3, which have no call tokens: JSON in the text."""

    name = "gemma"
    example = '{"name": <name>, "parameters": <arguments>}'

    def speaks(self, template: str) -> bool:
        return "<start_of_turn>" in template

    def render(self, calls: Sequence[ToolCall]) -> str:
        lines = ({"name": call.name, "parameters": call.arguments} for call in calls)
        return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)


class FunctionGemma(ToolFormat):
    """The FunctionGemma format: calls in Gemma's notation, one after the other."""

    name = "functiongemma"
    openings = (CallPrefix("<start_function_call>"),)
    closing = "<end_function_call>"
    quote = "<escape>"
    inner = (quote,)
    reserved: tuple[str, ...] = ("<end_function_response>", "<start_function_declaration>")
    example = "<start_function_call>call:NAME{argument:<escape>value<escape>}<end_function_call>"

    @property
    def _names(self) -> re.Pattern[str]:
        return re.compile(f"(?s:(?!.*{re.escape(self.quote)}).+)")

    def notes(self, tools: Tools, lenient: Container[str] = ()) -> Iterator[str]:
        return left_out(tools, self._names, lenient, deep=True, free=True)

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        return [
            f"calls: {self.many('call', tag(self.opening))}",
            f'call: "call:" {any_of("call", len(tools))} {tag(self.closing)}',
        ]

    def argument_rules(self, tools: Tools, tag: Tag, lenient: Container[str]) -> list[str]:
        """Return the rules ``call_0`` … in Gemma's notation."""
        rules: list[str] = []
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = arguments_of(function, self._names, self.name)
            values = _Values(self.quote, tag, f"v{i}", schema, function["name"] in lenient)
            body = values.rule({"type": "object", **schema})
            rules += [f"call_{i}: {quoted(function['name'])} {body}", *values.rules]
        return [*rules, *text_rules("text_value", letters_of({}), self.quote, tag)]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the name and the arguments between the tags."""
        text = body.strip()
        name, brace, _ = text.removeprefix("call:").partition("{")
        if not text.startswith("call:") or not brace or not name:
            raise ValueError(f"a tool call must be call:name{{…}}, not {text[:60]!r}")
        reader = _Notation(text, self.quote, len("call:") + len(name))
        return [ToolCall(name, reader.arguments(), text)]

    def within_text(self, body: str) -> bool:
        return body.count(self.quote) % 2 == 1

    def render(self, calls: Sequence[ToolCall]) -> str:
        texts = []
        for call in calls:
            arguments = self._written(call.arguments)
            texts.append(f"{self.opening}call:{call.name}{arguments}{self.closing}")
        return "".join(texts)

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, Mapping):
            items = (f"{self._key(key)}:{self._written(v)}" for key, v in sorted(value.items()))
            return f"{{{','.join(items)}}}"
        if isinstance(value, list | tuple):
            return f"[{','.join(map(self._written, value))}]"
        return json.dumps(value)

    def _key(self, name: str) -> str:
        return name if _PLAIN.fullmatch(name) else f"{self.quote}{name}{self.quote}"


class Gemma4(FunctionGemma):
    """The Gemma 4 format: FunctionGemma's notation with other tokens."""

    name = "gemma4"
    openings = (CallPrefix("<|tool_call>"),)
    closing = "<tool_call|>"
    quote = '<|"|>'
    inner = (quote,)
    reserved = ("<tool_response|>", "<|tool>", "<tool|>")
    example = '<|tool_call>call:NAME{argument:<|"|>value<|"|>}<tool_call|>'

    def speaks(self, template: str) -> bool:
        return "<|tool_call>call:" in template


class _Values(Values):
    """Grammar rules for the values of a schema in Gemma's notation."""

    free_key = r"/[^:{}\[\],\"\s]+/"

    def __init__(self, quote: str, tag: Tag, prefix: str, schema: Any, lenient: bool) -> None:
        super().__init__(prefix, schema, lenient)
        self._quote, self._tag = quote, tag

    def text(self, schema: Mapping[str, Any]) -> str:
        name, letters = "text_value", letters_of(schema, self.lenient)
        if letters != letters_of({}):
            name = f"text_{self.prefix}_{len(self.rules)}"
            self.rules += text_rules(name, letters, self._quote, self._tag)
        return f"{self._tag(self._quote)} {name}"

    def quoted_text(self, value: str) -> str:
        quote = self._tag(self._quote)
        return f"({quote} {quoted(value)} {quote})" if value else f"({quote} {quote})"

    def key(self, name: str) -> str:
        """Return the grammar expression of a key, quoted where the notation needs it."""
        if _PLAIN.fullmatch(name):
            return super().key(name)
        return f"{self.quoted_text(name)} {quoted(self.colon)}"

    def literal(self, value: Any) -> str:
        if isinstance(value, Mapping):
            items = (f"{self.key(key)} {self.literal(v)}" for key, v in sorted(value.items()))
            return _row("{", items, "}")
        if isinstance(value, list):
            return _row("[", map(self.literal, value), "]")
        return super().literal(value)


def _row(first: str, items: Iterable[str], last: str) -> str:
    inside = ' "," '.join(items)
    return f"({quoted(first)} {inside} {quoted(last)})"


class _Notation:
    """Parses values in Gemma's notation."""

    def __init__(self, text: str, quote: str, at: int) -> None:
        self._text, self._quote, self._at = text, quote, at

    def arguments(self) -> dict[str, Any]:
        """Parse the arguments of a call as one object; refuse text after it."""
        found = self._object(0)
        if self._text[self._at :].strip():
            raise ValueError(f"a tool call goes on after its end: {self._text[self._at :][:40]!r}")
        return found

    def _value(self, depth: int) -> Any:
        text, at, quote = self._text, self._at, self._quote
        if depth > MAX_DEPTH:
            raise ValueError("a tool call nests too deeply")
        if text.startswith(quote, at):
            end = text.find(quote, at + len(quote))
            if end < 0:
                raise ValueError("a text in a tool call has no end")
            self._at = end + len(quote)
            return text[at + len(quote) : end]
        if text.startswith("{", at):
            return self._object(depth)
        if text.startswith("[", at):
            self._at += 1
            return list(self._items("]", depth))
        word = _WORD.match(text, at)
        if word is None:
            raise ValueError(f"a tool call lacks a value at {text[at : at + 40]!r}")
        self._at = word.end()
        try:
            return read_json(word[0])
        except ValueError:
            return word[0].strip()

    def _object(self, depth: int) -> dict[str, Any]:
        self._at += 1
        return dict(self._items("}", depth))

    def _items(self, end: str, depth: int) -> Iterator[Any]:
        """Yield the comma-separated items up to `end`."""
        while True:
            if self._text.startswith(end, self._at):
                self._at += 1
                return
            yield self._item(depth) if end == "}" else self._value(depth + 1)
            if self._text.startswith(",", self._at):
                self._at += 1
            elif not self._text.startswith(end, self._at):
                raise ValueError(f"a tool call lacks {end!r} at {self._text[self._at :][:40]!r}")

    def _item(self, depth: int) -> tuple[str, Any]:
        if self._text.startswith(self._quote, self._at):
            key = self._value(depth)
        else:
            found = _KEY.match(self._text, self._at)
            key = found[0].strip() if found else ""
            self._at = found.end() if found else self._at
        if not key or not self._text.startswith(":", self._at):
            raise ValueError(f"a tool call lacks a key at {self._text[self._at :][:40]!r}")
        self._at += 1
        return key, self._value(depth + 1)
