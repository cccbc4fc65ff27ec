"""Tool calls, and the base class of the formats in which models write them.

A `ToolFormat` is one such way: the texts that open and close a call, the grammar of what is
between them, and how that is read back. The known ones are in `formats`.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from ....errors import GrammarError
from .call_pieces import JSON_HEAD
from .schemas import HARD, strict

MAX_CALLS = 16  # in one turn; a model that exceeds that is in a loop
MAX_LEVELS = 100  # of lists and objects inside each other, in the arguments of a call

Tools = Sequence[Mapping[str, Any]]
"""OpenAI-style schemas of tools."""

Tag = Callable[[str], str]
"""Returns the grammar expression of a tag: its token where it has one, else its letters."""

JSON_STYLE = {
    # What json.dumps writes and models were trained on.
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    # No \uXXXX: half of a surrogate pair would be text that no file name or encoder takes.
    "json_allowed_escapes": 'nrbtf\\"',
}


def is_flat(value: Any, levels: int = MAX_LEVELS) -> bool:
    """Return whether a value is at most `levels` deep, so that it can be serialized again."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(is_flat(item, levels - 1) for item in inside)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed tool call of the model, not yet validated against the tool's schema."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    """The call's text as the model wrote it, without tags."""
    problem: str = ""
    """Why an unconstrained call cannot be parsed or run; such a call must not run."""
    id: str = ""
    """The call's identifier, where the model or the agent set one."""

    @property
    def json_arguments(self) -> str:
        """Return the arguments as JSON in the style of the grammar."""
        return json.dumps(self.arguments, ensure_ascii=False)

    @property
    def key(self) -> str:
        """Return a comparison key: equal for calls with the same name and arguments."""
        return f"{self.name} {json.dumps(self.arguments, sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class CallPrefix:
    """A text that opens a call."""

    text: str
    where: Literal["anywhere", "line", "turn"] = "anywhere"
    """Where the text opens a call: anywhere, at the start of a line, or of the turn."""
    in_call: bool = False
    """Whether the text is part of the call itself rather than a tag before it."""


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of the messages that a turn is made of.

    A message begins with `start` and `role`, which the template writes for the first one; what
    precedes `message` is its header, and `end` ends it.
    """

    start: str
    role: str
    channel: str
    """Tag before the channel, which names the kind of a message."""
    message: str
    end: str
    thinking: str
    """Text that marks the header of a thinking message."""
    recipient: str
    """Text that marks the header of a call."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags that begin, divide and end messages."""
        return (self.start, self.channel, self.message, self.end)


