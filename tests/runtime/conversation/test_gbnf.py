"""GBNF grammars: what they accept is what llama.cpp's notation says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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
    ('root ::= ([a-z]{1,3})? "x"', ["x", "abx", "xx"], ["", "abcdx"]),
    ('root ::= ("a"+){2} (("b"{2})*)?', ["aa", "aaabbbb"], ["a", "aabbb"]),
    ("/[a-c/]+\\n?/", ["a/c", "b\n"], ["", "d", "a\n\n"]),
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


Matches = Callable[[str, int], set[int]]
Node = tuple[str, Matches]
"""Of a grammar: its text, and the ends of what it matches of a text from a place on."""


def literal(text: str) -> Node:
    """The text itself."""
    return json.dumps(text), lambda t, i: {i + len(text)} if t.startswith(text, i) else set()


def one_of(chars: str, inverted: bool) -> Node:
    """A character class; one without characters that is inverted is any character."""
    shown = f"[{'^' * inverted}{chars}]" if chars else "."
    return shown, lambda t, i: {i + 1} if i < len(t) and (t[i] in chars) != inverted else set()


def in_order(nodes: list[Node]) -> Node:
    """One after the other."""

    def matches(text: str, start: int) -> set[int]:
        ends = {start}
        for _, one in nodes:
            ends = {end for at in ends for end in one(text, at)}
        return ends

    return f"({' '.join(shown for shown, _ in nodes)})", matches


def either(nodes: list[Node]) -> Node:
    """One of them."""
    shown = f"({' | '.join(shown for shown, _ in nodes)})"
    return shown, lambda t, i: {end for _, one in nodes for end in one(t, i)}


def repeated(node: Node, count: tuple[str, int, int]) -> Node:
    """The same several times."""
    (shown, one), (mark, low, high) = node, count

    def matches(text: str, start: int) -> set[int]:
        found, ends = set[int](), {start}
        for times in range(min(high, low + len(text)) + 1):
            found |= ends if times >= low else set()
            ends = {end for at in ends for end in one(text, at)}
        return found

    return f"({shown}){mark}", matches


COUNTS = [("?", 0, 1), ("*", 0, 99), ("+", 1, 99), ("{2}", 2, 2), ("{1,3}", 1, 3), ("{2,}", 2, 99)]
NODES: st.SearchStrategy[Node] = st.recursive(
    st.builds(literal, st.sampled_from(["a", "b", "ab", '"', "/"]))
    | st.builds(one_of, st.sampled_from(["ab", "b/", '"']), st.booleans())
    | st.just(one_of("", True)),
    lambda nodes: (
        st.builds(in_order, st.lists(nodes, min_size=1, max_size=3))
        | st.builds(either, st.lists(nodes, min_size=1, max_size=3))
        | st.builds(repeated, nodes, st.sampled_from(COUNTS))
    ),
    max_leaves=6,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    node=NODES,
    split=st.booleans(),
    texts=st.lists(st.text('ab"/\n', max_size=6), min_size=4, max_size=8),
)
@example(node=repeated(repeated(literal("a"), COUNTS[4]), COUNTS[0]), split=True, texts=["", "a"])
@example(node=repeated(repeated(literal("a"), COUNTS[2]), COUNTS[3]), split=False, texts=["aa"])
@example(
    node=in_order(
        [
            repeated(one_of("", True), COUNTS[1]),
            repeated(in_order([literal("ab"), literal("a")]), COUNTS[0]),
        ]
    ),
    split=False,
    texts=["ab", "aba", "xab"],
)
def test_what_any_grammar_accepts(
    make_tokenizer: Callable[..., Tokenizer], node: Node, split: bool, texts: list[str]
) -> None:
    """The same texts as a matcher that reads the notation itself, in one rule or in two."""
    shown, matches = node
    tokenizer = make_tokenizer()
    rules = f'root ::= "" part\npart ::= {shown}' if split else f"root ::= {shown}"
    made = CallGrammar(tokenizer, output=rules, thinking=NO_THINKING)
    for text in texts:
        ids = [*tokenizer.encode(text), next(iter(tokenizer.stop_ids))]
        accepted = made.constraint().allows(ids) == len(ids)
        assert accepted == (len(text) in matches(text, 0)), (rules, text)


def test_the_translation_is_the_librarys() -> None:
    """Rules keep their names, so that an error speaks of them."""
    assert "item" in lark_of('root ::= item+\nitem ::= "a" item | "b"')
