"""Calls that are written as text are held to their tools, from the arguments on."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest
from helpers.call_dresses import ARGUMENTS, DRESSES, TEXTS, TOOLS, TOOLSET, written

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.conversation.reasoning_tags import Thinking
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.conversation.requirement import Requirement, grammar_of
from triplepoint.runtime.tokens.tokenizer import Tokenizer

REQUIRED = Requirement("hermes", TOOLS, thinking=Thinking(), dresses=True)


def allows(constraint: TurnConstraint, token: int) -> bool:
    """Whether a token may come next."""
    mask = constraint.mask()
    return mask is None or bool(mask[token // 32] >> token % 32 & 1)


def walk(constraint: TurnConstraint, tokens: Iterable[int]) -> list[bool]:
    """For each token that may come whether it came within a call."""
    within = []
    for token in tokens:
        if not allows(constraint, token):
            break
        constraint.advance(token)
        within.append(constraint.calling)
    return within


UNHELD = ("python by place",)
"""Dresses of which no grammar holds the arguments: they have no names."""
REFUSED = ("all braces doubled", "further keys")
"""Dresses that are read, and that the grammar lets nobody write to their end."""


@pytest.mark.parametrize("dress", DRESSES)
def test_a_whole_call_may_be_written(tokenizer: Tokenizer, dress: str) -> None:
    """In any dress; a matcher holds it from its arguments to its end, and then no more."""
    for name in ARGUMENTS:
        tokens = tokenizer.encode(f"{DRESSES[dress](name)}\nwell")
        constraint = grammar_of(tokenizer, REQUIRED).constraint()
        within = walk(constraint, tokens)

        if dress in REFUSED:
            assert within[-1]
            continue
        assert len(within) == len(tokens)
        assert not constraint.in_call
        if name == "read_file":  # in a call without arguments there is nothing to be held
            assert any(within) == (dress not in UNHELD)


@pytest.mark.parametrize(
    ("begun", "right", "wrong"),
    [
        ('{"name": "read_file", "arguments": {', '"path": "', '"file'),
        ('```json\n{\n  "name": "read_file",\n  "arguments": {', '\n    "path"', "}"),
        ('{{"name": "read_file", "arguments": {"path": "a"', "}}}", ', "additional'),
        ('{"name": "read_file", "arguments": {"path": "a", "start": ', "7", '"'),
        ('<tools>\n{"name": "now", "parameters": {', "}}", '"type"'),
        ('I look.\nread_file(path="a", ', "start=3)", "line"),
        ('```tool_code\nedit(path="', 'a", changes=[', 'a", really'),
        ('[{"name": "now", "arguments": {}}, {"name": "read_file", "args": {', '"path"', "}"),
    ],
)
def test_what_follows_is_well_formed(
    tokenizer: Tokenizer, begun: str, right: str, wrong: str
) -> None:
    """Names of parameters and types are the tool's, and the turn cannot end within the call."""
    for text, passes in ((right, True), (wrong, False)):
        constraint = grammar_of(tokenizer, REQUIRED).constraint()
        first, second = tokenizer.encode(begun), tokenizer.encode(text)
        assert len(walk(constraint, first)) == len(first)
        assert constraint.calling
        assert not any(allows(constraint, stop) for stop in tokenizer.stop_ids)
        drafted = constraint.allows(second)
        assert (drafted == len(second), len(walk(constraint, second)) == len(second)) == (
            passes,
            passes,
        )


HELD = {"a schema", "an argument twice", "cut"}
"""Texts that become calls under the grammar, since calls are what they begin as."""


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - HELD))
def test_text_stays_free(tokenizer: Tokenizer, name: str) -> None:
    """Each token of it may come, as without dresses, and a turn may end where no call stands."""
    tokens = tokenizer.encode(TEXTS[name])
    constraint = grammar_of(tokenizer, REQUIRED).constraint()
    assert len(walk(constraint, tokens)) == len(tokens)
    if not name.startswith("cut"):
        assert all(allows(constraint, stop) for stop in tokenizer.stop_ids)


