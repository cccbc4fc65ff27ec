"""Calls in any dress: what a model writes as text and means as calls of its tools.

Small models call with plain JSON, with doubled braces as a template may show them, as Python
would, in a fence, in tags of letters, in a list or one a line. `DressWatch` follows an answer as
it comes; what may still become a call is held back.

A call begins where a tool's name *and* its arguments are being written, at the beginning of a
line: an object with nothing but what names a call (``{"name": "read_file", "arguments": {``), or
``read_file(path=`` and its like. It counts

- where the answer is nothing but calls, with whatever fences, tags, brackets and separators;
- behind a short lead-in (`MOST_LEAD`), if nothing follows the calls;
- at the beginning of an answer, with remarks behind it on lines of their own: a model that calls
  and then makes up the result. These remarks are not told.

All else stays text: an example within an explanation, a program that goes on in the same fence, a
call behind a lead-in that says it is an example. Quoted files stay text by their other keys
(``version``, ``in``, ``description``), and a tool's own definition by the schema that it has in the
place of arguments. Where the whole answer is a call of a tool that is not there, it is a call with
a `problem`: the model is to read that, and nobody else the call.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from .formats.lfm2 import words_as_json
from .toolcalls import DECODER, MOST_LEVELS, ToolCall, Tools, is_flat

MOST_LEAD = 200
"""Characters of a lead-in, which may have two lines."""
_MOST_HEAD = 512  # characters of a line up to the arguments

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
_CLOSING = re.compile(r"\s*(```|</\|?\w+\|?>|[\]}),;])")
_CLOSING_PART = re.compile(r"`{1,2}|</?\|?\w*\|?")
_BRACKETS = re.compile(r"[\"'(){}\[\]]")
_CLOSER = {"{": "}", "[": "]", "(": ")"}
_VALUE = re.compile(r"[\"'\[{\d-]|(?:True|False|None|true|false|null)\b")
_KEYWORD = re.compile(r"(\w+)\s*(=?)")
_BEFORE = re.compile(r"(?:\w+ *= *)?(?:print\( *)?")  # what a program does with a result
_BEFORE_PART = re.compile(r"\w+ *=? *|(?:\w+ *= *)?print\( *")
_EXAMPLE = re.compile(r"\b(?:examples?|e\.g\.|for instance|format|syntax|schema)\b", re.IGNORECASE)
_SAID = re.compile(r"[.:!?…。：！？]\Z")
_CUT = re.compile(r"\s*(?:```|</\|?\w+\|?>)?\s*\Z")
_TEXT_ENDS = {sign: re.compile(rf"\\.|{sign}", re.DOTALL) for sign in "\"'"}
_LOOSE = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\])])', re.DOTALL)
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


@dataclass(slots=True)
class Dressed:
    """The calls of an answer, none where it is text."""

    calls: list[ToolCall] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out of arguments and answer."""


