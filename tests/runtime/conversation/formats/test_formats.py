"""Every format: what is written is read, and nothing malformed can be written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import pytest
from helpers.format_checks import END, QUOTED, allowed, encode, same, take
from helpers.format_checks import read as read_turn
from helpers.grammar_samples import no_arguments, read_file
from pydantic import BaseModel, Field

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.tagged import Tagged
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, ToolFormat
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reply import Reply, ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet, tool

MakeTokenizer = Callable[..., Tokenizer]


class Point(BaseModel):
    """A nested object."""

    x: float
    label: str | None = None


@tool
def many(
    text: str,
    count: Annotated[int, Field(ge=1, le=12)],
    mode: Literal["a", "b c"],
    points: list[Point],
    names: dict[str, int],
    sure: bool = True,
) -> str:
    """Takes one of everything."""
    return "ok"


TOOLS = ToolSet([read_file, no_arguments, many])
CALLS = [
    ToolCall("read_file", {"path": 'a b/é "x"\n', "start": -3, "end": None}),
    ToolCall("read_file", {"path": QUOTED}),
    ToolCall("no_arguments", {}),
    ToolCall(
        "many",
        {
            "text": "",
            "count": 12,
            "mode": "b c",
            "points": [{"x": 1.5, "label": None}, {"x": 2, "label": "p, q"}],
            "names": {"a": 1, "b": 2},
            "sure": False,
        },
    ),
]
EVERY = [(form, tags) for form in FORMATS.values() for tags in (True, False)]
every = pytest.mark.parametrize(
    ("form", "tags"),
    EVERY,
    ids=[f"{form.name}, {'tokens' if t else 'letters'}" for form, t in EVERY],
)


@pytest.fixture
def vocabulary(make_tokenizer: MakeTokenizer) -> Callable[[ToolFormat, bool], Tokenizer]:
    """A vocabulary in which the format's tags are tokens, or are not."""

    def make(form: ToolFormat, tags: bool) -> Tokenizer:
        return make_tokenizer(tuple(dict.fromkeys(form.tags)) if tags else (), template=None)

    return make


Vocabulary = Callable[[ToolFormat, bool], Tokenizer]


def read(tokenizer: Tokenizer, form: ToolFormat, ids: list[int]) -> Reply:
    """The turn as the agent reads it, which has these tools."""
    return read_turn(tokenizer, form, ids, TOOLS.schemas())


def spoken(form: ToolFormat, text: str, *, called: bool = False) -> str:
    """How a text is written, as an answer or before a call."""
    if form.headers is None:
        return f"{text}\n" if called else text
    if called:
        return f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant"
    return f"<|channel|>final<|message|>{text}"


def turns(form: ToolFormat) -> list[tuple[str, str, list[ToolCall]]]:
    """What a model may write in this format: text, answer, calls."""
    made = [("", form.render([call]), [call]) for call in CALLS]
    if not form.single:
        made.append(("", form.render(CALLS), CALLS))
    if all(opening.where != "turn" for opening in form.openings):
        before = spoken(form, "I look.", called=True)
        made.append(("I look.", before + form.render(CALLS[:1]), CALLS[:1]))
    return [(text, answer, calls) for answer, text, calls in made]


@every
def test_what_is_written_is_allowed_and_read(
    vocabulary: Vocabulary, form: ToolFormat, tags: bool
) -> None:
    """Calls with all kinds of values, alone, in a row and after words, come back as they were."""
    tokenizer = vocabulary(form, tags)
    grammar = CallGrammar(tokenizer, TOOLS.schemas(), form)
    for text, answer, calls in turns(form):
        constraint = grammar.constraint()
        assert take(constraint, tokenizer, text + END) is None, text
        assert constraint.done
        reply = read(tokenizer, form, encode(tokenizer, text + END))
        assert reply.broken == []
        assert reply.cut_call is None
        assert same(reply.calls, calls), text
        assert reply.answer == answer