class ToolFormat(ABC):
    """Base class of tool-call formats: tags, grammar, parser and renderer."""

    name: str
    openings: tuple[CallPrefix, ...]
    """Texts that begin calls; from each on, the grammar constrains the model."""
    closing: str = ""
    """Text that ends one call; empty where the end of the turn ends all calls."""
    inner: tuple[str, ...] = ()
    """Tags inside a call."""
    reserved: tuple[str, ...] = ()
    """Further tags that the model must never write, such as those around tool results."""
    example: str
    """An example of a call, for the tools prompt of a template without tools."""
    single: bool = False
    """Whether a turn has at most one call."""
    on_request: bool = False
    """Whether only a template, and never the vocabulary, selects this format."""
    call_head: re.Pattern[str] | None = None
    """Pattern of the text before a call's JSON arguments; its first group is the name, plain or as
    a JSON string. See `CallPieces`."""
    hints: tuple[str, ...] = ()
    """Texts that a template of this format contains besides the opening."""
    headers: Headers | None = None
    """The message headers of a turn, for a format that also frames answers and thinking."""

    @property
    def opening(self) -> str:
        """Return the text that opens a call: a tag, or the call's first characters."""
        return self.openings[0].text

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags that are single tokens in a vocabulary made for this format."""
        tags = [opening.text for opening in self.openings if not opening.in_call]
        return (*tags, *filter(None, (self.closing,)), *self.inner, *self.reserved)

    def speaks(self, template: str) -> bool:
        """Return whether a chat template is made for this format."""
        return all(text in template for text in (self.opening, *self.hints))

    def grammar(self, tools: Tools, tag: Tag, lenient: Container[str] = ()) -> str:
        """Return the Lark rules of the text after an opening.

        ``calls`` is everything after the first tag; ``kept_0``, ``kept_1`` … what follows the
        `in_call` openings, in their order; ``whole_0``, ``whole_1`` … include these openings,
        split so that an answer may begin with the same letters (`spelled`).

        Args:
            tools: OpenAI-style schemas.
            tag: see `Tag`.
            lenient: names of the tools whose schemas exceed what a grammar can express.
        """
        return "\n".join([*self.rules(tools, tag), *self.argument_rules(tools, tag, lenient)])

    @abstractmethod
    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        """Return the rules of `grammar` for everything but the arguments."""

    def argument_rules(self, tools: Tools, tag: Tag, lenient: Container[str]) -> list[str]:
        """Return the rules ``arguments_0`` …: the JSON object that each tool takes."""
        rules = []
        for i, tool in enumerate(tools):
            function = tool["function"]
            schema = function.get("parameters") or {"type": "object"}
            rule = _object_rule(json.dumps(schema), function["name"] in lenient)
            rules.append(f"arguments_{i}: {rule}")
        return rules

    def notes(self, tools: Tools, lenient: Container[str] = ()) -> Iterable[str]:
        """Return what `grammar` omits of the schemas, a sentence each; empty for JSON.

        Args:
            tools: OpenAI-style schemas.
            lenient: names of the tools that are already reported.
        """
        return ()

    def turn(self, tag: Tag, *, calls: bool, answer: str | None) -> str:
        """Return the Lark rules of a whole turn, for a format with `headers`.

        Args:
            tag: see `Tag`.
            calls: whether there are tools; then the rules of `grammar` are added to these.
            answer: grammar expression of an answer; None where only calls are allowed.
        """
        raise NotImplementedError(f"{self.name} is about calls alone")

    @abstractmethod
    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the calls in the text between the tags.

        Args:
            body: the text between the tags, openings that are `in_call` included.
            tools: OpenAI-style schemas, for formats that do not say of what type a value is.

        Raises:
            ValueError: it is not well-formed; says why.
        """

    def within_text(self, body: str) -> bool:
        """Return whether a partial call is inside a string, so that a closing tag there is text."""
        return False

    @abstractmethod
    def render(self, calls: Sequence[ToolCall]) -> str:
        """Render calls as the model writes them, tags included."""

    def one_call(self) -> ToolFormat:
        """Return a copy of the format that allows one call a turn."""
        form = copy.copy(self)
        form.single = True
        return form

    def without_calls(self) -> ToolFormat:
        """Return a copy of the format that detects no calls."""
        form = copy.copy(self)
        form.openings, form.closing, form.inner = (), "", ()
        return form

    def many(self, item: str, separator: str) -> str:
        """Return the expression of up to `MAX_CALLS` items, or of one if the format is `single`."""
        return item if self.single else f"{item} ({separator} {item}){{0,{MAX_CALLS - 1}}}"


class JsonFormat(ToolFormat):
    """Base class of formats in which a call is a JSON object with a name and arguments."""

    call_head = JSON_HEAD

    def within_text(self, body: str) -> bool:
        return any(not text[1] for text in _JSON_TEXTS.finditer(body))


@lru_cache(maxsize=256)
def _object_rule(given: str, loose: bool) -> str:
    """Return the grammar expression of the JSON objects that a schema allows, cached.

    Raises:
        GrammarError: the schema does not describe an object, or none can be made from it.
    """
    schema = strict(json.loads(given), HARD if loose else ())
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise GrammarError("it does not describe an object")
    return json_rule({**schema, "type": "object"}, loose)


def heads(tools: Tools, arguments: str = "arguments", skip: int = 0) -> list[str]:
    """Return each tool's JSON call up to its arguments as a Lark literal, from `skip` on."""
    return [quoted(head[skip:]) for head in head_texts(tools, arguments)]


def head_texts(tools: Tools, arguments: str = "arguments") -> list[str]:
    """Return each tool's JSON call up to its arguments as text."""
    names = (json.dumps(tool["function"]["name"], ensure_ascii=False) for tool in tools)
    return [f'{{"name": {name}, "{arguments}": ' for name in names]


def spelled(head: str) -> str:
    """Split the beginning of a JSON object into the literals that `json_rule` uses.

    The lexer prefers the longest literal: a longer one would keep answers from beginning so.
    """
    return " ".join(map(quoted, _WORDS.findall(head)))