class DressWatch:
    """Follows an answer and knows from where on it may be calls.

    Args:
        tools: OpenAI-style schemas of those there are.

    Attributes:
        told: what was let through: what stands before the calls, where there are any.
        head: of the call that is being written, or was last.
    """

    def __init__(self, tools: Tools) -> None:
        functions = [tool["function"] for tool in tools]
        self._schemas = {one["name"]: one.get("parameters") or {} for one in functions}
        self.told = ""
        self.head: Head | None = None
        self._state: Literal["prose", "head", "value", "closers", "rest", "after", "off"] = "head"
        self._held = ""
        self._begin = 0  # of what is held: where the line begins that may begin a call
        self._at = 0  # of it: how far it was read
        self._stack = self._quote = ""  # what closes brackets and text that are open
        self._value = -1  # where the arguments end
        self._fenced = self._remarked = False
        self._calls: list[tuple[Head, int, int]] = []  # and where arguments and call end

    @property
    def off(self) -> bool:
        """Whether nothing that follows can be a call any more."""
        return self._state == "off"

    @property
    def fresh(self) -> bool:
        """Whether nothing was read yet."""
        return not (self.off or self.told or self._held)

    def begun(self) -> str | None:
        """The beginning of the arguments that are being written; None where none are."""
        if self._state != "value" or self.head is None:
            return None
        return self._held[self.head.at :]

    def copy(self) -> DressWatch:
        """One that goes on from here by itself."""
        made = copy.copy(self)
        made._calls = list(self._calls)
        return made

    def push(self, text: str) -> str:
        """Read on; gives what can be told by now."""
        if self._state == "off":
            return text
        self._held += text
        before = len(self.told)
        while self._step():
            pass
        if self._state == "prose" and not self._calls:
            self._let(len(self._held))
        return self.told[before:] + (self.let_go() if self._state == "off" else "")

    def let_go(self) -> str:
        """What is held back: it is text, and so is all that follows."""
        held, self._held, self._state = self._held, "", "off"
        return held

    def found(self) -> Dressed:
        """The calls, if the answer ends here."""
        if self._state in ("value", "closers", "rest"):
            whole = self.copy()
            whole._end_cut()
            return Dressed() if whole._state == self._state else whole.found()
        if not self._calls or self.off:
            return Dressed()
        rest = self._held[self._at :].strip() if self._state == "after" else ""
        remarked = self._remarked or bool(rest and not _CLOSING_PART.fullmatch(rest))
        known = all(head.name in self._schemas for head, _, _ in self._calls)
        lead = bool(self.told.strip())
        if lead + remarked + (not known) > 1:
            return Dressed()
        dressed = Dressed()
        for head, value, end in self._calls:
            call = self._call(head, self._held[head.at : value], dressed.notes)
            if call is None:
                return Dressed()
            dressed.calls.append(replace(call, text=self._held[head.begin : end].strip()))
        if remarked:
            dressed.notes.append("what was written behind the calls was left out")
        return dressed

    # --- reading

    def _step(self) -> bool:
        """Read on in one state; False: more must come."""
        match self._state:
            case "prose":
                return self._read_prose()
            case "head":
                return self._read_head(self._begin)
            case "value":
                return self._read_value()
            case "closers":
                return self._read_closers()
            case "rest":
                return self._read_rest()
            case "after":
                return self._read_after()
        return False

    def _let(self, end: int) -> None:
        self.told += self._held[:end]
        self._held = self._held[end:]
        self._at, self._begin = max(0, self._at - end), max(0, self._begin - end)

    def _read_prose(self) -> bool:
        line = self._held.find("\n", self._at)
        if line < 0:
            self._at = len(self._held)
        if not self._calls:
            said = self._held if line < 0 else self._held[:line]
            self._let(len(said.rstrip()))
            if len(self.told) > MOST_LEAD or self.told.count("\n") > 2:
                self._state = "off"
                return False
            line = self._held.find("\n")
        if line < 0:
            return False
        self._state, self._begin = "head", line + 1
        return True

    def _read_head(self, begin: int) -> bool:
        """Look for a head from a place on."""
        line = self._held[begin:].lstrip()
        if not line:
            return False
        found = find_head(line[:_MOST_HEAD], tuple(self._schemas))
        found = found is not True and found if len(line) > _MOST_HEAD else found
        if found is True:
            return False
        start = len(self._held) - len(line)
        if isinstance(found, Head) and not self._leads(found):
            self._state = "off"
            return False
        if isinstance(found, Head):
            self.head = replace(found, begin=start + found.begin, at=start + found.at)
            self._fenced = self._fenced or found.fenced
            self._state, self._at, self._value = "value", self.head.at, -1
            self._stack, self._quote = ")" if found.python else "", ""
            return True
        between = self._held[self._calls[-1][2] : start] if self._calls else ""
        if self._calls and (self._fenced or self.told.strip() or not re.search(r"[\n`>]", between)):
            self._state = "off"
            return False
        self._remarked = bool(self._calls)
        self._state, self._at = "prose", start
        return True

    def _leads(self, head: Head) -> bool:
        """Whether what was said before it may lead in a call."""
        lead = self.told.strip()
        plain = head.python and not head.fenced and not head.tagged
        return not (_EXAMPLE.search(lead) or (plain and lead and not _SAID.search(lead)))

    def _read_value(self) -> bool:
        """Read arguments up to their end."""
        if not self._scan():
            return False
        head = self.head
        assert head is not None
        self._value = self._at - head.python
        self._state, self._stack = "closers", head.closers
        if not self._stack:
            self._end(self._at)
        return True

    def _read_rest(self) -> bool:
        """Read further keys of the object around arguments; they count for nothing."""
        if not self._scan():
            return False
        self._end(self._at)
        return True

    def _scan(self) -> bool:
        """Read up to where all brackets are closed; False: that is further on."""
        assert self.head is not None
        head, held = self.head, self._held
        while True:
            if self._quote:
                mark = _TEXT_ENDS[self._quote].search(held, self._at)
                if mark is None:
                    open_escape = (len(held) - len(held.rstrip("\\"))) % 2
                    self._at = max(self._at, len(held) - open_escape)
                    return False
                self._at = mark.end()
                self._quote = "" if mark[0] == self._quote else self._quote
            else:
                mark = _BRACKETS.search(held, self._at)
                if mark is None:
                    self._at = len(held)
                    return False
                self._at, sign = mark.end(), mark[0]
                if sign in head.quotes:
                    self._quote = sign
                elif sign in _CLOSER and (head.python or sign != "("):
                    self._stack += _CLOSER[sign]
                elif sign == self._stack[-1:]:
                    self._stack = self._stack[:-1]
                elif sign in ")]}" and (head.python or sign != ")"):
                    self._state = "off"
                    return False
            if not self._quote and not self._stack:
                return True

    def _read_closers(self) -> bool:
        """Read what ends the object around arguments."""
        while self._at < len(self._held):
            sign = self._held[self._at]
            if sign == ",":
                self._state = "rest"
                return True
            if sign != "}" and not sign.isspace():
                self._end(self._at)  # some write fewer than they opened
                return True
            self._at += 1
            if sign == "}":
                self._stack = self._stack[1:]
                if not self._stack:
                    self._end(self._at)
                    return True
        return False

    def _read_after(self) -> bool:
        """Read what may stand between two calls."""
        held = self._held
        while closing := _CLOSING.match(held, self._at):
            if closing[1] == "```":
                if not self._fenced:
                    break  # another one opens
                self._fenced = False
            self._at = closing.end()
        rest = held[self._at :].lstrip()
        if not rest or _CLOSING_PART.fullmatch(rest):
            return False
        return self._read_head(self._at)

    def _end(self, at: int) -> None:
        assert self.head is not None
        self._calls.append((self.head, self._value, at))
        self._state, self._at = "after", at

    def _end_cut(self) -> None:
        """End a call whose last brackets were never written; a text that is open stays so."""
        assert self.head is not None
        if self._quote or self.head.python:
            return
        end = _CUT.search(self._held)
        at = len(self._held) if end is None else end.start()
        if self._state == "value":
            self._held = self._held[:at] + self._stack[::-1] + self._held[at:]
            self._value = at = at + len(self._stack)
        self._end(at)

    # --- what was read

    def _call(self, head: Head, text: str, notes: list[str]) -> ToolCall | None:
        """The call of a head and its arguments; None where they are none."""
        schema = self._schemas.get(head.name)
        try:
            arguments = _keywords(text, schema or {}) if head.python else _object(text)
        except (ValueError, RecursionError):
            return None
        known = {} if schema is None else schema.get("properties") or {}
        if not isinstance(arguments, dict):
            return None
        if isinstance(arguments.get("properties"), dict) and "properties" not in known:
            return None  # a tool's definition
        if schema is None:
            names = ", ".join(self._schemas)
            problem = f"no such tool: {head.name}; the tools are {names}"
            return ToolCall(head.name, arguments, problem=problem)
        if not is_flat(arguments):
            problem = f"the arguments of {head.name} are nested more than {MOST_LEVELS} deep"
            return ToolCall(head.name, {}, problem=problem)
        closed = not schema.get("additionalProperties") and "patternProperties" not in schema
        for key, value in list(arguments.items()):
            copied = closed and key in _COPIED and key not in known
            if copied or (value is None and _is_optional(key, schema)):
                del arguments[key]
                why = "copied from its schema" if copied else "null"
                notes.append(f"{head.name}: the argument {key!r} was left out: {why}")
        return ToolCall(head.name, arguments)


