"""Detects a template's tool-call format from a call that it renders.

What a template says of a format is only a hint: many share a tag. So a call is rendered, and the
format is the one whose grammar takes what the template wrote and whose reader gives the same call
back. Then what the model is shown, what it is held to and what is read are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, filterfalse
from typing import TYPE_CHECKING, Any

from ...errors import TemplateError
from .caches import LRUCache
from .formats import FORMATS
from .formats.toolcalls import CallPrefix, ToolCall, ToolFormat, quoted
from .template import ChatTemplate

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_WORD, _QUESTION, _ANSWERED = "quinceberry", "What-about-zyzzyva?", "Nothing-of-zyzzyva."
_ARGUMENTS: dict[str, Any] = {
    "text": f'{_WORD} "q" \\ <b> é\n漢, {{1}}',
    "count": -7,
    "ratio": 2.5,
    "sure": True,
    "where": {"deep": [1, {"word": "a b"}], "line": "x"},
}
_INNER = {"type": "object", "properties": {"word": {"type": "string"}}}
_DEEP = {"type": "array", "items": {"anyOf": [{"type": "integer"}, _INNER]}}
_LOCATION = {"deep": _DEEP, "line": {"type": "string"}}
_PROPERTIES: dict[str, Any] = {
    "text": {"type": "string", "description": "A text."},
    "count": {"type": "integer", "description": "A number."},
    "ratio": {"type": "number", "description": "A number."},
    "sure": {"type": "boolean", "description": "Yes or no."},
    "where": {"type": "object", "description": "A place.", "properties": _LOCATION},
}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": [*_PROPERTIES]}
_FUNCTION = {"name": "probe_zyzzyva", "description": "Looks.", "parameters": _PARAMETERS}
_TOOL: dict[str, Any] = {"type": "function", "function": _FUNCTION}
_CALL = ToolCall("probe_zyzzyva", _ARGUMENTS, id="c00010100")
_ESCAPED = re.compile(r"\\u(?!d[89a-f])([0-9a-f]{4})", re.IGNORECASE)
_DOUBLED = re.compile(r'\{\{\s*"name"\s*:[^\n]*\}\}')
_MAX_CACHED = 64  # templates that are remembered


@dataclass(frozen=True, slots=True)
class Written:
    """Result of `written_by`: whether and in which format a template writes calls."""

    calls: bool = False
    """Whether the template writes calls at all."""
    form: ToolFormat | None = None
    """The format of the calls; None where no known format matches."""
    mends: tuple[tuple[str, str], ...] = ()
    """Pairs of a text that shows calls in doubled braces, and its correction."""


_known: LRUCache[Written] = LRUCache(_MAX_CACHED)


def written_by(template: ChatTemplate, options: Mapping[str, Any]) -> Written:
    """Detect how a template writes calls; cached by its text and options.

    Args:
        template: compiled.
        options: further variables that it is given.
    """
    key = (template.source, repr(sorted(options.items())), *FORMATS)
    return _known.get(key, lambda: _written_by(template, options))


def _written_by(template: ChatTemplate, options: Mapping[str, Any]) -> Written:
    function = {"name": _CALL.name, "arguments": _CALL.arguments}
    call = {"type": "function", "id": _CALL.id, "function": function}
    question = {"role": "user", "content": _QUESTION}
    calling = {"role": "assistant", "content": "", "tool_calls": [call]}
    answered = {"role": "tool", "name": _CALL.name, "tool_call_id": _CALL.id, "content": _ANSWERED}
    prompt = cache(lambda: _around_question(template, [question], options)[1] or "")
    for talk in ([question, calling, answered], [question, calling]):
        before, turn = _around_question(template, talk, options)
        if turn is None:
            continue
        turn = turn.partition(_ANSWERED)[0]
        if _WORD not in turn:
            return Written()
        hinted, forms = lambda form: form.speaks(template.source), FORMATS.values()
        likely = chain(filter(hinted, forms), filterfalse(hinted, forms))
        form = next((form for form in likely if _reads(form, turn, prompt)), None)
        as_json = form is not None and form.call_head is not None
        return Written(True, form, _mends(before) if as_json else ())
    return Written()


def _mends(prompt: str) -> tuple[tuple[str, str], ...]:
    """Find the calls that a prompt shows in doubled braces; pair each with its correction.

    Published templates do: their text once was a format string. A model that is shown
    ``{{"name": …}}`` writes that.
    """
    return tuple((one, _single(one)) for one in dict.fromkeys(_DOUBLED.findall(prompt)))


def _single(shown: str) -> str:
    """Replace doubled braces of a call by single ones: all of them, or the outer ones."""
    inner = shown[1:-1]
    return inner.replace("{{", "{").replace("}}", "}") if "{{" in inner else inner


def _around_question(
    template: ChatTemplate, talk: list[dict[str, Any]], options: Mapping[str, Any]
) -> tuple[str, str | None]:
    """Render a conversation; return the text before and after the question, None if refused."""
    try:
        text = template.render(talk, tools=[_TOOL], options=options)
    except TemplateError:
        return "", None
    before, found, after = text.rpartition(_QUESTION)
    return before, after if found else None


def _reads(form: ToolFormat, turn: str, prompt: Callable[[], str]) -> bool:
    """Return whether a format's grammar and parser accept the rendered call."""
    number = 0
    for opening in form.openings:
        rule = f"kept_{number}" if opening.in_call else "calls"
        number += opening.in_call
        for at in _openings(opening, turn, prompt):
            rest = turn[at + len(opening.text) :]
            # The same letters in JSON; the grammars know them only as they are.
            rest = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), rest)
            body = taken(form, rule, rest, [_TOOL])
            if body is None:
                continue
            body = (opening.text if opening.in_call else "") + body
            if form.closing:
                body = body.rstrip().removesuffix(form.closing)
            try:
                calls = form.parse(body, [_TOOL])
            except ValueError:
                continue
            if [call.key for call in calls] == [_CALL.key]:
                return True
    return False


def _openings(opening: CallPrefix, turn: str, prompt: Callable[[], str]) -> list[int]:
    """Return the indices at which a format's opening may open a call in a turn."""
    found = [match.start() for match in re.finditer(re.escape(opening.text), turn)]
    if opening.where == "anywhere":
        return found
    # No tag distinguishes such a call from words, so only the prompt may precede it.
    return [at for at in found if turn[:at].strip() == prompt().strip()]


def taken(form: ToolFormat, rule: str, text: str, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the longest prefix of a text that a format's grammar accepts as whole calls.

    Args:
        form: the format.
        rule: its start rule: ``calls`` or one of ``kept_0`` …
        text: what follows the opening, tags as letters.
        tools: OpenAI-style schemas.
    """
    from llguidance import LLMatcher

    grammar = f"start: {rule}\n{form.grammar(tools, quoted)}"
    matcher = LLMatcher(_letters(), grammar, log_level=0)
    letters = text.encode()
    end = None
    for i, letter in enumerate(letters, 1):
        if not matcher.try_consume_tokens([letter]):
            break
        if matcher.is_accepting():
            end = i
    return None if end is None else letters[:end].decode()


@cache
def _letters() -> LLTokenizer:
    """Return matcher tables of a vocabulary of single bytes, to match text without a tokenizer."""
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()))


class _Bytes:
    """Byte-level tokenizer with the interface that llguidance expects."""

    bos_token_id = None
    eos_token_id = 256
    special_token_ids = (256,)
    tokens = (*(bytes([letter]) for letter in range(256)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)
