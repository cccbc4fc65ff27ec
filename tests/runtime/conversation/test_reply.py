"""What the model says, read token by token."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.reasoning_tags import Thinking
from triplepoint.runtime.conversation.reply import Reply, ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer

HERMES = FORMATS["hermes"]
CALL = '{"name": "f", "arguments": {"a": "<think> </think> <tool_call>"}}'
MakeTokenizer = Callable[..., Tokenizer]


def read(
    tokenizer: Tokenizer, text: str, *, thinking: bool = False, plain: bool = False
) -> tuple[Reply, str, str]:
    """The reply, and its answer and thinking as they were streamed.

    `plain` writes every tag of `text` in ordinary tokens.
    """
    reader = ReplyReader(tokenizer, HERMES, thinking=thinking)
    streamed = {"answer": "", "thinking": ""}
    for token in tokenizer.encode(text, special=not plain):
        for mode, piece in reader.push(token):
            streamed[mode] += piece
    return reader.finish(), streamed["answer"], streamed["thinking"]


TEXTS = {
    "answer": ("It is full.<|im_end|>", Reply("It is full.")),
    "blank": (" \n\nIt is\n\nfull. \n<|im_end|>", Reply("It is\n\nfull.")),
    "nothing": ("<|im_end|>", Reply("")),
    "thinking": ("<think>\nHm.\n</think>\n\nYes.", Reply("Yes.", "Hm.")),
    "endless thinking": ("<think>\nHm. Well", Reply("", "Hm. Well")),
    "call": (
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>',
        Reply(calls=[ToolCall("f", {}, '{"name": "f", "arguments": {}}')]),
    ),
    "text, then calls": (
        'Look.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"é": [1]}}\n</tool_call><|im_end|>',
        Reply(
            "Look.",
            calls=[
                ToolCall("f", {}, '{"name": "f", "arguments": {}}'),
                ToolCall("g", {"é": [1]}, '{"name": "g", "arguments": {"é": [1]}}'),
            ],
        ),
    ),
    "thinking, then call": (
        '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        Reply("", "Hm.", [ToolCall("f", {}, '{"name": "f", "arguments": {}}')]),
    ),
    "cut call": ('<tool_call>\n{"name": "f', Reply(cut_call='\n{"name": "f')),
    "a whole and a cut call": (
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>\n{"n',
        Reply(calls=[ToolCall("f", {}, '{"name": "f", "arguments": {}}')], cut_call='\n{"n'),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("tags", [True, False])
def test_reads_thinking_answer_and_calls(
    make_tokenizer: MakeTokenizer, name: str, tags: bool
) -> None:
    """The parts are told apart, with tags that are tokens and with tags that are letters."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    text, expected = TEXTS[name]

    reply, answer, thinking = read(tokenizer, text)

    assert reply == expected
    assert (answer, thinking) == (expected.answer, expected.thinking)


def test_thinking_that_the_template_opened(tokenizer: Tokenizer) -> None:
    """The first words are thinking when the prompt ended in <think>."""
    reply, _, thinking = read(tokenizer, "Hm.\n</think>\n\nYes.", thinking=True)

    assert (reply.answer, reply.thinking, thinking) == ("Yes.", "Hm.", "Hm.")


def test_a_quoted_tag_is_text(tokenizer: Tokenizer) -> None:
    """Where tags are tokens, the same letters in ordinary tokens call nothing."""
    text = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> is how to call.'

    reply, answer, _ = read(tokenizer, text, plain=True)

    assert reply.calls == []
    assert reply.answer == answer == text


def test_tags_inside_an_argument(make_tokenizer: MakeTokenizer) -> None:
    """In a call only its end counts, whatever an argument says."""
    for tokenizer in (make_tokenizer(), make_tokenizer(tags=())):
        reply, _, _ = read(tokenizer, f"<tool_call>\n{CALL}\n</tool_call>")

        assert [call.arguments for call in reply.calls] == [{"a": "<think> </think> <tool_call>"}]