def json_rule(schema: Mapping[str, Any], lenient: bool = False) -> str:
    """Return the grammar expression of the JSON values that a schema allows."""
    style = {**JSON_STYLE, "lenient": lenient}
    return f"%json {json.dumps({**schema, 'x-guidance': style}, ensure_ascii=False)}"


def letters_of(schema: Mapping[str, Any], lenient: bool = False) -> str:
    """Return the grammar expression of the strings, without quotes, that a schema allows.

    Args:
        schema: of a text: its lengths and its pattern count.
        lenient: leave the pattern out, as no grammar can express it.
    """
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", "")
    parts = [f"/(?s:.{{{shortest},{longest}}})/"] if shortest or longest != "" else []
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not lenient:
        parts.append(f"/{_whole(pattern)}/")
    return f"({' & '.join(parts)})" if parts else "/(?s:.*)/"


def _whole(pattern: str) -> str:
    """Expand a schema's pattern to match whole texts that contain a match of it."""
    choices, depth, start, at = [], 0, 0, 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "[":
            found = _SET.match(pattern, at)
            at = found.end() if found else at + 1
            continue
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and not depth:
            choices.append(pattern[start:at])
            start = at + 1
        at += 2 if letter == "\\" else 1
    choices.append(pattern[start:])
    text = "|".join(map(_open, choices))
    # The slash ends an expression, and a line end breaks it off.
    return re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\/", text).replace("\n", r"\n")


def _open(choice: str) -> str:
    """Pad one alternative of a pattern with any text at each end that has no anchor."""
    begins, ends = choice.startswith("^"), _ENDS.search(choice) is not None
    inside = choice[begins : len(choice) - ends]
    return f"{'' if begins else _ANY}({inside}){'' if ends else _ANY}"


_ANY = "(?s:.*)"
_JSON_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*("|\\?\Z)', re.DOTALL)  # whole or cut at the end
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|[{\[]|[:,] ')
_SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_ENDS = re.compile(r"(?<!\\)(?:\\\\)*\$\Z")


def any_of(rule: str, count: int) -> str:
    """Return the alternatives ``rule_0`` to ``rule_{count - 1}`` as an expression."""
    return f"({' | '.join(f'{rule}_{i}' for i in range(count))})"


def quoted(text: str) -> str:
    """Quote a text as a Lark literal."""
    return json.dumps(text, ensure_ascii=False)


def _number(text: str) -> float:
    """Parse a number; clamp it to the finite floats, so that JSON can represent it."""
    return min(max(float(text), -sys.float_info.max), sys.float_info.max)


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_no_number)
"""JSON decoder whose values can all be serialized to JSON again."""


def read_json(text: str) -> Any:
    """Parse a JSON text with `DECODER`.

    Raises:
        ValueError: it is none.
    """
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the tool call is not JSON: {error}") from None


def read_value(
    text: str, at: int = 0, what: str = "the tool call's arguments are"
) -> tuple[Any, int]:
    """Parse the JSON value at an index of a text; return it and where it ends.

    Raises:
        ValueError: there is none; says that `what` is not JSON.
    """
    try:
        return DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} not JSON: {error}") from None


def call_of(data: Any, text: str = "") -> ToolCall:
    """Convert a JSON object with a name and arguments (or parameters) to a call.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ValueError('a tool call must be {"name": …, "arguments": {…}}')
    arguments = data.get("arguments", data.get("parameters", {}))
    if not isinstance(arguments, dict):
        raise ValueError(f"{data['name']}: the arguments must be a JSON object")
    call_id = data.get("id")
    text = text.strip() or json.dumps(data, ensure_ascii=False)
    call_id = call_id if isinstance(call_id, str) else ""
    return ToolCall(data["name"], arguments, text, id=call_id)


def calls_of(text: str) -> list[ToolCall]:
    """Parse a JSON object, or a list of them, as calls.

    Raises:
        ValueError: there is none.
    """
    data = read_json(text)
    if isinstance(data, list):
        if not data:
            raise ValueError("a tool call is missing: the list is empty")
        return [call_of(item) for item in data]
    return [call_of(data, text)]


def written(call: ToolCall, arguments: str = "arguments") -> str:
    """Serialize a call as a JSON object in the style of the grammar."""
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)