def calls_in(answer: str, tools: Tools) -> Dressed:
    """The calls that a whole answer is; see `DressWatch`."""
    watch = DressWatch(tools)
    watch.push(answer)
    return watch.found()


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


_ANY_CALLED = re.compile(r"(?:\w+\.)?([A-Za-z_]\w*)\(\s*")


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
        word = text[at:]
        if within and _BEFORE_PART.fullmatch(text, begin):
            return True
        last = word.rpartition(".")[2]
        if any_name:
            return re.fullmatch(r"[\w.]*", word) is not None
        return re.fullmatch(r"(?:\w+\.)?[\w-]*", word) is not None and any(
            name.startswith(last) for name in names
        )
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


def _object(text: str) -> Any:
    """The value of an object of JSON, in a text of JSON, or of Python's.

    Raises:
        ValueError: it is none.
    """
    tries = [text, text[1:-1]] if text.startswith("{{") else [text]
    for one in tries:
        for form in (str, words_as_json):
            try:
                value = _LINES.decode(_LOOSE.sub(lambda mark: mark[1] or "", form(one)))
            except ValueError:
                continue
            return _object(value) if isinstance(value, str) and value[:1] == "{" else value
    raise ValueError("no object")


def _keywords(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as Python writes it; those without a name in the schema's order.

    Raises:
        ValueError: they are none.
    """
    text = _LOOSE.sub(lambda mark: mark[1] or "", words_as_json(text) + ")")[:-1]
    places, arguments, at = list(schema.get("properties") or {}), dict[str, Any](), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        keyword = re.compile(r"(\w+)\s*=\s*").match(text, at)
        if keyword is not None:
            key, at = keyword[1], keyword.end()
        elif not schema:  # of a tool that is not there
            key = f"argument_{len(arguments) + 1}"
        elif len(arguments) < len(places) and list(arguments) == places[: len(arguments)]:
            key = places[len(arguments)]
        else:
            raise ValueError("an argument has no name")
        if key in arguments:
            raise ValueError("an argument is there twice")
        arguments[key], at = _LINES.raw_decode(text, at)
        after = text[at:].lstrip()
        if after and after[0] != ",":
            raise ValueError("a comma is missing")
        at = len(text) - len(after) + bool(after)
    return arguments


def _is_optional(key: str, schema: Mapping[str, Any]) -> bool:
    """Whether an argument may be left out and may not be null."""
    if key in schema.get("required", ()):
        return False
    one = (schema.get("properties") or {}).get(key)
    kind = one.get("type") if isinstance(one, Mapping) else None
    return isinstance(kind, str) and kind != "null"
