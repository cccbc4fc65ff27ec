"""LFM2: a list of calls in Python syntax.

<|tool_call_start|>[read_file(path='app.log', start=2), list_dir()]<|tool_call_end|>

Values are Python's; mappings are JSON, as the templates write them. These put a text between single
quotes as it is, line breaks and all, so such a text is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from .arguments import arguments_of, left_out
from .toolcalls import (
    DECODER,
    CallPrefix,
    Tag,
    ToolCall,
    ToolFormat,
    Tools,
    any_of,
    json_rule,
    letters_of,
    quoted,
)
from .values import Values

_HEAD = re.compile(r"\s*([^\s()\[\],=]+)\(\s*")
_NAME = re.compile(r"[^\s()\[\],=]+")
_KEY = re.compile(r"\s*([^\s()\[\],=]+)\s*=\s*")
_WORD = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|\b(True|False|None)\b", re.DOTALL)
_TEXTS = re.compile(
    r"'(?:[^'\\]|\\.)*('|\\?\Z)|\"(?:[^\"\\]|\\.)*(\"|\\?\Z)", re.DOTALL
)  # whole or cut at the end
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPES = {**dict(zip("nrtbfva0", "\n\r\t\b\f\v\a\0", strict=True)), "\n": ""}
_ESCAPES |= {letter: letter for letter in "\\'\""}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class Lfm2(ToolFormat):
    """The LFM2 format: all calls of a turn in one list in Python syntax.

    Attributes:
        brackets: around all calls; between: what the grammar has between two of them; separator:
            what is read there.
        deep: whether values have a grammar of their own rather than JSON's.
    """

    name = "lfm2"
    openings = (CallPrefix("<|tool_call_start|>"),)
    closing = "<|tool_call_end|>"
    reserved = (
        *("<|tool_list_start|>", "<|tool_list_end|>"),
        *("<|tool_response_start|>", "<|tool_response_end|>"),
    )
    example = "<|tool_call_start|>[NAME(ARGUMENT='value')]<|tool_call_end|>"
    brackets: ClassVar[tuple[str, str]] = ("[", "]")
    between: ClassVar[str] = ", "
    separator: ClassVar[str] = r"\s*,\s*"
    deep: ClassVar[bool] = True

    def speaks(self, template: str) -> bool:
        """Return whether a template uses this format; some only list the tools."""
        hints = (self.opening, "<|tool_list_start|>", "List of tools: [")
        return any(hint in template for hint in hints)

    def values(self, prefix: str, schema: Mapping[str, Any], lenient: bool) -> Values:
        """Return the grammar rules of a schema's arguments."""
        return _Values(prefix, schema, lenient)

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        first, last = (f"{quoted(text)} " if text else "" for text in self.brackets)
        return [
            f"calls: {first}{self.many('call', quoted(self.between))} {last}{tag(self.closing)}",
            f"call: {any_of('call', len(tools))}",
            f"LITERAL: /{_TEXT}/",
        ]

    def argument_rules(self, tools: Tools, tag: Tag, lenient: Container[str]) -> list[str]:
        """Return the rules ``call_0`` … in Python syntax."""
        rules: list[str] = []
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = arguments_of(function, _NAME, self.name)
            values = self.values(f"v{i}", schema, function["name"] in lenient)
            arguments = values.keys(schema, _keyword)
            rules += [f'call_{i}: {quoted(function["name"])} "(" {arguments} ")"', *values.rules]
        return rules

    def notes(self, tools: Tools, lenient: Container[str] = ()) -> Iterator[str]:
        return left_out(tools, _NAME, lenient, deep=self.deep)

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse a list of calls in Python syntax."""
        text, (first, last) = body.strip(), self.brackets
        if not (text.startswith(first) and text.endswith(last)):
            must = f"{first}name(argument=value){last}"
            raise ValueError(f"tool calls must be {must}, not {text[:60]!r}")
        return self.listed(words_as_json(text[len(first) : len(text) - len(last)]).rstrip())

    def listed(self, text: str) -> list[ToolCall]:
        """Parse the comma-separated calls of a text in which Python literals are already JSON."""
        calls: list[ToolCall] = []
        at = 0
        while at < len(text) or not calls:
            call, at = _call(text, at)
            calls.append(call)
            if text[at:].strip():
                found = re.compile(self.separator).match(text, at)
                at = found.end() if found else _expect(",", text, at)
        return calls

    def within_text(self, body: str) -> bool:
        return any(not (text[1] or text[2]) for text in _TEXTS.finditer(body))

    def render(self, calls: Sequence[ToolCall]) -> str:
        texts = []
        for call in calls:
            arguments = (f"{key}={_literal(value)}" for key, value in call.arguments.items())
            texts.append(f"{call.name}({', '.join(arguments)})")
        return f"{self.opening}[{', '.join(texts)}]{self.closing}"


_TEXT = r"'([^'\\]|\\(?s:.))*'|\"([^\"\\]|\\(?s:.))*\""
_LETTERS = r"([^{}\\]|\\['\"\\nrt])"  # an escape of which each is one character


class _Values(Values):
    """Grammar rules for the values of a schema in Python syntax; objects may also be JSON."""

    comma, colon = ", ", ": "
    free_key = "LITERAL"
    words: ClassVar = {"boolean": ("True", "False", "true", "false"), "null": ("None", "null")}

    def key(self, name: str) -> str:
        return quoted(f"{_literal(name)}: ")

    def ordered(self, properties: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return keys and schemas in the order of the schema."""
        return properties.items()

    def object(self, schema: Mapping[str, Any]) -> str:
        known = {**schema, "$defs": self.defs} if self.defs else schema
        return f"{json_rule(known, self.lenient)} | {super().object(schema)}"

    def text(self, schema: Mapping[str, Any]) -> str:
        letters = letters_of(schema, self.lenient)
        if letters == letters_of({}):
            return "LITERAL"
        name = f"LITERAL_{self.prefix}_{len(self.rules)}".upper()
        if "pattern" in schema and not self.lenient:  # of the letters as they are
            self.rules.append(f"{name}: {letters} & /[^'\"\\\\]*/")
            return f'"\'" {name} "\'" | "\\"" {name} "\\""'
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", "")
        bodies = (
            f"{quote}{_LETTERS.format(quote)}{{{shortest},{longest}}}{quote}" for quote in "'\""
        )
        self.rules.append(f"{name}: /{'|'.join(bodies)}/")
        return name

    def quoted_text(self, value: str) -> str:
        return f"({quoted(_literal(value))} | {quoted(json.dumps(value, ensure_ascii=False))})"

    def literal(self, value: Any) -> str:
        if isinstance(value, str):
            return self.quoted_text(value)
        return f"({quoted(_literal(value))} | {quoted(json.dumps(value))})"


