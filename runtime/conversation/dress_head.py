"""Where a call begins that is written as text: a tool's name, and its arguments behind it.

Each way to write one is read up to its arguments, or as far as it goes: what may still become a
call is known from what cannot.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

_NAMES = ("name", "function", "tool", "tool_name", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "kwargs", "input", "action_input", "tool_input")
_LISTS = ("tool_calls", "function_calls", "calls")
_OTHERS = ("type", "id", "call_id", "index")
_KEYS = (*_NAMES, *_ARGUMENTS, *_LISTS, *_OTHERS)
_MARK = re.compile(
    r"\s*(?:([{}\[\],:])|\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|(-?\d[\w.+-]*|[a-zA-Z]\w*))",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_FENCE = re.compile(r"```[\w+#.-]*(?:\s+|(?=[{\[]))")
_FENCE_PART = re.compile(r"`{1,2}|```[\w+#.-]*")
_WORDS = ("tool", "tool_call", "function_call", "functioncall", "function", "tool_code", "call")
_TAGS = (
    *(f"<{bar}{word}{s}{bar}>" for word in _WORDS for s in ("", "s") for bar in ("", "|")),
    "[TOOL_CALLS]",
)
_VALUE = re.compile(r"[\"'\[{\d-]|(?:True|False|None|true|false|null)\b")
_KEYWORD = re.compile(r"(\w+)\s*(=?)")
_ANY_CALLED = re.compile(r"(?:\w+\.)?([A-Za-z_]\w*)\(\s*")
_CALLED_PART = re.compile(r"(?:\w+\.)?([\w-]*)")
_BEFORE = re.compile(r"(?:\w+ *= *)?(?:print\( *)?")  # what a program does with a result
_BEFORE_PART = re.compile(r"\w+ *=? *|(?:\w+ *= *)?print\( *")


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a call, up to its arguments.

    Attributes:
        name: of the tool.
        begin: where the call itself begins in the text.
        at: where its arguments do: the ``{`` or quote of JSON, or what follows ``name(``.
        python: whether it is written as Python would.
        closers: what ends the object around the arguments.
        quotes: signs around texts.
        fenced, tagged: whether a fence, or a tag for calls, stands before it.
    """

    name: str
    begin: int
    at: int
    python: bool = False
    closers: str = ""
    quotes: str = "\"'"
    fenced: bool = False
    tagged: bool = False


Found: TypeAlias = "Head | bool"
"""A head; else whether a text may still become one."""


def find_head(line: str, names: tuple[str, ...]) -> Found:
    """The head of a call at the beginning of a text.

    Args:
        line: without blank space before it.
        names: of the tools that there are.
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
    within = fenced or tagged
    found = _json_head(rest, names) or _python_head(rest, names, within=within, any_name=tagged)
    if not isinstance(found, Head):
        return found
    return replace(found, begin=at + found.begin, at=at + found.at, fenced=fenced, tagged=tagged)


def _json_head(text: str, names: Sequence[str]) -> Found:
    """The head of a call as an object of JSON, or of Python."""
    at, opened, key, name, want = 0, "", "", "", "value"
    begin, quotes = 0, '"'
    while True:
        mark = _MARK.match(text, at)
        if mark is None:
            rest = text[at:].lstrip()
            if rest[:1] in ('"', quotes[-1]) and want == "value" and key in _ARGUMENTS and name:
                return _head(name, begin, len(text) - len(rest), opened, quotes)  # a long text
            return _may_go_on(rest, want, key, names)
        place, sign = mark.end() - len(mark[0].lstrip()), mark[1]
        string = mark[2] if mark[2] is not None else mark[3]
        quotes = "\"'" if mark[3] is not None and want == "key" else quotes
        if want == "value" and key in _ARGUMENTS:
            if not name or not (sign == "{" or string is not None):
                return False
            return _head(name, begin, place, opened, quotes)
        at = mark.end()
        match want:
            case "key" if sign == "{" and opened.endswith("{") and text[place - 1] == "{":
                opened += sign  # doubled
            case "key" if string in _KEYS:
                key, want = string, "colon"
            case "colon" if sign == ":":
                want = "value"
            case "next" if sign == ",":
                want = "key"
            case "value" if sign == "{" and (key in ("", "function", "tool") or key in _LISTS):
                if not opened.endswith("{") or key in _LISTS:
                    begin = place
                opened, key, want = opened + sign, "", "key"
            case "value" if sign == "[" and (key in _LISTS or (not key and not opened)):
                opened, key = opened + sign, ""
            case "value" if key in _NAMES and string is not None:
                if not (string in names or (key == "name" and _NAME.fullmatch(string))):
                    return False
                name, want = string, "next"
            case "value" if key in _OTHERS and sign is None:
                want = "next"
            case _:
                return False


def _head(name: str, begin: int, at: int, opened: str, quotes: str) -> Head:
    closers = "}" * (len(opened) - len(opened.rstrip("{")))
    return Head(name, begin, at, closers=closers, quotes=quotes)


def _may_go_on(rest: str, want: str, key: str, names: Sequence[str]) -> Found:
    """Whether the beginning of a key or a value can be part of the head of a call."""
    if not rest:
        return True
    if rest[0] not in "\"'":
        return False
    begun = rest[1:]
    if want == "key":
        return any(one.startswith(begun) for one in _KEYS)
    if want != "value" or "\n" in begun:
        return False
    if key in _NAMES and not any(one.startswith(begun) for one in names):
        return key == "name" and _NAME.fullmatch(begun) is not None
    return key in _NAMES or key in _OTHERS


@lru_cache(maxsize=64)
def _called(names: tuple[str, ...]) -> re.Pattern[str]:
    every = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"(?:\w+\.)?({every or '(?!)'})\(\s*")


def _python_head(text: str, names: tuple[str, ...], *, within: bool, any_name: bool) -> Found:
    """The head of a call as Python writes it.

    Args:
        text: at the beginning of a line.
        names: of the tools.
        within: whether a fence or a tag is open, so that a result may be assigned or printed.
        any_name: whether any function's call is a tool's.
    """
    at = 1 if text.startswith("[") else 0
    begin = at
    if within and (before := _BEFORE.match(text, at)):
        at = before.end()
    pattern = _ANY_CALLED if any_name else _called(names)
    mark = pattern.match(text, at)
    if mark is None:
        if within and _BEFORE_PART.fullmatch(text, begin):
            return True
        begun = _CALLED_PART.fullmatch(text, at)
        return begun is not None and (any_name or any(n.startswith(begun[1]) for n in names))
    rest = text[mark.end() :]
    head = Head(mark[1], mark.start(), mark.end(), python=True)
    if not rest:
        return True
    if rest[0] == ")" or _VALUE.match(rest):
        return head
    keyword = _KEYWORD.match(rest)
    if keyword is None:
        return False
    return head if keyword[2] else keyword.end() == len(rest)
