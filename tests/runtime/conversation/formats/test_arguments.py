"""Arguments in formats that are not JSON as a whole: schemas hold there too, or it is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from helpers.format_checks import END, encode, read, same, take

from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, ToolFormat
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.tokens.tokenizer import Tokenizer

NAMES = ("qwen3-coder", "glm", "minimax", "lfm2", "olmo3", "functiongemma", "gemma4")
TAGGED = NAMES[:3]
TEXT, NUMBER, NOTHING = {"type": "string"}, {"type": "integer"}, {"type": "null"}
MODE = {"type": "string", "enum": ["fast", "slow"]}
A = {"type": "object", "properties": {"m": NUMBER}, "required": ["m"]}
B = {"type": "object", "properties": {"n": TEXT}}

Schema = dict[str, Any]


def of(value: Any, **more: Any) -> Schema:
    """The schema of one argument."""
    return {"type": "object", "properties": {"m": value}, "required": ["m"], **more}


HELD: dict[str, tuple[Schema, list[Any], list[Any]]] = {
    "words or nothing": (of({"anyOf": [MODE, NOTHING]}), [{"m": "slow"}, {"m": None}], ["slo"]),
    "words by name": (of({"$ref": "#/$defs/M"}, **{"$defs": {"M": MODE}}), [{"m": "fast"}], ["x"]),
    "words by name or nothing": (
        of({"anyOf": [{"$ref": "#/$defs/M"}, NOTHING]}, **{"$defs": {"M": MODE}}),
        [{"m": "fast"}, {"m": None}],
        ["fas"],
    ),
    "joined words": (
        of({"allOf": [{"$ref": "#/$defs/M"}], "default": "fast"}, **{"$defs": {"M": MODE}}),
        [{"m": "fast"}],
        ["x"],
    ),
    "words or a number": (
        of({"anyOf": [{"const": "auto"}, NUMBER]}),
        [{"m": "auto"}, {"m": 30}],
        ["aut", 1.5],
    ),
    "words and other values": (
        of({"type": ["string", "null"], "enum": ["fast", "b c", None]}),
        [{"m": "fast"}, {"m": "b c"}, {"m": None}],
        ["b", 1],
    ),
    "a short text or nothing": (
        of({"anyOf": [{**TEXT, "maxLength": 3}, NOTHING]}),
        [{"m": "abc"}, {"m": None}],
        ["abcd"],
    ),
    "all by name": ({"$ref": "#/$defs/A", "$defs": {"A": A}}, [{"m": 3}], [{}]),
    "all joined": (
        {"type": "object", "allOf": [{"$ref": "#/$defs/A"}, B], "$defs": {"A": A}},
        [{"m": 3}, {"m": 3, "n": "x"}],
        [{}, {"n": "x"}],
    ),
    "needed and not described": (
        {**A, "required": ["m", "z"], "additionalProperties": NUMBER},
        [{"m": 1, "z": 2}],
        [{"m": 1}, {"m": 1, "z": "x"}],
    ),
    "at most one": (of({"type": "array", "items": NUMBER, "maxItems": 1}), [{"m": []}, {"m": [5]}],
                    [[1, 2]]),
    "just one": (of({"type": "array", "items": NUMBER, "minItems": 1, "maxItems": 1}),
                 [{"m": [5]}], [[], [1, 2]]),
    "listed objects": (
        of({"enum": [{"a": [1, "x"], "b": None}, ["p,q", "r}"], {"k, }": 1}]}),
        [{"m": {"a": [1, "x"], "b": None}}, {"m": ["p,q", "r}"]}, {"m": {"k, }": 1}}],
        [{"a": 1}],
    ),
    "keys with signs": (
        of({"type": "object", "properties": {"a b": NUMBER, "k:v, }": NUMBER}}),
        [{"m": {"k:v, }": 1}}, {"m": {"a b": 1, "k:v, }": 2}}],
        [{"k": 1}],
    ),
}  # fmt: skip


def tool(schema: Mapping[str, Any]) -> Schema:
    """A tool that takes that."""
    return {"type": "function", "function": {"name": "f", "parameters": dict(schema)}}


@pytest.fixture
def grammar_of(
    make_tokenizer: Callable[..., Tokenizer],
) -> Callable[[str, Mapping[str, Any], bool], CallGrammar]:
    """The grammar of one tool, with a format's tags as tokens or as letters."""

    def make(name: str, schema: Mapping[str, Any], tags: bool = True) -> CallGrammar:
        form = FORMATS[name]
        marks = tuple(dict.fromkeys(form.tags)) if tags else ()
        grammar = CallGrammar(make_tokenizer(marks, template=None), [tool(schema)], form)
        grammar.check()
        return grammar

    return make


