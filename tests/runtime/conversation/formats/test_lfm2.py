"""LFM2's calls: Python's notation, as its templates and its models write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from helpers.format_checks import END, same, take
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.proof import taken
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet, tool

FORM = FORMATS["lfm2"]


@tool
def label(word: Annotated[str, Field(min_length=2, max_length=5)], sure: bool = True) -> str:
    """Takes a short text."""
    return f"{word} {sure}"


@tool
def anything(where: dict[str, Any], what: list[dict[str, str]], how: str | None = None) -> str:
    """Takes mappings, alone and in a list."""
    return f"{where} {what} {how}"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("f()", {}),
        ("f(a='x', b=-1.5e3)", {"a": "x", "b": -1500.0}),
        ("""f(a='say "q"', b="it's")""", {"a": 'say "q"', "b": "it's"}),
        (r"f(a='it\'s \\ \n \t \q \x41 \u00e9')", {"a": "it's \\ \n \t \\q A é"}),
        (r'f(a="\ud83d\ude00 \ud83d")', {"a": "😀 \ufffd"}),
        ("f(a='two\nlines, (x)=[y]')", {"a": "two\nlines, (x)=[y]"}),
        ("f(a=True, b=None, c=false, d=null)", {"a": True, "b": None, "c": False, "d": None}),
        ("f( a = [1, 'x', {'k': True}] )", {"a": [1, "x", {"k": True}]}),
        ('f(a={"k": [1, {"w": "a \'b\'"}]})', {"a": {"k": [1, {"w": "a 'b'"}]}}),
        ("f(a='True', b='<|tool_call_end|>')", {"a": "True", "b": "<|tool_call_end|>"}),
    ],
)
def test_reads_python(text: str, arguments: dict[str, Any]) -> None:
    """Quotes of both kinds, escapes, Python's words and JSON's, and texts of several lines."""
    (call,) = FORM.parse(f"[{text}]")
    two = FORM.parse(f" [{text}, g.h()]\n")

    assert (call.name, call.arguments) == ("f", arguments)
    assert [(c.name, c.arguments) for c in two] == [("f", arguments), ("g.h", {})]
    body = FORM.render([call]).removeprefix(FORM.opening).removesuffix(FORM.closing)
    assert same(FORM.parse(body), [ToolCall("f", arguments)])


@pytest.mark.parametrize(
    "text", ["f(", "f(1)", "f(a=)", "f(a=b)", "f(a=1 b=2)", "f(a='x)", "f() g()", "f(a=g())"]
)
def test_refuses_what_is_no_call(text: str) -> None:
    """No name, no value, code in a value's place, no comma: nothing of it is made up."""
    with pytest.raises(ValueError, match=r"call|argument"):
        FORM.parse(f"[{text}]")


def test_lengths_count_escapes_once(make_tokenizer: Callable[..., Tokenizer]) -> None:
    """A quote that has to be escaped is one letter of a text, as the schema counts them."""
    tokenizer = make_tokenizer(FORM.tags, template=None)
    grammar = CallGrammar(tokenizer, ToolSet([label]).schemas(), FORM)
    for word, fits in (("'\\'\n'", True), ("'" * 5, True), ("'" * 6, False), ("'", False)):
        written = FORM.render([ToolCall("label", {"word": word})])
        assert (take(grammar.constraint(), tokenizer, written + END) is None) is fits, word


def test_both_ways_to_write_a_mapping(make_tokenizer: Callable[..., Tokenizer]) -> None:
    """As JSON, which templates write, and as Python writes one within a list."""
    tokenizer = make_tokenizer(FORM.tags, template=None)
    grammar = CallGrammar(tokenizer, ToolSet([anything]).schemas(), FORM)
    for arguments in (
        """where={"a": 1}, what=[{"b": "c"}], how=None""",
        """where={'a': 'x'}, what=[{'b': "it's"}, {}], how="y\"""",
        """where={}, what=[]""",
    ):
        written = f"<|tool_call_start|>[anything({arguments})]<|tool_call_end|>"
        assert take(grammar.constraint(), tokenizer, written + END) is None, arguments
    for arguments in ("where=1, what=[]", "where={}, what=[{'b': 1}]", "what=[], where={}"):
        written = f"<|tool_call_start|>[anything({arguments})]<|tool_call_end|>"
        assert take(grammar.constraint(), tokenizer, written + END) is not None, arguments


LETTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\t\"'\\,()[]{}=")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(LETTERS, max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(LETTERS, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(value=VALUES, text=st.text(LETTERS, max_size=30))
def test_any_value_comes_back(value: Any, text: str) -> None:
    """What is written of any value is read as it was."""
    call = ToolCall("f", {"value": value, "text": text})
    body = FORM.render([call]).removeprefix(FORM.opening).removesuffix(FORM.closing)

    assert same(FORM.parse(body), [call])


@given(text=st.text(LETTERS, max_size=30), sure=st.booleans())
def test_any_text_may_be_written(text: str, sure: bool) -> None:
    """The grammar takes every text that is not bounded, and nothing of the next argument."""
    schemas = ToolSet([said]).schemas()
    written = FORM.render([ToolCall("said", {"text": text, "sure": sure})])
    body = written.removeprefix(FORM.opening)

    assert taken(FORM, "calls", body, schemas) == body


@tool
def said(text: str, sure: bool) -> str:
    """Takes a text."""
    return f"{text} {sure}"
