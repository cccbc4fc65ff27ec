"""Calls whose arguments hold what ends calls, or what another reader would stumble over."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from helpers.format_checks import END, read, same, take

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
PARAMETERS = {
    "type": "object",
    "properties": {"text": TEXT, "list": TEXTS, "n": {"type": "number"}},
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
]
CLOSED = [form.name for form in FORMATS.values() if form.closing]


@pytest.mark.parametrize("name", CLOSED)
def test_a_closing_tag_in_an_argument(make_tokenizer: MakeTokenizer, name: str) -> None:
    """Where the tag is letters, those in a text end no call, wherever tokens end."""
    form = FORMATS[name]
    tokenizer = make_tokenizer((), template=None)
    quoted = [f"{form.closing}", f'"{form.closing}\\', f"a{form.closing}\n{form.closing}b"]
    calls = [ToolCall("f", {"text": text, "list": quoted}) for text in quoted]
    calls = calls[:1] if form.single else calls
    text = form.render(calls) + END
    grammar = CallGrammar(tokenizer, TOOLS, form)
    assert take(grammar.constraint(), tokenizer, text) is None

    for ids in (
        tokenizer.encode(text, special=True),
        [tokenizer.encode(letter)[0] for letter in text.removesuffix(END)] + tokenizer.encode(END),
    ):
        reply = read(tokenizer, form, ids, TOOLS)
        assert (reply.broken, reply.cut_call) == ([], None)
        assert same(reply.calls, calls)


@pytest.mark.parametrize("tags", [True, False], ids=["tokens", "letters"])
def test_the_end_of_a_value_in_a_list(make_tokenizer: MakeTokenizer, tags: bool) -> None:
    """GLM: within JSON it is a text's own letters; a text of its own ends there."""
    form = FORMATS["glm"]
    tokenizer = make_tokenizer(form.tags if tags else (), template=None)
    quoted = 'a</arg_value>\\"' + form.closing * tags
    text = f'{form.opening}f\n<arg_key>list</arg_key>\n<arg_value>["{quoted}"]</arg_value>\n'
    before, after = text.split(quoted)
    parts = [(before, True), (quoted, False), (after + form.closing + END, True)]
    ids = tokenizer.encode_parts(parts)
    constraint = CallGrammar(tokenizer, TOOLS, form).constraint()
    for token in ids:
        mask = constraint.mask()
        assert mask is None or int(mask[token // 32]) >> token % 32 & 1
        constraint.advance(token)

    reply = read(tokenizer, form, ids, TOOLS)
    assert [call.arguments for call in reply.calls] == [{"list": [quoted.replace("\\", "")]}]


@pytest.mark.parametrize("name", ["json", "gemma", "minimax-m1"])
@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x7f"])
def test_signs_that_end_lines_elsewhere(
    make_tokenizer: MakeTokenizer, name: str, sign: str
) -> None:
    """Calls a line each are cut at line breaks alone: JSON has these signs in texts as they are."""
    form = FORMATS[name]
    tokenizer = make_tokenizer(tuple(form.tags), template=None)
    calls = [ToolCall("f", {"text": f"a{sign}b"}), ToolCall("f", {"list": [sign]})]
    ids = tokenizer.encode(form.render(calls) + END, special=True)
    assert same(read(tokenizer, form, ids, TOOLS).calls, calls)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_tags_where_no_call_is(make_tokenizer: MakeTokenizer, form: Any) -> None:
    """A tag that stands within calls only, outside of them, ends no reader."""
    tokenizer = make_tokenizer(tuple(dict.fromkeys(form.tags)), template=None)
    for tag in form.tags:
        read(tokenizer, form, tokenizer.encode(f"a{tag}b{tag}{END}", special=True), TOOLS)


def test_a_name_that_is_no_text_of_json(make_tokenizer: MakeTokenizer) -> None:
    """Whoever asks for pieces of a call that no grammar held gets what is there."""
    form = FORMATS["hermes"]
    tokenizer = make_tokenizer(form.tags, template=None)
    for name in ("f\x14", "f\\q"):
        text = f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
        reader = ReplyReader(tokenizer, form, tools=TOOLS)
        pieces = []
        for token in tokenizer.encode(text, special=True):
            reader.push(token)
            pieces += reader.call_pieces()
        assert {piece.name for piece in pieces} == {name}
        assert reader.finish().broken


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_number_without_end(make_tokenizer: MakeTokenizer, form: Any) -> None:
    """What is larger than any float is the largest one: a call can always be written as JSON."""
    tokenizer = make_tokenizer(tuple(dict.fromkeys(form.tags)), template=None)
    for number in ("1e999", "-1e999"):
        text = form.render([ToolCall("f", {"n": 12345})]).replace("12345", number) + END
        reply = read(tokenizer, form, tokenizer.encode(text, special=True), TOOLS)
        (call,) = reply.calls
        assert abs(call.arguments["n"]) > 1e308
        json.dumps(call.arguments, allow_nan=False)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_are_no_numbers(make_tokenizer: MakeTokenizer, word: str) -> None:
    """JSON has none of them, whatever Python reads."""
    form = FORMATS["hermes"]
    tokenizer = make_tokenizer(form.tags, template=None)
    text = form.render([ToolCall("f", {"n": 12345})]).replace("12345", word) + END
    reply = read(tokenizer, form, tokenizer.encode(text, special=True), TOOLS)
    assert reply.calls == []
    assert f"{word} is no number of JSON" in reply.broken[0]