@every
def test_arguments_come_in_pieces(vocabulary: Vocabulary, form: ToolFormat, tags: bool) -> None:
    """Where arguments are JSON, pieces are told before the call ends, and make up what it has."""
    tokenizer = vocabulary(form, tags)
    for text, _, calls in turns(form):
        reader = ReplyReader(tokenizer, form, tools=TOOLS.schemas())
        told: dict[int, tuple[str, str]] = {}
        early = 0
        for token in [*encode(tokenizer, text + END), None]:
            if token is None:
                reader.finish()
            else:
                reader.push(token)
            for piece in reader.call_pieces():
                name, before = told.get(piece.index, (piece.name, ""))
                assert name == piece.name
                told[piece.index] = piece.name, before + piece.text
                early += len(reader.calls) <= piece.index
        if form.call_head is None:
            assert not told
            assert reader.call_arguments(0) is None
            continue
        assert [(name, json.loads(text)) for name, text in told.values()] == [
            (call.name, call.arguments) for call in calls
        ]
        assert [reader.call_arguments(n) for n in told] == [text for _, text in told.values()]
        assert early > len(calls)


@every
def test_a_cut_call_is_no_call(vocabulary: Vocabulary, form: ToolFormat, tags: bool) -> None:
    """A turn that ends within a call has a cut call and none to run."""
    tokenizer = vocabulary(form, tags)
    ids = tokenizer.encode(form.render(CALLS[:1]), special=True)
    for end in (len(ids) - 4, len(ids) - 12):
        reply = read(tokenizer, form, ids[:end])
        assert reply.calls == []
        assert reply.cut_call


@pytest.mark.slow
@every
@pytest.mark.parametrize(
    "call",
    [
        ToolCall("delete_file", {"path": "x"}),
        ToolCall("read_file", {}),
        ToolCall("read_file", {"path": 1}),
        ToolCall("read_file", {"path": "x", "start": 1.5}),
        ToolCall("read_file", {"path": "x", "force": True}),
        ToolCall("many", {**CALLS[3].arguments, "count": 13}),
        ToolCall("many", {**CALLS[3].arguments, "mode": "c"}),
        ToolCall("many", {**CALLS[3].arguments, "points": [{"label": None}]}),
    ],
    ids=lambda call: f"{call.name}({', '.join(call.arguments)})",
)
def test_bad_calls_cannot_be_written(
    vocabulary: Vocabulary, form: ToolFormat, tags: bool, call: ToolCall
) -> None:
    """Unknown tools and arguments, missing ones, wrong types and values: none passes."""
    tokenizer = vocabulary(form, tags)
    grammar = CallGrammar(tokenizer, TOOLS.schemas(), form)
    if isinstance(form, Tagged) and call.arguments == {"path": 1}:
        pytest.skip("a text has no quotes in this format: 1 is the text 1")

    assert take(grammar.constraint(), tokenizer, form.render([call]) + END) is not None


@tool
def choose(sure: bool, many: int | None) -> str:
    """Takes values that Python writes otherwise than JSON."""
    return f"{sure} {many}"


@tool
def label(
    word: Annotated[str, Field(min_length=2, max_length=5)],
    tags: Annotated[list[Annotated[str, Field(max_length=3)]], Field(min_length=1, max_length=2)],
) -> str:
    """Takes texts and a list that are short."""
    return f"{word} {tags}"