def test_without_dresses_nothing_changes(tokenizer: Tokenizer) -> None:
    """The mask is the fixed one, whatever is written."""
    grammar = CallGrammar(tokenizer, TOOLS, "hermes", thinking=Thinking())
    constraint = grammar.constraint()
    for token in tokenizer.encode('{"name": "read_file", "arguments": {"file": 1}}'):
        assert constraint.mask() is grammar.free
        constraint.advance(token)


def test_a_thought_is_no_call(tokenizer: Tokenizer) -> None:
    """Whether the template or the model opens it; behind it a call is held."""
    call = tokenizer.encode(written("read_file"))
    for opened in (True, False):
        constraint = grammar_of(tokenizer, REQUIRED).constraint(thinking=opened)
        tags = [tokenizer.encode(tag, special=True) for tag in ("<think>", "</think>")]
        thought = [*([] if opened else tags[0]), *call, *tags[1]]
        assert not any(walk(constraint, thought))
        assert any(walk(constraint, call))


def test_tokens_alone_decide(tokenizer: Tokenizer) -> None:
    """The same tokens give the same masks; a draft ends where a call begins."""
    tokens = tokenizer.encode(f"Hm.\n{written('read_file')}\n")
    one, two = (grammar_of(tokenizer, REQUIRED).constraint() for _ in range(2))
    for n, token in enumerate(tokens):
        masks = [constraint.mask() for constraint in (one, two)]
        assert (masks[0] is None) == (masks[1] is None)
        assert masks[0] is None or (masks[0] == masks[1]).all()
        if not one.in_call:
            end = n + one.allows(tokens[n:])
            assert end > n
        one.advance(token)
        two.advance(token)
        assert one.calling == two.calling
    recipe = json.loads(json.dumps(REQUIRED.recipe))
    assert recipe["dresses"] is True
    assert Requirement.read(recipe, REQUIRED.contents) == REQUIRED
    assert "dresses" not in Requirement("hermes", TOOLS).recipe


def test_forced_letters_are_known(tokenizer: Tokenizer) -> None:
    """What alone may come within a call is written without a pass; in text nothing is forced."""
    constraint = grammar_of(tokenizer, REQUIRED).constraint()
    key = tokenizer.encode('"path"')
    begun = tokenizer.encode('{"name": "read_file", "arguments": {')
    walk(constraint, [*begun, key[0]])
    written_on = [key[0]]
    while (token := constraint.forced()) is not None:
        constraint.advance(token)
        written_on.append(token)
    assert '"path"'.startswith(tokenizer.decode(written_on))
    assert len(written_on) > 1

    text = grammar_of(tokenizer, REQUIRED).constraint()
    for token in tokenizer.encode(f"{written('read_file')}\nwell"):
        assert text.in_call or text.forced() is None
        text.advance(token)


BEGUN = (
    '{"name": "read_file", "arguments": {',
    '{{"name": "edit", "parameters": {"path": ',
    '[{"type": "function", "name": "now", "arguments": {',
    "read_file(path=",
    '```tool_code\nread_file(path="a", ',
)


@pytest.mark.parametrize("seed", range(40))
def test_what_the_grammar_lets_pass_fits(tokenizer: Tokenizer, seed: int) -> None:
    """Tokens drawn within a call of any dress end in a call that fits the tool's schema."""
    rng = np.random.default_rng(seed)
    begun = BEGUN[seed % len(BEGUN)]
    constraint = grammar_of(tokenizer, REQUIRED).constraint()
    ids = tokenizer.encode(begun)
    assert len(walk(constraint, ids)) == len(ids)
    assert constraint.calling
    marks = [token for text in "\"}])'" for token in tokenizer.encode(text)]
    while constraint.calling:
        mask = constraint.mask()
        assert mask is not None
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.n_vocab]
        likely = [token for token in marks if bits[token]]
        choices = likely if likely and rng.random() < 0.5 else np.flatnonzero(bits)
        ids.append(int(rng.choice(choices)))
        constraint.advance(ids[-1])
    reader = ReplyReader(tokenizer, FORMATS["hermes"], tools=TOOLS)
    for token in [*ids, min(tokenizer.stop_ids)]:
        reader.push(token)
    (call,) = reader.finish().calls
    assert not call.problem
    TOOLSET.get(call.name).validate(call.arguments)
