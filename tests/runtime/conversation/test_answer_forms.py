"""Answers of fixed forms: they quote what was given, in whole words, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation.answer_forms import quotable
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.inference.engine import Engine
from triplepoint.runtime.tokens.tokenizer import Tokenizer

FORMS = 'ANSWER: "It says " QUOTE "." | "Line " NUMBER "."'
GIVEN = "app.log:12: disk full on /dev/sda1\nport = 8080"


@pytest.fixture(scope="module")
def tokenizer() -> Iterator[Tokenizer]:
    """The embedded model's."""
    with Engine.load("nano") as engine:
        yield engine.tokenizer


def turn(tokenizer: Tokenizer, given: str = GIVEN, forms: str = FORMS) -> TurnConstraint:
    """The constraint of a turn after `given`."""
    grammar = CallGrammar(tokenizer, forms=forms)
    return grammar.constraint(before=tokenizer.encode(given))


def taken(constraint: TurnConstraint, tokenizer: Tokenizer, text: str) -> bool:
    """Whether the text is allowed, token by token, and may end there."""
    for token in [*tokenizer.encode(text), min(tokenizer.stop_ids)]:
        words = constraint.mask()
        assert words is not None
        if not words[token // 32] >> np.uint32(token % 32) & 1:
            return False
        constraint.advance(token)
    return constraint.done


@pytest.mark.parametrize(
    "text", ["It says disk full on /dev/sda1.", "It says port = 8080.", "Line 12.", "Line 8080."]
)
def test_what_was_given_may_be_quoted(tokenizer: Tokenizer, text: str) -> None:
    """Any run of words within a line, and any number."""
    assert taken(turn(tokenizer), tokenizer, text)


@pytest.mark.parametrize("word", ["0" * 1500, "x" * 600 + "y" * 600])
def test_a_long_word_may_be_quoted(tokenizer: Tokenizer, word: str) -> None:
    """A line without a space is one word: it takes the lexer more steps than it usually has."""
    assert taken(turn(tokenizer, f"1\t{word}\n"), tokenizer, f"It says {word}.")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("It says disk is full.", "words that do not stand side by side"),
        ("It says disk fu.", "half of a word"),
        ("It says port = 80.", "half of a number"),
        ("It says /dev/sda1\nport.", "two lines"),
        ("It says banana.", "what stands nowhere"),
        ("Line 13.", "a number that stands nowhere"),
        ("Line port.", "no number"),
        ("Well, it says port.", "no form"),
    ],
)
def test_nothing_else_may(tokenizer: Tokenizer, text: str, why: str) -> None:
    """Each is refused."""
    assert not taken(turn(tokenizer), tokenizer, text), why


SETTINGS = """a.conf:3:port = 80
a.conf:7:export PORT="8080"  # the port
a.conf:9:  "port": 443,
name: red fish"""


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("port is 80", True),
        ("name is red fish", True),
        ("PORT is 8080", True),
        ("port in a.conf is 443", True),
        ("port is 80 (line 3); 443 (line 9)", True),
        ("port is red fish", False),  # of another name
        ("name is 80", False),
        ("port is 443 (line 3)", False),  # of another line
        ("port is 80 (line 3); 80 (line 3)", False),
        ("port is 443 (line 9); 80 (line 3)", False),
        ("PORT is 8080 (line 7); the port (line 7)", False),
        ("name is red fish (line 1)", False),  # it has no number
        ("color is red", False),
    ],
)
def test_a_setting_is_a_name_with_what_stands_behind_it(
    tokenizer: Tokenizer, text: str, right: bool
) -> None:
    """On the same line; several places in their order, each once."""
    constraint = turn(tokenizer, SETTINGS, "ANSWER: SETTING")
    assert taken(constraint, tokenizer, text) is right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a.log", True),
        ("a.log, b c.log, d.log", True),
        ("a.log, d.log", True),
        ("d.log", True),
        ("a.log, a.log", False),
        ("d.log, a.log", False),
        ("e.log", False),
    ],
)
def test_files_that_a_search_found_are_named_once(
    tokenizer: Tokenizer, text: str, right: bool
) -> None:
    """Any of them, in the order of the result."""
    given = "a.log:1:x\na.log:3:x\nb c.log:2:x\nd.log:1:x in e.log"
    assert taken(turn(tokenizer, given, "ANSWER: FOUND"), tokenizer, text) is right


def test_a_setting_where_nothing_is_set(tokenizer: Tokenizer) -> None:
    """The rules can be made of any text."""
    assert taken(turn(tokenizer, "tea", "ANSWER: SETTING"), tokenizer, "tea is tea")


def test_calls_are_not_quoted(tokenizer: Tokenizer) -> None:
    """What the model searched for is no fact: only what came back is."""
    ids = tokenizer.encode(
        'who?\n<tool_call>{"pattern": "panic"}</tool_call>\nno match', special=True
    )
    opening, closing = (
        tokenizer.encode(t, special=True)[0] for t in ("<tool_call>", "</tool_call>")
    )
    text = quotable(tokenizer, ids, opening, closing)
    assert "panic" not in text
    assert "who?" in text
    assert "no match" in text


def test_a_call_that_was_cut_ends_with_its_turn(tokenizer: Tokenizer) -> None:
    """What comes behind it may be quoted."""
    ids = tokenizer.encode('<tool_call>{"pat<|im_end|>\ndisk full', special=True)
    opening, closing = (
        tokenizer.encode(tag, special=True)[0] for tag in ("<tool_call>", "</tool_call>")
    )
    text = quotable(tokenizer, ids, opening, closing)
    assert "disk full" in text
    assert "pat" not in text


def test_forms_that_cannot_be_used(tokenizer: Tokenizer) -> None:
    """A file's forms that are no grammar are an error that names them and the way out."""
    with pytest.raises(GrammarError, match=r"triplepoint\.answers.*answer_forms=False"):
        turn(tokenizer, forms='ANSWER: "a" | MISSING').mask()


def test_a_schema_goes_before_forms(tokenizer: Tokenizer) -> None:
    """An answer of a given type is what the caller asked for."""
    grammar = CallGrammar(tokenizer, output={"type": "integer"}, forms=FORMS)
    assert grammar.forms is None
    assert taken(grammar.constraint(), tokenizer, "42")