@pytest.mark.slow
@every
def test_lengths_hold_token_by_token(vocabulary: Vocabulary, form: ToolFormat, tags: bool) -> None:
    """A text of the greatest length may be written and must end there; so must a list."""
    tokenizer = vocabulary(form, tags)
    grammar = CallGrammar(tokenizer, ToolSet([label]).schemas(), form)

    def refused(word: str, names: list[str]) -> str | None:
        call = ToolCall("label", {"word": word, "tags": names})
        return take(grammar.constraint(), tokenizer, form.render([call]) + END)

    assert grammar.notes == []
    for word, names in (("ab", ["c"]), ("äbc d", ["xyz", ""])):
        assert refused(word, names) is None, (word, names)
    for word, names in (
        ("abcdef", ["c"]),
        ("abcde" * 200, ["c"]),
        ("a", ["c"]),
        ("ab", []),
        ("ab", ["c", "d", "e"]),
        ("ab", ["wxyz"]),
    ):
        assert refused(word, names) is not None, (word, names)


@pytest.mark.slow
@every
@pytest.mark.parametrize("seed", range(3))
def test_random_logits_make_valid_calls(
    vocabulary: Vocabulary, form: ToolFormat, tags: bool, seed: int
) -> None:
    """Random greedy choices under the mask, from each opening on, end in calls that validate."""
    tokenizer = vocabulary(form, tags)
    grammar = CallGrammar(tokenizer, TOOLS.schemas(), form)
    rng = np.random.default_rng(seed)
    ends = {tokenizer.encode(text)[0] for text in ('"', "]", "}", "<", "\n", "{")}
    ends |= tokenizer.stop_ids | set(grammar._tags.values())
    for opening in form.openings:
        constraint = grammar.constraint()
        ids = tokenizer.encode(opening.text, special=True)
        for token in ids:
            assert allowed(constraint, tokenizer.n_vocab)[token]
            constraint.advance(token)
        while not constraint.done and len(ids) < 1500:
            logits = rng.standard_normal(tokenizer.n_vocab)
            logits[list(ends)] += 2.0
            logits[~allowed(constraint, tokenizer.n_vocab)] = -np.inf
            assert np.isfinite(logits).any(), tokenizer.decode(ids, special=True)
            ids.append(int(logits.argmax()))
            constraint.advance(ids[-1])
        reply = read(tokenizer, form, ids)
        assert reply.broken == [], tokenizer.decode(ids, special=True)
        for call in reply.calls:
            arguments = TOOLS.get(call.name).validate(call.arguments)
            assert arguments.keys() == call.arguments.keys()
        if ids[-1] in tokenizer.stop_ids:
            assert reply.calls
            assert reply.cut_call is None


@every
def test_text_stays_text(vocabulary: Vocabulary, form: ToolFormat, tags: bool) -> None:
    """Words, code, JSON within a line and a package's JSON are an answer, with tools or without."""
    tokenizer = vocabulary(form, tags)
    text = (
        'It says {"name": "x"} here.\n\n```json\n{\n  "name": "x",\n  "version": 1\n}\n```\n'
        "<tool call> [TOOL] functools {function} <a|b>"
    )
    written = spoken(form, text) + END
    for tools in ([], TOOLS.schemas()):
        grammar = CallGrammar(tokenizer, tools, form)
        assert take(grammar.constraint(), tokenizer, written) is None
    reply = read(tokenizer, form, tokenizer.encode(written, special=True))
    assert (reply.answer, reply.calls, reply.cut_call) == (text, [], None)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    "body",
    [
        *("", "nonsense", "{", "[]", "[1]", '{"name": 1}', '{"name": "f", "arguments": []}'),
        *("call:", "call:f", "call:f{", "call:f{a}", "call:f{a:", "call:f{a:1", "call:f{a:1}}"),
        *(
            "[ARGS]{}",
            "f[ARGS]",
            "f[ARGS][]",
            "<function=f>",
            "<function=f><parameter=a></function>",
        ),
        *("f.call(1)", "f.call(a=b)", "f.call(a=__import__('os'))", "[" * 50_000, "{" * 50_000),
    ],
)
def test_what_is_no_call_is_said(form: ToolFormat, body: str) -> None:
    """What is malformed is a ValueError, whatever it is."""
    if (form.name, body) == ("glm", "nonsense"):
        body += " and more"  # a name alone is a call without arguments
    with pytest.raises(ValueError, match=r"call|argument|lacks"):
        form.parse(body)


