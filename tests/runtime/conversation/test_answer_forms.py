"""Answers of fixed forms: they quote what was given, in whole words, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.tokens.tokenizer import Tokenizer

FORMS = 'ANSWER: "It says " QUOTE "." | "Line " NUMBER "."'
GIVEN = "app.log:12: disk full on /dev/sda1\nport = 8080"


@pytest.fixture
def tokenizer(nano_tokenizer: Tokenizer) -> Tokenizer:
    return nano_tokenizer


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


def conversation(tokenizer: Tokenizer, *said: str | tuple[dict[str, object], str]) -> list[int]:
    """Tokens of questions and answers by turns, and of calls with their results between them."""
    parts: list[tuple[str, bool]] = []
    roles = ["user", "assistant"]
    for one in said:
        if isinstance(one, str):
            parts += [(f"<|im_start|>{roles[0]}\n", True), (one, False), ("<|im_end|>\n", True)]
            roles.reverse()
            continue
        call = json.dumps({"name": "tool", "arguments": one[0]})
        parts += [("<|im_start|>assistant\n<tool_call>", True), (call, False)]
        parts += [("</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n", True)]
        parts += [(one[1], False), ("\n</tool_response><|im_end|>\n", True)]
    parts.append(("<|im_start|>assistant\n", True))
    return tokenizer.encode_parts(parts)


def claims(tokenizer: Tokenizer, forms: str, text: str, *said: str | tuple) -> bool:
    """Whether an answer may be `text` after a conversation, in the forms of `ANSWER`."""
    grammar = CallGrammar(tokenizer, forms=forms)
    constraint = grammar.constraint(before=conversation(tokenizer, *said))
    return taken(constraint, tokenizer, text)


SETTINGS = """a.conf:3:port = 80
a.conf:7:export PORT="8080"  # the port
a.conf:9:  "port": 443,
a.conf:12:# default port 22
a.conf:13:;port = 23
a.conf:15:- port: 99
b.conf:2:name: red fish"""


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("port is 80", True),
        ("name is red fish", True),
        ("PORT is 8080", True),
        ("port in a.conf is 443", True),
        ("port is 80 (line 3); 443 (line 9); 99 (line 15)", True),
        ("port is 80 (line 3); 443 (line 9); 22 (line 12); 99 (line 15)", True),
        ("port is 80 (line 3); 99 (line 15)", False),  # one is missing
        ("port is 443 (line 9); 99 (line 15)", False),
        ("port in b.conf is 443", False),  # of another file
        ("port is red fish", False),  # of another name
        ("name is 80", False),
        ("port is 443 (line 3)", False),  # of another line
        ("port is 80 (line 3); 80 (line 3)", False),
        ("port is 443 (line 9); 80 (line 3)", False),
        ("PORT is 8080 (line 7); the port (line 7)", False),
        ("name is red fish (line 2)", False),  # it has no other
        ("color is red", False),
    ],
)
def test_a_setting_is_a_name_with_what_stands_behind_it(
    tokenizer: Tokenizer, text: str, right: bool
) -> None:
    """On the same line of the same file; several places in their order, each once."""
    found = ({"pattern": "port|name", "regex": True}, SETTINGS)
    assert claims(tokenizer, "ANSWER: SETTING", text, "The port?", found) is right


def test_a_setting_where_nothing_is_set(tokenizer: Tokenizer) -> None:
    """Nothing can be said."""
    found = ({"pattern": "tea"}, "No matches found.")
    forms = 'ANSWER: SETTING | "None."'
    assert claims(tokenizer, forms, "None.", "The tea?", found)
    assert not claims(tokenizer, forms, "tea is tea", "The tea?", found)


SEARCH = ({"pattern": "x.?y", "regex": True}, "a.log:1:x y\nb c.log:2:the x_y\nb c.log:7:X.Y")
ONE = ({"pattern": "x", "path": "a.log"}, 'a.log:3: ERROR: x failed\na.log:12:{"error": "x"}')
READ = ({"path": "a.log", "start": 3, "end": 4}, "3\tx failed: x\n4\t")
LIST = ({}, "a.log\nb/")
MANY = ({}, "\n".join("ä" * 9 for _ in range(90)))


@pytest.mark.parametrize(
    ("claim", "result", "right", "wrong"),
    [
        ("{pattern} is in {files}", SEARCH, ["x y is in a.log, b c.log"], ["x y is in a.log"]),
        ("{pattern} in {lines} of {file}", ONE, ["x in 3, 12 of a.log"], ["x in 3 of a.log"]),
        ("{pattern} in {lines} of {file}", SEARCH, [], ["x y in 1, 2, 7 of a.log"]),
        ("{number} of {file}", SEARCH, ["1 of a.log", "7 of b c.log"], ["1 of b c.log"]),
        ("{number} is {text}", READ, ["3 is x failed: x"], ["3 is x failed", "4 is "]),
        ("{blank} is empty", READ, ["4 is empty"], ["3 is empty"]),
        ("the {end}", READ, ["the failed: x", "the x failed: x"], ["the x failed", "the x"]),
        ("the {end}", ONE, ["the x failed", "the x"], ["the ERROR: x", "the failed at"]),
        ("in {file}: {end}", SEARCH, ["in a.log: x y"], ["in b c.log: x y", "in a.log: x"]),
        ("{entries}", LIST, ["a.log, b/"], ["a.log", "b/, a.log"]),
        ("{entries}", READ, [], ["3\tx failed: x, 4\t"]),
        ("{entries}", ({}, "a\nb\n[cut: 3 of 5 entries not shown]"), ["a, b and more"], ["a, b"]),
        ("{entries}", MANY, [", ".join("ä" * 9 for _ in range(60)) + " and more"], ["ä" * 9]),
        ("no {QUOTE} in {path}", ONE, ["no failed in a.log"], ["no tea in a.log", "no x in b"]),
    ],
)
def test_a_claim_is_true_of_a_result(
    tokenizer: Tokenizer,
    claim: str,
    result: tuple[dict[str, object], str],
    right: list[str],
    wrong: list[str],
) -> None:
    """Each field is what the call, its result, or a line of it has; lists are whole."""
    forms = f"ANSWER: CLAIM\n%claim CLAIM {json.dumps(claim)}"
    for text in right + wrong:
        assert claims(tokenizer, forms, text, "What?", result) is (text in right), text


@pytest.mark.parametrize(
    ("result", "empty"), [("(empty file)", True), ("1\tx", False), ("1\t(empty file)", False)]
)
def test_a_claim_that_a_result_must_begin_with(
    tokenizer: Tokenizer, result: str, empty: bool
) -> None:
    """And what its fields are may stand in that."""
    forms = 'ANSWER: "No." | A\n%claim A "{path} is empty." "(empty"\n%claim A "?" "{path} has"'
    said = ("What is in a.txt?", ({"path": "a.txt"}, result))
    assert claims(tokenizer, forms, "a.txt is empty.", *said) is empty
    assert claims(tokenizer, forms, "No.", *said)
    assert claims(tokenizer, forms, "?", "What?", ({"path": "a.txt"}, "a.txt has 3 lines"))


def test_a_claim_of_what_was_not_found_says_where_the_result_left_something_out(
    tokenizer: Tokenizer,
) -> None:
    """A search that ended early, or met what it may not read, found nothing as far as it went."""
    forms = 'ANSWER: A\n%claim A "No file mentions {QUOTE}." "No matches found."'
    whole = ("Which mentions port?", ({"pattern": "port"}, "No matches found."))
    cut = (whole[0], ({"pattern": "port"}, "No matches found.\n[cut: a could not be read]"))
    plain, limited = "No file mentions port.", "No file mentions port, as far as I searched."
    assert claims(tokenizer, forms, plain, *whole)
    assert not claims(tokenizer, forms, limited, *whole)
    assert claims(tokenizer, forms, limited, *cut)
    assert not claims(tokenizer, forms, plain, *cut)


def test_a_call_that_failed_does_not_say_that_something_is_nowhere(tokenizer: Tokenizer) -> None:
    """An answer made of it says why; what failed for other reasons makes none."""
    forms = 'ANSWER: "No." | A\n%claim A "There is no error in {path}." ""'
    call = {"pattern": "error", "path": "{text}.log"}
    denied = ("An error?", (call, "error: no permission to read: {text}.log"))
    plain = "There is no error in {text}.log."
    told = "There is no error in {text}.log that I could see: no permission to read: {text}.log"
    assert claims(tokenizer, forms, told, *denied)
    assert not claims(tokenizer, forms, plain, *denied)
    assert claims(tokenizer, forms, plain, "An error?", (call, "No matches found."))
    assert not claims(tokenizer, forms, plain, "An error?", (call, "error: the pattern is empty"))


def test_claims_are_about_the_results_since_the_last_question(tokenizer: Tokenizer) -> None:
    """Of earlier ones, where no tool was called, those that no result must begin with."""
    forms = (
        'ANSWER: "No." | A\n%claim A "Line {number} says {text}"\n%claim A "Not in {path}." "No"'
    )
    first = ("Line 1?", ({"path": "a"}, "1\tx"), ({"path": "b"}, "No match"), "Line 1 says x")
    then = (*first, "And line 2?", ({"path": "a", "start": 2}, "2\ty"))
    assert claims(tokenizer, forms, "Not in b.", *first[:3])
    assert claims(tokenizer, forms, "Line 1 says x", *first, "Again?")
    assert not claims(tokenizer, forms, "Not in b.", *first, "Again?")
    assert claims(tokenizer, forms, "Line 2 says y", *then)
    assert not claims(tokenizer, forms, "Line 1 says x", *then)


@pytest.mark.parametrize("text", ['say "x"', "a\\b", "\x1b[31mred", "tab\tend", "Ünï ✓", "{end}"])
def test_any_text_can_stand_in_a_claim(tokenizer: Tokenizer, text: str) -> None:
    """Also what grammars, or forms themselves, write otherwise."""
    forms = 'ANSWER: A\n%claim A "It says {text}"\n%claim A "The end is {end}"'
    result = ({"path": "a"}, f"1\t{text}")
    assert claims(tokenizer, forms, f"It says {text}", "What?", result)
    assert claims(tokenizer, forms, f"The end is {text}", "What?", result)


def test_calls_are_not_quoted(tokenizer: Tokenizer) -> None:
    """What the model searched for is no fact: only what came back is."""
    forms = 'ANSWER: "It says " QUOTE "."'
    result = ({"pattern": "panic"}, "no match")
    assert claims(tokenizer, forms, "It says no match.", "who?", result)
    assert claims(tokenizer, forms, "It says who.", "who?", result)
    assert not claims(tokenizer, forms, "It says panic.", "who?", result)


def test_a_call_that_was_cut_ends_with_its_turn(tokenizer: Tokenizer) -> None:
    """What comes behind it may be quoted."""
    ids = tokenizer.encode('<tool_call>{"pat<|im_end|>\ndisk full', special=True)
    for text, right in (("It says disk full.", True), ("It says pat.", False)):
        grammar = CallGrammar(tokenizer, forms=FORMS)
        assert taken(grammar.constraint(before=ids), tokenizer, text) is right


def test_forms_that_cannot_be_used(tokenizer: Tokenizer) -> None:
    """A file's forms that are no grammar are an error that names them and the way out."""
    with pytest.raises(GrammarError, match=r"triplepoint\.answers.*answer_forms=False"):
        turn(tokenizer, forms='ANSWER: "a" | MISSING').mask()


def test_a_schema_goes_before_forms(tokenizer: Tokenizer) -> None:
    """An answer of a given type is what the caller asked for."""
    grammar = CallGrammar(tokenizer, output={"type": "integer"}, forms=FORMS)
    assert grammar.forms is None
    assert taken(grammar.constraint(), tokenizer, "42")
