"""The grammar of tool calls: whatever the logits are, what comes out is a call of a known tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from helpers.grammar_samples import no_arguments, read_file
from pydantic import BaseModel, Field

from triplepoint.errors import GrammarError, ToolError
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import (
    CallChoice,
    CallGrammar,
    TurnConstraint,
    matcher_tables,
)
from triplepoint.runtime.conversation.reply import Reply, ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import Tool, ToolSet, tool

MakeTokenizer = Callable[..., Tokenizer]


class Color(Enum):
    """Two texts that JSON must escape, and one that it need not."""

    RED = "red"
    QUOTE = 'a "b"'
    LINE = "a\nb"


class Point(BaseModel):
    """A nested object."""

    x: float
    y: float = 0.0
    label: str | None = None


@tool
def many(
    text: str,
    count: Annotated[int, Field(ge=1, le=12)],
    share: float,
    color: Color,
    mode: Literal["a", "b", 3],
    points: list[Point],
    names: dict[str, int],
    either: bool | list[str] | None = None,
) -> str:
    """Takes one of everything."""
    return "ok"


TOOLS = ToolSet([read_file, no_arguments, many])


def allowed(constraint: TurnConstraint, n_vocab: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The mask as one bool a token."""
    mask = constraint.mask()
    if mask is None:
        return np.ones(n_vocab, np.bool_)
    assert mask.dtype == np.uint32
    assert mask.shape == (-(-n_vocab // 32),)
    return np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab].astype(np.bool_)


def take(constraint: TurnConstraint, tokenizer: Tokenizer, text: str) -> str | None:
    """Feed a text as the model's; the first piece of it that is not allowed, or None."""
    for token in tokenizer.encode(text, special=True):
        if not allowed(constraint, tokenizer.n_vocab)[token]:
            return tokenizer.token_bytes(token).decode()
        constraint.advance(token)
    return None


def decode(grammar: CallGrammar, rng: np.random.Generator, bias: dict[int, float]) -> list[int]:
    """Greedy choices among random logits under the mask, from the opening tag on."""
    tokenizer = grammar.tokenizer
    constraint = grammar.constraint()
    ids = tokenizer.encode(grammar.form.opening, special=True)
    for token in ids:
        assert allowed(constraint, tokenizer.n_vocab)[token]
        constraint.advance(token)
    while not constraint.done and len(ids) < 3000:
        logits = rng.standard_normal(tokenizer.n_vocab).astype(np.float32)
        for token, more in bias.items():
            logits[token] += more
        logits[~allowed(constraint, tokenizer.n_vocab)] = -np.inf
        assert np.isfinite(logits).any(), tokenizer.decode(ids, special=True)
        ids.append(int(logits.argmax()))
        constraint.advance(ids[-1])
    return ids


def read(grammar: CallGrammar, ids: list[int]) -> Reply:
    """The turn as the agent reads it."""
    reader = ReplyReader(grammar.tokenizer, grammar.form)
    for token in ids:
        reader.push(token)
    return reader.finish()


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_random_logits_make_valid_calls(
    make_tokenizer: MakeTokenizer, tags: bool, seed: int
) -> None:
    """Every turn of random greedy choices under the mask ends in calls that validate."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    rng = np.random.default_rng(seed)
    # Without a push toward the ends of strings and lists, random text goes on for long.
    ends = {tokenizer.encode(text)[0]: 2.0 for text in ('"', "]", "}", "<")}

    finished = 0
    for _ in range(5):
        ids = decode(grammar, rng, {token: 2.0 for token in tokenizer.stop_ids} | ends)
        reply = read(grammar, ids)
        assert reply.broken == []
        assert reply.answer == ""
        for call in reply.calls:
            arguments = TOOLS.get(call.name).validate(call.arguments)
            assert arguments.keys() == call.arguments.keys()
            if call.name != "many":  # a float may be written in other ways than json.dumps does
                assert call.text == json.dumps(json.loads(call.text), ensure_ascii=False)
        if ids[-1] in tokenizer.stop_ids:
            finished += 1
            assert reply.cut_call is None
            assert 1 <= len(reply.calls) <= 16
    assert finished >= 4, "random strings should end well before 3,000 tokens"


@pytest.mark.parametrize("tags", [True, False])
def test_random_turns_from_their_beginning(make_tokenizer: MakeTokenizer, tags: bool) -> None:
    """Free text may say all but control tokens; a call that it opens is held to the grammar."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    rng = np.random.default_rng(1)
    opening = tokenizer.encode("<tool_call>", special=True)
    calls = 0
    for number in range(40):
        constraint = grammar.constraint()
        ids: list[int] = []
        while not constraint.done and len(ids) < 300:
            fits = allowed(constraint, tokenizer.n_vocab)
            token = int(np.where(fits, rng.random(tokenizer.n_vocab), -1.0).argmax())
            if number % 2 and len(ids) < len(opening):
                token = opening[len(ids)]
            assert fits[token]
            ids.append(token)
            constraint.advance(token)
        refused = tokenizer.control_ids - tokenizer.stop_ids
        thinking = set(tokenizer.encode("<think></think>", special=True)) if tags else set()
        call_tags = (
            set(tokenizer.encode("<tool_call></tool_call>", special=True)) if tags else set()
        )
        assert not (set(ids) & (refused - thinking - call_tags))
        reply = read(grammar, ids)
        assert reply.broken == []
        for call in reply.calls:
            TOOLS.get(call.name).validate(call.arguments)
        calls += len(reply.calls) + (reply.cut_call is not None)
    assert calls >= 20


GOOD = (
    '{"name": "read_file", "arguments": {"path": "a b/é \\"x\\" \\n"}}',
    '{"name": "read_file", "arguments": {"path": "x", "start": -3, "end": null}}',
    '{"name": "no_arguments", "arguments": {}}',
    '{"name": "many", "arguments": {"text": "", "count": 12, "share": 1.5e3, "color": "a\\nb", '
    '"mode": 3, "points": [{"x": 1, "label": null}, {"x": 0.5}], "names": {"a": 1, "b": 2}}}',
)
BAD = (
    '{"name": "delete_file", "arguments": {"path": "x"}}',
    '{"name":"no_arguments", "arguments": {}}',
    '{"arguments": {}, "name": "no_arguments"}',
    '{"name": "no_arguments", "arguments": {"x": 1}}',
    '{"name": "no_arguments", "arguments": {} }',
    '{"name": "no_arguments"}',
    '{"name": "read_file", "arguments": {}}',
    '{"name": "read_file", "arguments": {"path": 1}}',
    '{"name": "read_file", "arguments": {"path": "x","start": 1}}',
    '{"name": "read_file", "arguments": {"start": 1, "path": "x"}}',
    '{"name": "read_file", "arguments": {"path": "x", "start": 1.5}}',
    '{"name": "read_file", "arguments": {"path": "x", "start": 01}}',
    '{"name": "read_file", "arguments": {"path": "x", "start": 99999999999999999}}',
    '{"name": "read_file", "arguments": {"path": "x\n"}}',
    '{"name": "read_file", "arguments": {"path": "\\ud800"}}',
    '{"name": "read_file", "arguments": {"path": "x", "path": "y"}}',
    '{"name": "read_file", "arguments": {"path": "x</tool_call>',
    '{"name": "many", "arguments": {"text": "", "count": 13',
    '{"name": "many", "arguments": {"text": "", "count": 1, "share": 1, "color": "blue"',
)  # fmt: skip


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("call", GOOD)
def test_good_calls_are_allowed(make_tokenizer: MakeTokenizer, tags: bool, call: str) -> None:
    """What json.dumps writes for valid arguments can be decoded, alone, in a row and after text."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    one = f"<tool_call>\n{call}\n</tool_call>"

    for turn in (one, f"{one}\n{one}\n{one}", f"I look. {one}", f"<think>\nHm.\n</think>\n\n{one}"):
        constraint = grammar.constraint()
        assert take(constraint, tokenizer, turn + "<|im_end|>") is None
        assert constraint.done


@pytest.mark.parametrize("call", BAD)
def test_bad_calls_are_not(tokenizer: Tokenizer, call: str) -> None:
    """An unknown tool or argument, a wrong type or value, another order or spacing: none passes."""
    grammar = CallGrammar(tokenizer, TOOLS.schemas())

    assert take(grammar.constraint(), tokenizer, f"<tool_call>\n{call}\n</tool_call>") is not None


@pytest.mark.parametrize("after", ["x", "\nx", "\n\n", " ", "</tool_call>", "<think>"])
def test_after_a_call_comes_a_call_or_the_end(tokenizer: Tokenizer, after: str) -> None:
    """Nothing else follows a call in its turn."""
    constraint = CallGrammar(tokenizer, TOOLS.schemas()).constraint()
    call = '<tool_call>\n{"name": "no_arguments", "arguments": {}}\n</tool_call>'

    assert take(constraint, tokenizer, call) is None
    assert take(constraint, tokenizer, after) is not None


def test_free_text_costs_one_fixed_mask(tokenizer: Tokenizer) -> None:
    """Until a call is opened the mask is one and the same array, and no matcher exists."""
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    constraint = grammar.constraint()

    first = constraint.mask()
    take(constraint, tokenizer, "No call, only <tool_call in ordinary letters> here.")

    assert constraint.mask() is first
    assert not constraint.in_call
    constraint.advance(tokenizer.encode("<tool_call>", special=True)[0])
    assert constraint.in_call


def test_free_text_forbids_what_is_not_the_models(tokenizer: Tokenizer) -> None:
    """Control tokens that end no turn, and the tags of results, cannot be said; stops can."""
    constraint = CallGrammar(tokenizer, TOOLS.schemas()).constraint()
    fits = allowed(constraint, tokenizer.n_vocab)

    forbidden = {tokenizer.token_bytes(int(t)).decode() for t in np.flatnonzero(~fits)}
    assert forbidden == {"<|im_start|>", "</tool_call>", "<tool_response>", "</tool_response>"}
    assert all(fits[token] for token in tokenizer.stop_ids)


def test_without_tools_there_are_no_calls(tokenizer: Tokenizer) -> None:
    """An agent without tools cannot open a call."""
    grammar = CallGrammar(tokenizer)

    assert grammar.name == "text"
    assert take(grammar.constraint(), tokenizer, "Hello.<|im_end|>") is None
    assert take(grammar.constraint(), tokenizer, "<tool_call>") == "<tool_call>"


def test_a_refused_token_is_an_error(tokenizer: Tokenizer) -> None:
    """A token that the mask does not allow is reported, not swallowed."""
    constraint = CallGrammar(tokenizer, TOOLS.schemas()).constraint()
    take(constraint, tokenizer, "<tool_call>\n{")

    with pytest.raises(GrammarError, match="breaks the grammar"):
        constraint.advance(tokenizer.encode("}")[0])


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ({"$ref": "#"}, "no grammar can be made from the schema of the answer: .*; simplify"),
        ("root ::= root", "the GBNF grammar cannot be used: "),
    ],
)
def test_an_answer_that_cannot_begin(
    tokenizer: Tokenizer, output: dict[str, str] | str, says: str
) -> None:
    """What only refers to itself is refused before anything is generated."""
    with pytest.raises(GrammarError, match=says):
        CallGrammar(tokenizer, output=output).check()


def test_constraints_of_one_grammar_are_apart(tokenizer: Tokenizer) -> None:
    """Two turns do not share their state."""
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    one, two = grammar.constraint(), grammar.constraint()

    take(one, tokenizer, '<tool_call>\n{"name": "read_')
    take(two, tokenizer, '<tool_call>\n{"name": "no_')

    assert take(one, tokenizer, 'file", "arguments": {"path": "') is None
    assert take(two, tokenizer, 'arguments", "arguments": {}}') is None


@pytest.mark.parametrize("call", GOOD)
def test_what_is_forced_does_not_depend_on_looking(tokenizer: Tokenizer, call: str) -> None:
    """Asked at every token or at a single one, `forced` says the same, and the mask allows it."""
    grammar = CallGrammar(tokenizer, TOOLS.schemas())
    ids = tokenizer.encode(f"<tool_call>\n{call}\n</tool_call>", special=True)
    asked, said = grammar.constraint(), []
    for token in ids:
        said.append(asked.forced())
        mask = asked.mask()
        if said[-1] is not None:
            assert mask is not None
            assert mask[said[-1] // 32] >> np.uint32(said[-1] % 32) & 1
        asked.advance(token)

    for at in range(len(ids)):
        once = grammar.constraint()
        for token in ids[:at]:
            once.advance(token)
        assert once.forced() == said[at]
    assert sum(token is not None for token in said) > 5


def lookahead() -> Tool[..., Any]:
    """A tool whose pattern no grammar of this kind can express."""

    def pick(word: Annotated[str, Field(json_schema_extra={"pattern": "^(?=a)b"})]) -> str:
        """Picks."""
        return word

    return tool(pick)


def test_a_schema_that_cannot_be_expressed_is_said(tokenizer: Tokenizer) -> None:
    """The rest of the schema still holds, and the note names the tool."""
    grammar = CallGrammar(tokenizer, ToolSet([read_file, lookahead()]).schemas())

    if not grammar.notes:
        pytest.skip("this version of llguidance expresses look-ahead")
    assert "tool pick" in grammar.notes[0]
    assert len(grammar.notes) == 1
    call = '<tool_call>\n{"name": "pick", "arguments": {"word": "x"}}\n</tool_call>'
    assert take(grammar.constraint(), tokenizer, call) is None
    assert take(grammar.constraint(), tokenizer, call.replace('"x"', "1")) is not None


def test_an_impossible_schema_is_an_error(tokenizer: Tokenizer) -> None:
    """A schema that nothing fits is refused with the tool's name."""
    function = {"name": "odd", "parameters": {"type": "object", "$ref": "#/$defs/missing"}}

    with pytest.raises(GrammarError, match="tool odd"):
        CallGrammar(tokenizer, [{"type": "function", "function": function}])


def test_tables_are_made_once(tokenizer: Tokenizer) -> None:
    """Two agents on one tokenizer share the matcher's tables."""
    assert matcher_tables(tokenizer) is matcher_tables(tokenizer)


def test_tools_refuse_what_the_grammar_let_pass() -> None:
    """The tools check again: the grammar is not the only wall."""
    with pytest.raises(ToolError):
        TOOLS.get("many").validate({"text": "x"})


@pytest.mark.parametrize("form", ["hermes", "llama", "json"])
def test_calls_that_must_or_must_not_be(tokenizer: Tokenizer, form: str) -> None:
    """`required` lets no answer begin, `none` no call; `auto` takes both."""
    known = FORMATS[form]
    text = known.render([ToolCall("read_file", {"path": "a"})])
    call = tokenizer.encode(text, special=True)
    answer = tokenizer.encode("The disk is full.")

    def taken(ids: list[int], calls: CallChoice) -> bool:
        tools = ToolSet([read_file]).schemas()
        constraint = CallGrammar(tokenizer, tools, known, calls=calls).constraint()
        for token in ids:
            if not constraint.allows([token]):
                return False
            constraint.advance(token)
        return True

    choices: list[CallChoice] = ["auto", "required", "none"]
    assert [taken(call, choice) for choice in choices] == [True, True, False]
    assert [taken(answer, choice) for choice in choices] == [True, False, True]


PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
VERDICT = {"type": "object", "properties": {"is": {"type": "string"}}, "required": ["is"]}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(
    ("output", "answer"),
    [(PERSON, '{"name": "Bob"}'), (VERDICT, '{"is": "ok"}'), ({"type": "object"}, '{"a": 1}')],
)
def test_an_answer_of_a_schema_or_a_call(
    tokenizer: Tokenizer, form: str, single: bool, output: dict[str, Any], answer: str
) -> None:
    """Whatever opens calls, both may come; another answer may not."""
    known = FORMATS[form].one_call() if single else FORMATS[form]
    grammar = CallGrammar(tokenizer, ToolSet([read_file]).schemas(), known, output)
    head = "<|channel|>final<|message|>" if known.headers else ""
    call = known.render([ToolCall("read_file", {"path": "a"})])
    for text in (head + answer, call):
        constraint = grammar.constraint()
        assert take(constraint, tokenizer, text) is None, text
        ends = allowed(constraint, tokenizer.n_vocab)[list(tokenizer.stop_ids)]
        assert ends.any() or known.headers is not None, text
    wrong = head + ('{"other": 1}' if "properties" in output else "[1]")
    assert take(grammar.constraint(), tokenizer, wrong) is not None


def test_agents_of_one_kind_share_a_grammar(tokenizer: Tokenizer) -> None:
    """It is compiled once, and what one turn has read is nothing to another."""
    from triplepoint.runtime.conversation import matcher_tables as tables

    grammars = [CallGrammar(tokenizer, ToolSet([no_arguments]).schemas()) for _ in range(2)]
    opening, *rest = tokenizer.encode('<tool_call>\n{"name": "no_arguments"', special=True)
    first, second = (grammar.constraint() for grammar in grammars)
    for token in (opening, *rest):
        first.advance(token)
    second.advance(opening)

    assert second.allows(rest) == len(rest)
    assert first.allows(rest) == 0
    for n in range(40):
        tables.fresh_matcher(tokenizer, f'start: "{n}"')
    assert len(tables._prototypes(tokenizer)) == tables._MAX_MATCHERS