# --- what is particular to one format -----------------------------------------------------------


def test_llama_reads_all_its_forms() -> None:
    """Arguments are called parameters; several objects stand between semicolons; built-in tools."""
    llama = FORMATS["llama"]
    one = '{"name": "f", "parameters": {"a": 1}}'

    assert same(llama.parse(one), [ToolCall("f", {"a": 1})])
    assert same(llama.parse('{"type": "function", "name": "f", "parameters": {}}'), [ToolCall("f")])
    assert len(llama.parse(f"{one}; {one};{one}")) == 3
    assert same(
        llama.parse('brave_search.call(query="a, b", n=2)'),
        [ToolCall("brave_search", {"query": "a, b", "n": 2})],
    )


def test_mistral_keeps_identifiers() -> None:
    """An id that the model gave is the call's; without one there is none."""
    (call,) = FORMATS["mistral"].parse('[{"name": "f", "arguments": {}, "id": "abcdefghi"}]')
    (other,) = FORMATS["mistral"].parse(' [{"name": "f", "arguments": {}}]')
    (third,) = FORMATS["mistral-args"].parse("f[CALL_ID]abcdefghi[ARGS]{}")

    assert (call.id, other.id, third.id) == ("abcdefghi", "", "abcdefghi")


def test_qwen_coder_types_by_the_schema() -> None:
    """What a schema calls a text is taken letter by letter; everything else is JSON."""
    form = FORMATS["qwen3-coder"]
    body = (
        "\n<function=read_file>\n<parameter=path>\n\n1\n\n</parameter>\n<parameter=start>\n2\n"
        "</parameter>\n</function>\n"
    )

    (call,) = form.parse(body, TOOLS.schemas())

    assert call.arguments == {"path": "\n1\n", "start": 2}


def test_a_value_that_may_be_a_text_or_another_keeps_its_type() -> None:
    """Null, lists and objects are read as such where the schema allows them; numbers are text."""
    choices = {"n": "null", "l": "array", "o": "object", "i": "integer"}
    properties = {k: {"anyOf": [{"type": one}, {"type": "string"}]} for k, one in choices.items()}
    schema = {"type": "object", "properties": properties}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    given = {"n": None, "l": ["a"], "o": {"a": 1}, "i": "5"}
    for name in ("qwen3-coder", "glm", "minimax"):
        form = FORMATS[name]
        written = form.render([ToolCall("f", given)])
        body = written.split(form.openings[0].text, 1)[1].rsplit(form.closing, 1)[0]
        (call,) = form.parse(body, tools)
        assert call.arguments == given, name


def test_python_words_where_the_template_prints_them(vocabulary: Vocabulary) -> None:
    """Qwen3-Coder's template shows True and None: the model may write them, and JSON's words."""
    form = FORMATS["qwen3-coder"]
    tokenizer = vocabulary(form, True)
    grammar = CallGrammar(tokenizer, ToolSet([choose]).schemas(), form)
    head = "<tool_call>\n<function=choose>\n"
    for sure, many in (("True", "None"), ("false", "null"), ("False", "3")):
        body = f"<parameter=sure>\n{sure}\n</parameter>\n<parameter=many>\n{many}\n</parameter>\n"
        text = f"{head}{body}</function>\n</tool_call>{END}"
        assert take(grammar.constraint(), tokenizer, text) is None, text
    bad = f"{head}<parameter=sure>\nNone"
    assert take(grammar.constraint(), tokenizer, bad) is not None


def test_glm_takes_a_name_alone(vocabulary: Vocabulary) -> None:
    """A call without arguments is its name, with a line break after it or without."""
    form = FORMATS["glm"]
    tokenizer = vocabulary(form, True)
    grammar = CallGrammar(tokenizer, TOOLS.schemas(), form)
    for text in ("<tool_call>no_arguments</tool_call>", "<tool_call>no_arguments\n</tool_call>"):
        assert take(grammar.constraint(), tokenizer, text + END) is None
        reply = read(tokenizer, form, encode(tokenizer, text + END))
        assert same(reply.calls, [ToolCall("no_arguments", {})])