@pytest.mark.parametrize("body", ["{", "[]", '{"name": 1}', '{"name": "f", "arguments": []}', ""])
def test_what_is_no_call_is_broken(tokenizer: Tokenizer, body: str) -> None:
    """Text between the tags that is no call is kept apart and never becomes one."""
    reply, _, _ = read(tokenizer, f"<tool_call>{body}</tool_call>")

    assert reply.calls == []
    assert len(reply.broken) == 1


def test_characters_of_many_tokens(tokenizer: Tokenizer) -> None:
    """A character is streamed when it is whole; half of one at the end is a replacement."""
    ids = tokenizer.encode("漢é")
    reader = ReplyReader(tokenizer, HERMES)
    pieces = [piece for token in ids[:-1] for _, piece in reader.push(token)]

    assert "".join(pieces) == "漢"
    assert reader.finish().answer == "漢\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize(
    ("known", "text"),
    [
        (
            Thinking("<think>", "</think>", ("<response>", "</response>")),
            "<think>Hm.</think>\n<response>Yes.</response><|im_end|>",
        ),
        (Thinking("[THINK]", "[/THINK]"), "[THINK]Hm.[/THINK]Yes.<|im_end|>"),
        (
            Thinking("<|START_THINKING|>", "<|END_THINKING|>"),
            "<|START_THINKING|>Hm.<|END_THINKING|>\nYes.<|im_end|>",
        ),
    ],
)
def test_tags_of_other_models(
    make_tokenizer: MakeTokenizer, tags: bool, known: Thinking, text: str
) -> None:
    """Thinking is found between whatever tags a model has; those around its answer go."""
    tokenizer = make_tokenizer(known.tags if tags else (), template=None)
    reader = ReplyReader(tokenizer, HERMES, tags=known)
    for token in tokenizer.encode(text, special=True):
        reader.push(token)

    reply = reader.finish()

    assert (reply.answer, reply.thinking) == ("Yes.", "Hm.")


@pytest.mark.parametrize("tags", [True, False])
def test_which_tokens_were_thinking(make_tokenizer: MakeTokenizer, tags: bool) -> None:
    """They are those of the tags, of what is between them and of the blank space after; the rest
    reads as if there had been none."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    for text, rest in (
        ("<think>\nHm.\n</think>\n\nYes.<|im_end|>", "Yes.<|im_end|>"),
        ("<think>\n\n</think>\n\nYes.<|im_end|>", None),
        ("Yes.<|im_end|>", None),
        ("<think>\nHm.<|im_end|>", "<|im_end|>"),
    ):
        ids = tokenizer.encode(text, special=True)
        reader = ReplyReader(tokenizer, HERMES)
        for token in ids:
            reader.push(token)
        reader.finish()
        kept = [token for n, token in enumerate(ids) if n not in reader.thought]
        assert tokenizer.decode(kept, special=True) == (rest or text)


@pytest.mark.parametrize("stop", ["\n\n", "\n"])
def test_blanks_before_an_answer_end_none(tokenizer: Tokenizer, stop: str) -> None:
    """They are the template's; the first one behind what is said ends it, a call is read whole."""
    thought = "<think>\nHm.\n</think>\n\n"
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    for text, answer, calls in ((thought + "Yes.\n\nNo.", "Yes.", 0), (thought + call, "", 1)):
        reader = ReplyReader(tokenizer, HERMES, stops=[stop])
        for token in tokenizer.encode(text, special=True):
            reader.push(token)
        reply = reader.finish()
        assert (reply.answer, len(reply.calls)) == (answer, calls)