def _keyword(name: str) -> str:
    """Return the grammar literal of an argument's name and its equals sign."""
    return quoted(f"{name}=")


def _literal(value: Any) -> str:
    """Format a value in Python syntax, with mappings as JSON and line breaks unescaped."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if value is None or isinstance(value, bool):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def words_as_json(text: str) -> str:
    """Rewrite Python's strings, True, False and None in a text as JSON."""
    return _WORD.sub(_as_json, text)


def _as_json(found: re.Match[str]) -> str:
    """Convert a matched Python string or constant to JSON."""
    if found[3]:
        return _PYTHON[found[3]]
    text = found[1] if found[1] is not None else found[2]
    text = _ESCAPE.sub(_unescaped, text)
    # Two escapes may be the halves of one character; a half alone is none.
    return json.dumps(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _unescaped(found: re.Match[str]) -> str:
    number = found[1] or found[2] or found[3]
    if number is None:
        return _ESCAPES.get(found[4], found[0])
    return chr(min(int(number, 16), 0x10FFFF))


def _call(text: str, at: int) -> tuple[ToolCall, int]:
    """Parse the call at an index; return it and where it ends."""
    head = _HEAD.match(text, at)
    if head is None:
        raise ValueError(f"a tool call must be name(argument=value), not {text[at:][:60]!r}")
    arguments: dict[str, Any] = {}
    begin, at = head.start(1), head.end()
    while not text.startswith(")", at):
        if arguments:
            at = _expect(",", text, at)
        key = _KEY.match(text, at)
        if key is None:
            raise ValueError(f"{head[1]}: an argument has no name at {text[at:][:40]!r}")
        try:
            arguments[key[1]], at = DECODER.raw_decode(text, key.end())
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{head[1]}: the argument {key[1]} is not a valid value: {error}"
            ) from None
        at += len(text[at:]) - len(text[at:].lstrip())
    return ToolCall(head[1], arguments, text[begin : at + 1]), at + 1


def _expect(letter: str, text: str, at: int) -> int:
    """Return the index after `letter`, or raise where it is not next."""
    rest = text[at:].lstrip()
    if not rest.startswith(letter):
        raise ValueError(f"a tool call lacks {letter!r} at {rest[:40]!r}")
    return len(text) - len(rest) + 1
