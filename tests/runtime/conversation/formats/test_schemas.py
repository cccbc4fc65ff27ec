"""Schemas of tools and answers: what is closed, what pointers name, and what may be written."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.agents import END
from helpers.format_checks import take
from helpers.grammar_samples import grammar_of, sample
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.schemas import resolved, strict, without_lookaround
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reasoning_tags import NO_THINKING
from triplepoint.runtime.tokens.tokenizer import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
TEXT = {"type": "string"}
A = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
B = {"type": "object", "properties": {"b": TEXT}}
SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "draft-07": ({"properties": {"v": {"$ref": "#/definitions/A"}}, "definitions": {"A": A}},
                 {"v": {"a": "x"}}),
    "another argument": ({"properties": {"u": A, "v": {"$ref": "#/properties/u"}}},
                         {"u": {"a": "x"}, "v": {"a": "y"}}),
    "true": ({"properties": {"v": True}}, {"v": 3}),
    "all of two": ({"properties": {"v": {"allOf": [A, B]}}}, {"v": {"a": "x", "b": "y"}}),
    "all of a definition and more": (
        {"properties": {"v": {"allOf": [{"$ref": "#/$defs/A"}], **B}}, "$defs": {"A": A}},
        {"v": {"a": "x", "b": "y"}}),
    "one of, beside properties": (
        {"properties": {"v": {**B, "oneOf": [{"properties": {"b": {"const": "y"}}},
                                             {"properties": {"b": {"const": "z"}}}]}}},
        {"v": {"b": "z"}}),
}  # fmt: skip
INTEGER = {"type": "integer"}
LIMITS: dict[str, tuple[dict[str, Any], Any]] = {
    "int64": ({**INTEGER, "minimum": -(2**63), "maximum": 2**63 - 1}, -(2**53) + 1),
    "uint64": ({**INTEGER, "minimum": 0, "maximum": 2**64 - 1}, 2**53 - 1),
    "float32": ({"type": "number", "minimum": -3.4e38, "maximum": 3.4e38}, 1.5),
    "from far away": ({**INTEGER, "minimum": 1e16}, 10**16 + 1),
    "from the border": ({**INTEGER, "exclusiveMinimum": 2**53 - 1}, 2**53),
    "a path": ({"type": "string", "format": "path"}, "a/b"),
    "any names": ({"type": "object", "propertyNames": TEXT}, {"a": 1}),
    "a name that is not listed": ({**A, "required": ["a", "z"]}, {"a": "x", "z": 1}),
}
JSON_FORMATS = ("hermes", "llama", "mistral-args")
OTHERS = ("qwen3-coder", "glm", "minimax", "olmo3")


def tool(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool that takes that."""
    return {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", **schema}},
    }


@pytest.mark.parametrize("case", LIMITS)
def test_what_says_nothing_refuses_nothing(make_tokenizer: MakeTokenizer, case: str) -> None:
    """Bounds that no grammar can have, and keywords that allow everything, end no grammar."""
    schema, value = LIMITS[case]
    tokenizer = make_tokenizer(("<tool_call>", "</tool_call>"), template=None)
    call = tool({"properties": {"v": schema}, "required": ["v"]})
    grammar = CallGrammar(tokenizer, [call], FORMATS["hermes"])
    grammar.check()
    assert grammar.notes == []
    text = FORMATS["hermes"].render([ToolCall("f", {"v": value})])
    assert take(grammar.constraint(), tokenizer, text + END) is None
    answers = CallGrammar(tokenizer, output=schema, thinking=NO_THINKING)
    answers.check()


@pytest.mark.parametrize("name", [name for name in (*JSON_FORMATS, *OTHERS) if name in FORMATS])
@pytest.mark.parametrize("case", SCHEMAS)
def test_a_call_may_be_written(make_tokenizer: MakeTokenizer, case: str, name: str) -> None:
    """Whatever a schema's author has used to say it, and it is read as it was."""
    schema, arguments = SCHEMAS[case]
    form, tools = FORMATS[name], [tool(schema)]
    tokenizer = make_tokenizer(tuple(dict.fromkeys(form.tags)), template=None)
    grammar = CallGrammar(tokenizer, tools, form)
    text = form.render([ToolCall("f", arguments)])

    assert bool(grammar.notes) == ("one of" in case)  # what llguidance does not check is said
    assert take(grammar.constraint(), tokenizer, text + END) is None, text


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"v": {"type": "object", "additionalProperties": TEXT}}, {"v": {"Content-Type": "x"}}),
        ({"v": {"type": "object"}}, {"v": {"a": {"b": [1, "x"]}}}),
        ({"v": {}}, {"v": [1, {"a": None}]}),
        ({"v": {"type": "array"}}, {"v": [[1], {"a": True}]}),
        ({"v": {"allOf": [A]}}, {"v": {"a": "x"}}),
        ({"v": {"properties": {"a": TEXT}}}, {"v": {"a": "x"}}),
    ],
)
@pytest.mark.parametrize("name", ["gemma4", "lfm2"])
def test_values_in_other_notations(
    make_tokenizer: MakeTokenizer, name: str, schema: dict[str, Any], arguments: Any
) -> None:
    """Free values are any values, lists and objects too; keys have any letters."""
    form, tools = FORMATS[name], [tool({"properties": schema})]
    tokenizer = make_tokenizer(tuple(dict.fromkeys(form.tags)), template=None)
    grammar = CallGrammar(tokenizer, tools, form)
    text = form.render([ToolCall("f", arguments)])

    assert take(grammar.constraint(), tokenizer, text + END) is None, text


