"""GBNF grammars: what they accept is what llama.cpp's notation says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation.gbnf import lark_of
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reasoning_tags import NO_THINKING
from triplepoint.runtime.tokens.tokenizer import Tokenizer

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ws  # no exponents
ws     ::= | " " | "\n" [ \t]{0,20}
"""

CASES = [
    ('root ::= "yes" | "no"', ["yes", "no"], ["maybe", "yesno", ""]),
    ("root ::= [0-9]+ [^a-z]", ["12!", "7\n"], ["x!", "12a"]),
    ('root ::= item{2,3}\nitem ::= "- " [^\\n]+ "\\n"', ["- a\n- b\n"], ["- a\n", "- a\n" * 4]),
    ('root ::= ("a" root "b")?', ["", "ab", "aabb"], ["aab", "ba"]),
    (r'root ::= "\u00e9\x41" [\u4e00-\u9fff] "\U0001F600"', ["éA語\U0001f600"], ["eA語\U0001f600"]),
    (r'root ::= "\u0022" [\u005b\u005d\u002f]+ "\u0022"', ['"[]/"'], ['"a"', "[]/"]),
    ('root ::= "a" . "b" # any: . [ "', ["a.b", "a\nb", "aéb"], ["ab", "a..b"]),
    (r"""root ::= a-1 | a-2 # dashes
          a-1 ::= "x/y"
          a-2 ::= [\]\\-]""", ["x/y", "]", "\\", "-"], ["x", "/"]),
    ('root ::= start "!" | 1a{2}\nstart ::= "v"\n1a ::= "w"', ["v!", "ww"], ["v", "w"]),
    (JSON, ['{"a": [1, -2.5, "\\u00e9\\n"]} ', "{}"], ["[1]", '{"a": 01}', '{"a"}']),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "good", "bad"), CASES)
def test_what_is_accepted(
    make_tokenizer: Callable[..., Tokenizer], grammar: str, good: list[str], bad: list[str]
) -> None:
    """Token by token, in whatever pieces; the turn may end where the grammar does."""
    tokenizer = make_tokenizer()
    made = CallGrammar(tokenizer, output=grammar, thinking=NO_THINKING)
    (end,) = [next(iter(tokenizer.stop_ids))]

    def accepts(text: str) -> bool:
        ids = [*tokenizer.encode(text), end]
        return made.constraint().allows(ids) == len(ids)

    assert [text for text in good if not accepts(text)] == []
    assert [text for text in bad if accepts(text)] == []


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ("hello", "Expected ::="),
        ("root ::= x", "Rule 'x' not found"),
        ('x ::= "a"', "root"),
        ('root ::= "a', "not a GBNF grammar"),
        ('root ::= "\\ud800"', "is no character"),
        ("root ::= [z-a]", "cannot be used"),
        ("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested too deeply"),
        ("root ::= <[42]>", "not a GBNF grammar"),
    ],
)
def test_what_is_refused(make_tokenizer: Callable[..., Tokenizer], grammar: str, why: str) -> None:
    """An error of ours, which says what is wrong."""
    with pytest.raises(GrammarError, match=why) as caught:
        CallGrammar(make_tokenizer(), output=grammar, thinking=NO_THINKING)
    assert "GBNF" in str(caught.value)


def test_an_answer_after_thinking_may_begin_with_a_break(
    make_tokenizer: Callable[..., Tokenizer],
) -> None:
    """In a conversation, as templates put line breaks behind a thought; not in a text."""
    tokenizer = make_tokenizer()
    ids = tokenizer.encode("\nyes")
    turn = CallGrammar(tokenizer, output='root ::= "yes"')
    text = CallGrammar(tokenizer, output='root ::= "yes"', thinking=NO_THINKING)
    assert turn.constraint().allows(ids) == len(ids)
    assert text.constraint().allows(ids) == 0
    assert "thinking" not in turn.recipe
    assert text.recipe["thinking"] is False


def test_the_translation_is_the_librarys() -> None:
    """Rules keep their names, so that an error speaks of them."""
    assert "item" in lark_of('root ::= item+\nitem ::= "a" item | "b"')