GrammarOf = Callable[..., CallGrammar]


def written(form: ToolFormat, arguments: Any) -> str:
    """A call and the end of the turn; of a value that is no object, as the argument `m`."""
    given = arguments if isinstance(arguments, dict) else {"m": arguments}
    return form.render([ToolCall("f", given)]) + END


@pytest.mark.parametrize("tags", [True, False], ids=["tokens", "letters"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", HELD)
def test_a_schema_holds(grammar_of: GrammarOf, case: str, name: str, tags: bool) -> None:
    """What fits may be written and is read as it was; what does not fit may not be written."""
    schema, right, wrong = HELD[case]
    grammar = grammar_of(name, schema, tags)
    form, tokenizer = grammar.form, grammar.tokenizer
    assert grammar.notes == []
    for arguments in right:
        text = written(form, arguments)
        assert take(grammar.constraint(), tokenizer, text) is None, text
        reply = read(tokenizer, form, encode(tokenizer, text), [tool(schema)])
        assert reply.broken == []
        assert same(reply.calls, [ToolCall("f", arguments)]), text
    for value in wrong:
        text = written(form, {"m": value} if isinstance(value, dict) and "m" not in value
                       and case in ("listed objects", "keys with signs") else value)  # fmt: skip
        assert take(grammar.constraint(), tokenizer, text) is not None, text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "properties": {"m": NUMBER}, "minProperties": 1}, "minProperties"),
        ({**A, "required": [], "anyOf": [{"required": ["m"]}, {"required": ["n"]}]}, "anyOf"),
    ],
)
def test_what_no_rule_holds_is_said(
    grammar_of: GrammarOf, name: str, schema: Schema, keyword: str
) -> None:
    """Of arguments as a whole."""
    (note,) = grammar_of(name, schema).notes
    assert note.startswith("tool f: a part of its schema is checked only once the call is written")
    assert note.endswith(f"no grammar for {keyword}")


@pytest.mark.parametrize("name", ["lfm2", "gemma4"])
@pytest.mark.parametrize(
    ("value", "keyword"),
    [
        ({"type": "array", "prefixItems": [NUMBER, TEXT]}, "prefixItems"),
        ({"type": "object", "additionalProperties": NUMBER, "minProperties": 1}, "minProperties"),
        ({"type": "array", "items": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({**A, "anyOf": [{"required": ["m"]}, {"required": ["n"]}]}, "anyOf"),
        ({"oneOf": [NUMBER, {"type": "number"}]}, "oneOf"),
        ({"allOf": [{"minimum": 1, **NUMBER}, {"minimum": 3}]}, "allOf"),
    ],
)
def test_what_no_rule_of_values_holds_is_said(
    grammar_of: GrammarOf, name: str, value: Schema, keyword: str
) -> None:
    """Of a value in a notation of the format's own, however deep it is."""
    for schema in (of(value), of({"type": "array", "items": value})):
        (note,) = grammar_of(name, schema).notes
        assert note.endswith(f"no grammar for {keyword}")


def test_a_schema_within_itself(grammar_of: GrammarOf) -> None:
    """Is looked through once; in JSON the grammar's library refuses this one by name."""
    node = {"type": "object", "properties": {"next": {"allOf": [{"$ref": "#/$defs/N"}, B]}}}
    for name in ("functiongemma", "gemma4"):
        grammar = grammar_of(name, of({"$ref": "#/$defs/N"}, **{"$defs": {"N": node}}))
        text = written(grammar.form, {"m": {"next": {"next": {}}}})
        assert take(grammar.constraint(), grammar.tokenizer, text) is None, text


@pytest.mark.parametrize(
    ("name", "argument"),
    [("lfm2", "a b"), ("olmo3", "k=v"), ("qwen3-coder", "<b>"), ("glm", "<b>"), ("minimax", '"b"')],
)
def test_a_name_that_a_format_cannot_write(grammar_of: GrammarOf, name: str, argument: str) -> None:
    """Is refused where it is needed, and said where the call does without it."""
    with pytest.raises(GrammarError, match=r"tool f: the format .* cannot write the name"):
        grammar_of(name, {"properties": {argument: NUMBER}, "required": [argument]})
    grammar = grammar_of(name, {"type": "object", "properties": {argument: NUMBER, "m": NUMBER}})
    (note,) = grammar.notes
    assert note == (
        f"tool f: the argument {argument!r} cannot be written in the format of the model's calls"
    )
    assert take(grammar.constraint(), grammar.tokenizer, written(grammar.form, 1)) is None


@pytest.mark.parametrize("name", TAGGED)
def test_what_a_schema_forbids_and_needs(grammar_of: GrammarOf, name: str) -> None:
    """No call can be written, and this is said at once."""
    with pytest.raises(GrammarError, match="needs an argument 'z' and allows none of that name"):
        grammar_of(name, {**A, "required": ["z"], "additionalProperties": False})


@pytest.mark.parametrize("name", [n for n in NAMES if "gemma" not in n])
def test_arguments_without_names(grammar_of: GrammarOf, name: str) -> None:
    """Where a format's grammar has none, this is said."""
    (note,) = grammar_of(name, {"type": "object", "additionalProperties": NUMBER}).notes
    assert note.startswith("tool f: what its schema does not name cannot be written")


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "gemma4", "lfm2"])
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "object", "properties": {"m": NUMBER}, "required": True}, "malformed"),
        (of({**A, "required": [{"m": 1}]}), "malformed"),
        (of({"type": "object", "properties": [1]}), "malformed|schema"),
        (of({"anyOf": [{"allOf": [{"anyOf": [NUMBER] * 40}] * 3}]}), "more than 1,000 alternat"),
    ],
)
def test_a_schema_that_is_none(
    make_tokenizer: Callable[..., Tokenizer], name: str, schema: Schema, why: str
) -> None:
    """Is refused with the name of its tool, whichever of several that is."""
    tokenizer = make_tokenizer((), template=None)
    good = {"type": "function", "function": {"name": "good", "parameters": A}}
    with pytest.raises(GrammarError, match=f"^tool f: .*{why}"):
        CallGrammar(tokenizer, [good, tool(schema), good], name).check()


