"""Parses one call that is written as plain text: a tool's name, then its arguments.

A head is read up to the arguments, or as far as it goes: what may still become a call is known
from what cannot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from .formats.lfm2 import words_as_json
from .formats.toolcalls import DECODER, MAX_LEVELS, ToolCall, is_flat

_NAMES = ("name", "function", "tool", "tool_name", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "kwargs", "input", "action_input", "tool_input")
_KEYS = (*_NAMES, *_ARGUMENTS, "type", "id", "call_id", "index")
_OPENED = re.compile(r"(?:\[\s*)?(\{\s*\{|\{)")  # braces may be doubled
_PAIR = re.compile(
    r'\s*(?:"(\w*)("?)\s*:?\s*(?:"([^"\n]*)("?)|([\w-]*))\s*(,?))?'
)  # or its beginning
_BEFORE_VALUE = re.compile(rf'\s*"(?:{"|".join(_ARGUMENTS)})"\s*:\s*(?=\{{)')
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_FENCE = re.compile(r"```[\w+#.-]*(?:\s+|(?=[{\[]))")
_FENCE_PART = re.compile(r"`{1,2}|```[\w+#.-]*")
_WORDS = ("tool", "tool_call", "function_call", "functioncall", "function", "tool_code", "call")
_TAGS = (
    *(f"<{bar}{word}{s}{bar}>" for word in _WORDS for s in ("", "s") for bar in ("", "|")),
    "[TOOL_CALLS]",
)
_CALLED_PART = re.compile(r"\[?(?:\w+\.)?([\w-]*)")
_VALUE = re.compile(r"[\"'\[{\d)-]|(?:True|False|None|true|false|null)\b")
_KEYWORD = re.compile(r"(\w+)\s*(=?)\s*")
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


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a call, up to its arguments.

    Attributes:
        name: of the tool.
        begin: where the call itself begins in the text.
        at: where its arguments do: the ``{`` of JSON, or what follows ``name(``.
        python: whether it is written as Python would.
        closers: what ends the object around the arguments.
        fenced, tagged: whether a fence, or a tag for calls, precedes it.
    """

    name: str
    begin: int
    at: int
    python: bool = False
    closers: str = ""
    fenced: bool = False
    tagged: bool = False


Found: TypeAlias = "Head | bool"
"""A head; else whether more text may complete one."""


def find_head(line: str, names: tuple[str, ...]) -> Found:
    """Match the head of a call at the beginning of a text.

    Args:
        line: the text, without leading blanks.
        names: of the tools.
    """
    at, fenced, tagged = 0, False, False
    while True:
        rest = line[at:]
        if not rest or _FENCE_PART.fullmatch(rest) or any(t.startswith(rest) for t in _TAGS):
            return True
        if not fenced and (mark := _FENCE.match(rest)):
            at, fenced, tagged = at + mark.end(), True, tagged or mark[0].startswith("```tool")
        elif tag := next((tag for tag in _TAGS if rest.startswith(tag)), ""):
            at, tagged = at + len(tag), True
            at += len(line[at:]) - len(line[at:].lstrip())
        else:
            break
    found = _json_head(rest, names) or _python_head(rest, names, tagged)
    if not isinstance(found, Head):
        return found
    return replace(found, begin=at + found.begin, at=at + found.at, fenced=fenced, tagged=tagged)


def _json_head(text: str, names: tuple[str, ...]) -> Found:
    """Match the head of a call written as a JSON object."""
    opened = _OPENED.match(text)
    if opened is None:
        return re.fullmatch(r"\[?\s*", text) is not None
    at, name = opened.end(), ""
    while True:
        if name and (mark := _BEFORE_VALUE.match(text, at)):
            closers = "}" * opened[1].count("{")
            return Head(name, opened.start(1), mark.end(), closers=closers)
        pair = _PAIR.match(text, at)
        assert pair is not None
        key, closed, value, whole, word, comma = pair.groups("")
        if not (comma or pair.end() == len(text)):
            return False
        if not (key in _KEYS if closed else any(one.startswith(key) for one in _KEYS)):
            return False
        if key in _ARGUMENTS and (value or whole or word):
            return False
        if key in _NAMES and closed and not _may_be(value, key, bool(whole or comma), names):
            return False
        if not comma:
            return True
        name, at = (value if key in _NAMES else name), pair.end()


def _may_be(value: str, key: str, whole: bool, names: tuple[str, ...]) -> bool:
    """Return whether `value` may be a tool's name, or a prefix of one unless `whole`.

    Under the key ``name`` any identifier may be.
    """
    known = value in names if whole else any(one.startswith(value) for one in names)
    return known or (key == "name" and _NAME.fullmatch(value) is not None)


@lru_cache(maxsize=64)
def _called(names: tuple[str, ...]) -> re.Pattern[str]:
    every = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"\[?((?:\w+\.)?({every or '(?!)'})\(\s*)")


def _python_head(text: str, names: tuple[str, ...], tagged: bool) -> Found:
    """Match the head of a call written as Python; in a tag, a module may precede the name."""
    mark = _called(names).match(text)
    if mark is None:
        begun = _CALLED_PART.fullmatch(text)
        return begun is not None and (tagged or any(one.startswith(begun[1]) for one in names))
    rest = text[mark.end() :]
    keyword = _KEYWORD.match(rest)
    if _VALUE.match(rest) or (keyword and keyword[2]):
        return Head(mark[2], mark.start(1), mark.end(), python=True, closers=")")
    return not rest or (keyword is not None and keyword.end() == len(rest))


def read_call(
    head: Head, text: str, schemas: Mapping[str, Mapping[str, Any]], notes: list[str]
) -> ToolCall | None:
    """Parse a call from its head and the text of its arguments; None where they are invalid.

    Args:
        head: of the call.
        text: of the arguments.
        schemas: of the tools' arguments, by tool name.
        notes: receives a note on each omitted argument.
    """
    schema = schemas.get(head.name)
    known = (schema or {}).get("properties") or {}
    try:
        arguments = _keywords(text, list(known)) if head.python else _object(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(arguments.get("properties"), dict) and "properties" not in known:
        return None  # a tool's definition
    if not is_flat(arguments):
        problem = f"the arguments of {head.name} are nested more than {MAX_LEVELS} deep"
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


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object whose outer braces may be doubled; raise ValueError if it is invalid."""
    try:
        return _LINES.decode(text)
    except ValueError:
        if not text.startswith("{{"):
            raise
        return _LINES.decode(text[1:-1])


def _keywords(text: str, positional: list[str]) -> dict[str, Any]:
    """Parse Python call arguments; positional ones take the schema's order.

    Raises:
        ValueError: they are none.
    """
    text, arguments, at = words_as_json(text).strip(), dict[str, Any](), 0
    while at < len(text):
        keyword = re.compile(r"(\w+)\s*=\s*").match(text, at)
        if keyword is None and list(arguments) != positional[: len(arguments)]:
            raise ValueError("an argument has no name")
        key = keyword[1] if keyword else (*positional, "")[len(arguments)]
        if key in ("", *arguments):
            raise ValueError("an argument has no name, or is there twice")
        arguments[key], at = _LINES.raw_decode(text, keyword.end() if keyword else at)
        comma = re.compile(r"\s*(?:,\s*|\Z)").match(text, at)
        if comma is None:
            raise ValueError("a comma is missing")
        at = comma.end()
    return arguments
