"""Patterns of a schema hold in every format, also where texts stand without quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import numpy as np
import pytest
from helpers.agents import END
from pydantic import Field

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, ToolFormat
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet
from triplepoint.tools.schema_tool import SchemaTool

MakeTokenizer = Callable[..., Tokenizer]
PATTERNS = {
    r"^[a-z]{2}-\d+$": (["ab-1", "xy-20"], ["ab-", "ab-1 ", "Ab-1", "zab-1", ""]),
    r"b+": (["b", "abba", "a\nb"], ["", "ac"]),
    r"^a|z$": (["a", "ab", "yz", "az"], ["b", "za", ""]),
    r"^(a|b)/[|/]$": (["a/|", "b//"], ["a/", "/|", "a"]),
    r"^x": (["x", "x\ny"], ["", "yx"]),
    r"\$$": (["$", "a$"], ["a", "$a"]),
    r"^[^]a]\.$": (["b."], ["a.", "bb", "]."]),
}


def code(pattern: str, most: int | None = None) -> SchemaTool:
    """A tool that takes a text of a pattern."""
    text = {"type": "string", "pattern": pattern}
    if most is not None:
        text["maxLength"] = most  # pyright: ignore[reportArgumentType]
    schema = {"type": "object", "properties": {"text": text}, "required": ["text"]}
    return SchemaTool("code", "Takes a code.", schema, "read", str)


@pytest.fixture(params=[True, False], ids=["tokens", "letters"])
def vocabulary(
    make_tokenizer: MakeTokenizer, request: pytest.FixtureRequest
) -> Callable[[ToolFormat], Tokenizer]:
    """A vocabulary in which a format's tags are tokens, or are not."""

    def make(form: ToolFormat) -> Tokenizer:
        return make_tokenizer(
            tuple(dict.fromkeys(form.tags)) if request.param else (), template=None
        )

    return make


def fits(grammar: CallGrammar, form: ToolFormat, text: str) -> bool:
    """Whether a call with this text may be written, token by token."""
    constraint = grammar.constraint()
    written = form.render([ToolCall("code", {"text": text})]) + END
    for token in grammar.tokenizer.encode(written, special=True):
        mask = constraint.mask()
        if mask is not None and not mask[token // 32] >> np.uint32(token % 32) & 1:
            return False
        constraint.advance(token)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_patterns_hold_token_by_token(
    vocabulary: Callable[[ToolFormat], Tokenizer], form: ToolFormat
) -> None:
    """What the pattern is found in may be written, and nothing else."""
    tokenizer = vocabulary(form)
    for pattern, (right, wrong) in PATTERNS.items():
        grammar = CallGrammar(tokenizer, ToolSet([code(pattern)]).schemas(), form)
        assert [text for text in right if not re.search(pattern, text)] == []
        assert [text for text in wrong if re.search(pattern, text)] == []
        assert [text for text in right if not fits(grammar, form, text)] == [], pattern
        assert [text for text in wrong if fits(grammar, form, text)] == [], pattern
        assert grammar.notes == []


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_pattern_and_length_hold_together(
    vocabulary: Callable[[ToolFormat], Tokenizer], form: ToolFormat
) -> None:
    """Both, not one of them."""
    grammar = CallGrammar(vocabulary(form), ToolSet([code("^a+$", 3)]).schemas(), form)

    found = [fits(grammar, form, text) for text in ("a", "aaa", "aaaa", "b", "")]
    assert found == [True, True, False, False, False]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_what_no_grammar_can_hold_is_said_by_name(
    vocabulary: Callable[[ToolFormat], Tokenizer], form: ToolFormat
) -> None:
    """The call may be written then, and is refused when it is validated."""
    tool = code("^(?=.*[0-9]).+$")
    grammar = CallGrammar(vocabulary(form), ToolSet([tool]).schemas(), form)

    assert fits(grammar, form, "abc")
    assert len(grammar.notes) == 1
    assert grammar.notes[0].startswith("tool code: a part of its schema is checked only once")


def test_a_function_says_its_pattern(vocabulary: Callable[[ToolFormat], Tokenizer]) -> None:
    """As a field of pydantic."""

    def code(text: Annotated[str, Field(pattern="^[0-9]+$")]) -> str:
        """Takes a code."""
        return text

    form = FORMATS["qwen3-coder"]
    grammar = CallGrammar(vocabulary(form), ToolSet([code]).schemas(), form)
    assert (fits(grammar, form, "12"), fits(grammar, form, "1a")) == (True, False)