ODD: dict[str, tuple[Schema, str]] = {
    "type": ({**A, "properties": {"ok": {}, "n": {"type": "int"}}}, "argument 'n': .*int"),
    "pointer": ({**A, "properties": {"n": {"$ref": "#/$defs/No"}}}, "argument 'n': "),
    "deep": (of({"type": "array", "items": 3}), "argument 'm': "),
    "whole": ({**A, "required": 3}, "schema: "),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_tool_at_fault_is_named(make_tokenizer: Callable[..., Tokenizer], name: str) -> None:
    """With its argument, in every format; sound tools and the answer's schema are not blamed."""
    tokenizer = make_tokenizer((), template=None)
    odd = [{"function": {"name": key, "parameters": one}} for key, (one, _) in ODD.items()]
    good = {"function": {"name": "good", "parameters": A}}

    with pytest.raises(GrammarError) as raised:
        CallGrammar(tokenizer, [good, *odd], name).check()
    assert raised.value.tools is not None
    for key, problem in raised.value.tools.items():
        assert re.match(f"tool {key}: no grammar can be made from its {ODD[key][1]}", problem)
    assert str(raised.value) == next(iter(raised.value.tools.values()))

    with pytest.raises(GrammarError, match="schema of the answer") as raised:
        CallGrammar(tokenizer, [good], name, output={"type": "int"}).check()
    assert raised.value.tools == {}


@pytest.mark.parametrize("name", ["hermes", "llama", "mistral-args", "granite"])
@pytest.mark.parametrize("schema", [{}, {"type": ["object", "null"]}, {"anyOf": [{}, A]}])
def test_arguments_are_an_object(grammar_of: GrammarOf, name: str, schema: Schema) -> None:
    """Where a schema allows more, and what allows no object is refused."""
    form = FORMATS[name]
    for arguments in ({"a": 1}, None, 3):
        text = form.render([ToolCall("f", {})]).replace("{}", json.dumps(arguments))
        grammar = grammar_of(name, schema)
        taken = take(grammar.constraint(), grammar.tokenizer, text + END) is None
        assert taken == isinstance(arguments, dict), text
    for refused in ({"type": "string"}, {"enum": [3]}, {"anyOf": [{"type": "null"}]}):
        with pytest.raises(GrammarError, match="tool f: no grammar can be made from its schema"):
            grammar_of(name, refused)