def test_a_call_inside_of_thinking_is_no_thought(tokenizer: Tokenizer) -> None:
    """What is cut from the history with the thought leaves the call's tag there."""
    before, call = "<think>\nHm.\n", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    ids = tokenizer.encode(before + call, special=True)
    reader = ReplyReader(tokenizer, HERMES)
    for token in ids:
        reader.push(token)

    assert reader.thought == list(range(len(tokenizer.encode(before, special=True))))
    assert len(reader.finish().calls) == 1


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def told(tokenizer: Tokenizer, form: str, begun: str, text: str) -> tuple[str, Reply]:
    """What is told of an answer as text, after what its turn was begun with; and the reply."""
    reader = ReplyReader(tokenizer, FORMATS[form], tools=TOOLS)
    reader.begin_after(tokenizer.encode(begun), ())
    pieces = [
        piece for token in tokenizer.encode(text, special=True) for piece in reader.push(token)
    ]
    reply = reader.finish()
    return "".join(piece for _, piece in [*pieces, *reader.rest]), reply


@pytest.mark.parametrize("form", ["llama", "gemma", "json"])
@pytest.mark.parametrize("end", ["<|im_end|>", ""])
@pytest.mark.parametrize("answer", ['{"name": "Bob", "n": 3}', '{"name": "form"}', '{"name": ""}'])
def test_an_answer_that_begins_like_a_call(
    tokenizer: Tokenizer, form: str, answer: str, end: str
) -> None:
    """It is told as text, as soon as it names no tool: also where it is cut off."""
    text, reply = told(tokenizer, form, "", answer + end)

    assert (text, reply.answer) == (answer, answer)
    assert (reply.calls, reply.cut_call) == ([], None)


def test_an_answer_that_even_names_a_tool(tokenizer: Tokenizer) -> None:
    """It is told at its end, when nothing makes a call of it."""
    text, reply = told(tokenizer, "llama", "", '{"name": "f"} is the call.<|im_end|>')

    assert text == reply.answer == '{"name": "f"} is the call.'
    assert reply.calls == []


@pytest.mark.parametrize(
    ("form", "begun", "text"),
    [
        ("hermes", "Use <", "b> here"),
        ("json", "{", '"x": 1}'),
        ("json", "{", ' "x": 1}'),
        ("json", '{"name": "', 'Bob"}'),
        ("json", "The JSON is: ", '{"name": "f", "arguments": {}} and so on'),
        ("hermes", "Use <", ""),
    ],
)
@pytest.mark.parametrize("tags", [True, False])
def test_it_goes_on_with_what_was_begun(
    make_tokenizer: MakeTokenizer, form: str, begun: str, text: str, tags: bool
) -> None:
    """What the turn was begun with is not told again, and its line goes on."""
    tokenizer = make_tokenizer() if tags else make_tokenizer(tags=())
    piece, reply = told(tokenizer, form, begun, f"{text}<|im_end|>")

    assert piece == reply.answer == text
    assert reply.calls == []


@pytest.mark.parametrize("begun", ["{", '{"name": "f", "argum'])
def test_a_begun_call_ends(tokenizer: Tokenizer, begun: str) -> None:
    """The beginning of a call and what follows are one call."""
    whole = '{"name": "f", "arguments": {"a": 1}}'
    piece, reply = told(tokenizer, "json", begun, whole.removeprefix(begun) + "<|im_end|>")

    assert piece == reply.answer == ""
    assert [call.arguments for call in reply.calls] == [{"a": 1}]


@pytest.mark.parametrize(
    "text", ["<|channel>", "<|channel>thou", "<|channel>thought", "<|channel>thought<channel|>"]
)
def test_the_title_of_a_thought_is_no_thought(make_tokenizer: MakeTokenizer, text: str) -> None:
    """Also where nothing follows it, or the turn is cut within it."""
    tokenizer = make_tokenizer(("<|channel>", "<channel|>"))
    tags = Thinking("<|channel>", "<channel|>", title="thought")
    reader = ReplyReader(tokenizer, HERMES, tags=tags)
    for token in tokenizer.encode(text, special=True):
        assert not reader.push(token)

    assert (reader.finish(), reader.rest) == (Reply(), [])