def test_what_stays_closed() -> None:
    """An object that stands alone, also in a union; one that several schemas describe is open."""
    union = {"anyOf": [A, {"type": "null"}]}
    found = strict({"properties": {"u": union, "v": {"allOf": [A, B]}, "w": {"allOf": [A]}}})

    inside = found["properties"]
    assert found["additionalProperties"] is False
    assert inside["u"]["anyOf"][0]["additionalProperties"] is False
    assert not any("additionalProperties" in one for one in inside["v"]["allOf"])
    assert inside["w"]["allOf"][0]["additionalProperties"] is False


def test_pointers() -> None:
    """Definitions stay by name, others are put in their place, and what is inside itself stays."""
    schema = {
        "properties": {
            "a/b": {"type": "integer"},
            "same": {"$ref": "#/properties/a~1b", "description": "again"},
            "named": {"$ref": "#/$defs/A"},
            "part": {"$ref": "#/$defs/A/properties/a"},
            "list": {"items": [{"type": "null"}]},
            "first": {"$ref": "#/properties/list/items/0"},
            "tree": {"properties": {"next": {"$ref": "#/properties/tree"}}},
            "nowhere": {"$ref": "#/properties/none"},
        },
        "$defs": {"A": A},
    }

    found = resolved(schema)["properties"]

    assert found["same"] == {"type": "integer", "description": "again"}
    assert found["named"] == {"$ref": "#/$defs/A"}
    assert found["part"] == TEXT
    assert found["first"] == {"type": "null"}
    assert found["tree"]["properties"]["next"]["properties"]["next"] == {
        "$ref": "#/properties/tree"
    }
    assert found["nowhere"] == {"$ref": "#/properties/none"}


def _doubling(count: int, at: str) -> dict[str, Any]:
    """Each of `count` schemas refers to the next one twice."""
    parts: dict[str, Any] = {
        f"p{n}": {"anyOf" if at == "$defs" else "allOf": [{"$ref": f"#/{at}/p{n + 1}"}] * 2}
        for n in range(count)
    }
    return {at: {**parts, f"p{count}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (_doubling(40, "properties"), "more than 20,000 parts"),
        ({"allOf": [{"type": "integer", "multipleOf": 7 + n} for n in range(8)]}, "multipleOf"),
        ({"allOf": [{"anyOf": [{"minimum": n}, {"maximum": 3}]} for n in range(12)]}, "1,000 alt"),
        (
            {"allOf": [{"$ref": "#/$defs/p0"}, {"$ref": "#/$defs/p0"}], **_doubling(40, "$defs")},
            "more than 1,000 alternatives",
        ),
    ],
    ids=["references", "multiples", "alternatives", "alternatives by name"],
)
def test_a_short_schema_that_becomes_a_long_one(schema: dict[str, Any], why: str) -> None:
    """It is refused at once."""
    began = time.monotonic()
    with pytest.raises(GrammarError, match=why):
        strict(schema)
    assert time.monotonic() - began < 5


def test_alternatives_that_do_not_multiply() -> None:
    """Chains of names, and alternatives beside each other, are no more than they are."""
    chain = {"$ref": "#/$defs/p0", **_doubling(40, "$defs")}
    beside = {"properties": {f"p{n}": {"anyOf": [{"const": 1}, {"const": 2}]} for n in range(50)}}
    assert strict(chain)["$ref"] == "#/$defs/p0"
    assert len(strict({"type": "object", **beside})["properties"]) == 50


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", r"^(?:)[+-]?0*\d*\.?\d*$"),
        (r"a(?=b(?:c|\))[)(])d\b", r"a(?:)d(?:)"),
        (r"(?<!x)[(?=]\(\?=", r"(?:)[(?=]\(\?="),
        (r"(?<name>a)(?:b)", r"(?<name>a)(?:b)"),
    ],
)
def test_a_pattern_without_lookaround(pattern: str, plain: str) -> None:
    """Only what has no width goes; classes and escapes are no groups."""
    assert without_lookaround(pattern) == plain


WORDS = st.sampled_from(["a", "ab", "b", "(", "[(]", r"\d", ".", "|", "?", "(?:b)", ")"])
LOOKS = st.sampled_from(["(?=a)", "(?!a|b)", "(?<=b)", "(?<!(a))", r"\b", ""])


@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS | LOOKS, max_size=6).map("".join), st.text("ab(1", max_size=5))
def test_a_plain_pattern_matches_no_less(pattern: str, text: str) -> None:
    """What an expression finds is found by the one without lookaround."""
    try:
        found = re.search(pattern, text)
    except re.error:
        return
    assert found is None or re.search(without_lookaround(pattern), text)


