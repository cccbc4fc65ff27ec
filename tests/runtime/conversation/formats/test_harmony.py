"""Harmony: a turn is made of messages with headers, and the grammar holds all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.format_checks import END, same, take

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet, tool

FORM = FORMATS["harmony"]
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
ALOUD = "<|channel|>commentary<|message|>Look.<|end|><|start|>assistant"
MakeTokenizer = Callable[..., Tokenizer]


@tool
def look(path: str = "") -> str:
    """Looks."""
    return path


TOOLS = ToolSet([look]).schemas()


@pytest.fixture(params=[True, False], ids=["tokens", "letters"])
def tokenizer(make_tokenizer: MakeTokenizer, request: pytest.FixtureRequest) -> Tokenizer:
    """A vocabulary in which the tags are tokens, or are not."""
    return make_tokenizer((), template=None, control=FORM.tags if request.param else ())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("<|channel|>final<|message|>It is.", True),
        (f"{THOUGHT}<|channel|>final<|message|>It is.", True),
        (f"{THOUGHT}{ALOUD}{THOUGHT}<|channel|>final<|message|>", True),
        (f"{THOUGHT} to=functions.look<|channel|>commentary json<|message|>{{}}", True),
        ("<|channel|>analysis to=functions.look<|message|>{}", True),
        ("It is.", False),
        (THOUGHT, False),
        ("<|channel|>other<|message|>It is.", False),
        (f"{THOUGHT.removesuffix('assistant')}user<|message|>Hi.", False),
        ("<|channel|>commentary to=functions.other <|constrain|>json<|message|>{}", False),
        ("<|channel|>commentary to=python <|constrain|>json<|message|>{}", False),
    ],
)
def test_the_whole_turn_is_held(tokenizer: Tokenizer, text: str, whole: bool) -> None:
    """Thoughts, then an answer or a call of a tool that there is; no other channel or role."""
    constraint = CallGrammar(tokenizer, TOOLS, FORM).constraint()

    assert (take(constraint, tokenizer, text + END) is None) is whole
    assert constraint.done is whole


def test_without_tools(tokenizer: Tokenizer) -> None:
    """Thoughts and an answer may be written, of a schema where there is one, and no call."""
    free = CallGrammar(tokenizer, (), FORM)
    typed = CallGrammar(tokenizer, (), FORM, {"type": "object", "properties": {"a": {"const": 1}}})
    call = FORM.render([ToolCall("look")])
    words, data = (f"{THOUGHT}<|channel|>final<|message|>{t}{END}" for t in ("Yes.", '{"a": 1}'))

    assert (free.name, typed.name) == ("harmony", "harmony")
    assert take(free.constraint(), tokenizer, words) is None
    assert take(free.constraint(), tokenizer, call) is not None
    assert take(typed.constraint(), tokenizer, data) is None
    assert take(typed.constraint(), tokenizer, words) is not None


def test_messages_are_told_apart(make_tokenizer: MakeTokenizer) -> None:
    """Thoughts, what is said before a call, and the call; which tokens are thoughts, with all that
    goes with them when they are dropped."""
    tokenizer = make_tokenizer((), template=None, control=FORM.tags)
    call = ToolCall("look", {"path": "<|end|>"})
    head, tag, tail = FORM.render([call]).rpartition("<|end|>")
    texts = [[(THOUGHT, True)], [(ALOUD, True)], [(THOUGHT, True)]]
    texts += [[(head, True), (tag, False), (tail, True)], [("<|call|>", True)]]
    parts = [tokenizer.encode_parts(text) for text in texts]
    reader = ReplyReader(tokenizer, FORM, tools=TOOLS)
    pieces = [piece for part in parts for token in part for piece in reader.push(token)]
    reply = reader.finish()

    assert (reply.thinking, reply.answer, reply.broken) == ("Hm.\n\nHm.", "Look.", [])
    assert "".join(text for mode, text in pieces if mode == "thinking") == reply.thinking
    assert {mode for mode, _ in pieces} == {"thinking", "answer"}
    assert same(reply.calls, [call])
    first, second, third = (len(part) for part in parts[:3])
    rest = range(first + second, first + second + third)
    assert reader.thought == [*range(first), *rest]


def test_a_thought_that_was_cut(make_tokenizer: MakeTokenizer) -> None:
    """All of its tokens are the thought, and there is no answer and no call."""
    tokenizer = make_tokenizer((), template=None, control=FORM.tags)
    ids = tokenizer.encode("<|channel|>analysis<|message|>I should", special=True)
    reader = ReplyReader(tokenizer, FORM, tools=TOOLS)
    for token in ids:
        reader.push(token)
    reply = reader.finish()

    assert (reply.thinking, reply.answer, reply.calls) == ("I should", "", [])
    assert reader.thought == [*range(len(ids))]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("<|channel|>commentary to=functions.look <|constrain|>json", "look"),
        (" to=functions.look<|channel|>commentary json", "look"),
        ("<|channel|>analysis to=functions.a-b.c code", "a-b.c"),
        ("<|channel|>commentary to=look", "look"),
    ],
)
def test_headers_of_calls(header: str, name: str) -> None:
    """The recipient stands before the channel or after it, with its namespace or without."""
    (call,) = FORM.parse(header + '<|message|>{"path": "to=functions.x<|message|>"}')

    assert (call.name, call.arguments) == (name, {"path": "to=functions.x<|message|>"})


def test_only_one_message_ends_a_turn(make_tokenizer: MakeTokenizer) -> None:
    """Beside `<|return|>` and `<|call|>`, `<|end|>` ends no answer; elsewhere it does."""
    texts: list[Any] = []
    for control in (FORM.tags, ("<|end|>", "<|user|>")):
        tokenizer = make_tokenizer((), template=None, control=control)
        ids = (tokenizer.stop_ids, tokenizer.vocabulary.end_ids)
        texts.append([{tokenizer.vocabulary.tokens[i] for i in some} for some in ids])

    ends = {"<|endoftext|>", "<|im_end|>", "<|return|>", "<|call|>"}
    assert texts[0] == [ends, ends | {"<|end|>"}]
    assert texts[1] == [{"<|endoftext|>", "<|im_end|>", "<|end|>"}] * 2