@pytest.mark.parametrize("name", ["glm", "minimax"])
def test_an_argument_may_not_hold_what_ends_it(vocabulary: Vocabulary, name: str) -> None:
    """Where the tag that ends a text is a token, its letters cannot be written in the text."""
    form = FORMATS[name]
    assert isinstance(form, Tagged)
    tokenizer = vocabulary(form, True)
    constraint = CallGrammar(tokenizer, TOOLS.schemas(), form).constraint()
    before = form.render([ToolCall("read_file", {"path": "a"})]).partition(form.end)[0]

    assert take(constraint, tokenizer, before) is None
    for letter in form.end.rstrip():
        (token,) = tokenizer.encode(letter)
        if not allowed(constraint, tokenizer.n_vocab)[token]:
            assert letter == ">"
            return
        constraint.advance(token)
    text = "\n</invoke>\n</minimax:tool_call>"  # the tag's letters have ended the text
    assert name == "minimax"
    assert take(constraint, tokenizer, text + END) is None


def test_functionary_reads_many_and_any_text() -> None:
    """Calls stand in a row; the letters of the tag that ends them may be in an argument."""
    form = FORMATS["functionary"]
    calls = [ToolCall("f", {"a": "</function>"}), ToolCall("g", {})]

    assert same(form.parse(form.render(calls).removeprefix(form.opening)), calls)


def test_gemma_notation() -> None:
    """Texts may hold anything but their quote; values nest; keys may be quoted."""
    text = 'call:f{a:<escape>x, {y} "z"<escape>,b:[1,-2.5,true,null],c:{d:<escape><escape>}}'

    (call,) = FORMATS["functiongemma"].parse(text)

    expected = {"a": 'x, {y} "z"', "b": [1, -2.5, True, None], "c": {"d": ""}}
    assert (call.name, call.arguments) == ("f", expected)


def test_a_bare_call_is_read_in_every_format(tokenizer: Tokenizer) -> None:
    """A model that forgets its tags has called all the same; without tools it has answered."""
    text = '```json\n{"name": "read_file", "arguments": {"path": "x"}}\n```' + END
    ids = tokenizer.encode(text, special=True)
    reader = ReplyReader(tokenizer, FORMATS["hermes"])
    for token in ids:
        reader.push(token)

    reply = read(tokenizer, FORMATS["hermes"], ids)

    assert same(reply.calls, [ToolCall("read_file", {"path": "x"})])
    assert reply.answer == ""
    with_tools = ReplyReader(tokenizer, FORMATS["hermes"], tools=TOOLS.schemas())
    assert not [piece for token in ids for piece in with_tools.push(token)]
    assert with_tools.finish().repaired
    assert reader.finish().calls == []
    assert read(tokenizer, FORMATS["hermes"], ids[:-1]).calls == []  # it may have gone on


@pytest.mark.parametrize("tags", [True, False])
def test_gemmas_quote_cannot_be_in_a_text(vocabulary: Vocabulary, tags: bool) -> None:
    """A text that holds the letters of its quote would end there, so it cannot be written."""
    form = FORMATS["functiongemma"]
    tokenizer = vocabulary(form, tags)
    constraint = CallGrammar(tokenizer, TOOLS.schemas(), form).constraint()

    assert take(constraint, tokenizer, "<start_function_call>call:read_file{path:<escape>a") is None
    assert take(constraint, tokenizer, "b<escape") is None
    (end,) = tokenizer.encode(">")
    if tags:
        assert not allowed(constraint, tokenizer.n_vocab)[end]
    else:
        assert take(constraint, tokenizer, ">}<end_function_call>" + END) is None