def flag(*texts: str) -> dict[str, Any]:
    """A schema of some texts."""
    return {"enum": list(texts)}


@pytest.mark.parametrize(
    ("schema", "left", "takes", "refuses"),
    [
        ({"propertyNames": flag("a", "b"), "additionalProperties": INTEGER},
         [], {"a": 1}, {"c": 1}),
        ({"propertyNames": {"$ref": "#/$defs/N"}, "$defs": {"N": {"const": "a"}}},
         [], {"a": "x"}, {"b": 1}),
        ({"properties": {"a": TEXT, "b": TEXT}, "propertyNames": flag("a"),
          "additionalProperties": False}, [], {"a": "x"}, {"b": "x"}),
        ({"properties": {"e": {"type": "string", "pattern": "^(?!x)[xy]+$"}}, "required": ["e"]},
         ["pattern"], {"e": "xy"}, {"e": "z"}),
        ({"properties": {"e": {"type": "string", "pattern": r"^(.)\1$"}}, "required": ["e"]},
         ["pattern"], {"e": "abc"}, {"e": 1}),
        ({"patternProperties": {"^(?!x)": INTEGER}, "additionalProperties": False},
         ["patternProperties"], {"x": "y"}, 3),
        ({"properties": {"x": {"type": "array", "items": INTEGER, "uniqueItems": True}}},
         ["uniqueItems"], {"x": [1, 1]}, {"x": ["y"]}),
        ({"properties": {"x": {"not": {"type": "null"}}}}, ["not"], {"x": None}, {"y": 1}),
        ({"properties": {"x": INTEGER}, "if": {"required": ["x"]}, "then": {"required": ["y"]}},
         ['"if", "then"'], {"x": 1}, {"x": "y"}),
        ({"properties": {"x": INTEGER}, "dependentRequired": {"x": ["y"]}},
         ["dependentRequired"], {"x": 1}, {"x": "y"}),
        ({"properties": {"x": INTEGER}, "unevaluatedProperties": False},
         ["unevaluatedProperties"], {"x": 1}, {"y": 1}),
    ],
)  # fmt: skip
def test_what_no_grammar_has_is_left_to_a_check(
    tokenizer: Tokenizer, schema: dict[str, Any], left: list[str], takes: Any, refuses: Any
) -> None:
    """An answer is held to the rest, and a note names what is left; listed names are exact."""
    grammar = CallGrammar(tokenizer, output={"type": "object", **schema}, thinking=NO_THINKING)

    def allowed(value: Any) -> bool:
        ids = [*tokenizer.encode(json.dumps(value)), min(tokenizer.stop_ids)]
        return grammar.constraint().allows(ids) == len(ids)

    assert [allowed(takes), allowed(refuses)] == [True, False]
    assert len(grammar.unheld) == bool(left)
    assert all(name in note for name in left for note in grammar.notes)


SIZES = st.integers(-1, 3) | st.just(2.5) | st.none()
TEXTS = st.sampled_from(
    ["a", "b", "^(?!a)", r"(a)\1", "[", "date", "email", "#", "#/$defs/a", "a*"]
)


def of_schemas(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of all keywords of the draft, some with values that they cannot have."""
    named = st.dictionaries(st.sampled_from(["a", "b", "^a"]), one, max_size=2)
    several = st.lists(one, max_size=2)
    kinds = ["object", "array", "string", "integer", "number", "boolean", "null", "frob"]
    values: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs"), named),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(("pattern", "format", "$ref", "$anchor", "$dynamicRef"), TEXTS),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minimum"), SIZES),
        **dict.fromkeys(("minProperties", "maxProperties", "multipleOf", "minContains"), SIZES),
        **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames", "items"), one),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), one),
        "additionalProperties": one | st.booleans() | st.none(),
        "type": st.sampled_from(kinds) | st.lists(st.sampled_from(kinds), max_size=2),
        "enum": st.lists(TEXTS | SIZES, max_size=2),
        "const": TEXTS | SIZES,
        "required": st.lists(TEXTS, max_size=2) | st.none(),
        "uniqueItems": st.booleans(),
        "dependentRequired": st.dictionaries(TEXTS, st.lists(TEXTS, max_size=1), max_size=1),
    }
    return st.lists(st.sampled_from([*values]), max_size=3, unique=True).flatmap(
        lambda keys: st.fixed_dictionaries({key: values[key] for key in keys})
    )


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.recursive(st.booleans() | st.just({}), of_schemas, max_leaves=6), st.integers(0, 9))
def test_any_schema(tokenizer: Tokenizer, schema: Any, seed: int) -> None:
    """It has a grammar of JSON, or is refused as a grammar is, with a reason; nothing else."""
    if not isinstance(schema, dict):
        return
    try:
        grammar = grammar_of(tokenizer, schema)
    except GrammarError:
        return
    if (text := sample(grammar, seed, limit=80)) is not None:
        json.loads(text)
