"""Calls in any dress: what is one, what stays text, and what is told while it comes."""

from __future__ import annotations

import json

import pytest
from helpers.call_dresses import (
    ARGUMENTS,
    CALL,
    DRESSES,
    LONG,
    TEXTS,
    TOOLS,
    calls_in,
    doubled,
    python,
    written,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from triplepoint.runtime.conversation import call_dress, dressed_call
from triplepoint.runtime.conversation.call_dress import DressWatch
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.reply import Reply, ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("dress", DRESSES)
def test_a_call_in_any_dress(tokenizer: Tokenizer, dress: str, name: str) -> None:
    """It is read with its arguments, and nothing of it was told as text while it came."""
    text = DRESSES[dress](name)
    reply, told = read(tokenizer, text)

    assert [(call.name, call.arguments) for call in reply.calls] == [(name, ARGUMENTS[name])]
    assert (reply.repaired, reply.calls[0].problem) == (True, "")
    assert told == reply.answer
    assert name not in told
    assert reply.calls[0].text in text


TWO = ("read_file", "now")


@pytest.mark.parametrize("name", ["read_file", "now"])
@pytest.mark.parametrize("between", ["\n", "\n\n", ", ", ";\n", ""])
@pytest.mark.parametrize("dress", ["bare", "doubled braces", "fenced", "function_call", "python"])
def test_several_calls(tokenizer: Tokenizer, dress: str, between: str, name: str) -> None:
    """All are read, in order, whatever stands between them."""
    texts = [DRESSES[dress](one) for one in (name, "edit", name)]
    reply, told = read(tokenizer, between.join(texts))

    assert [call.name for call in reply.calls] == [name, "edit", name]
    assert [call.arguments for call in reply.calls] == [
        ARGUMENTS[one] for one in (name, "edit", name)
    ]
    assert (told, reply.answer) == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        f"[{written('read_file')},\n {written('now')}]",
        f"```json\n[\n{written('read_file')},\n{written('now')}\n]\n```",
        f"```json\n{written('read_file')}\n{written('now')}\n```",
        f"```json\n{written('read_file', indent=2)}\n{written('now', indent=2)}\n```",
        f"<tool_call>\n[{python('read_file')}, {python('now')}]\n</tool_call>",
        f"First the file:\n{written('read_file')}\n{written('now')}",
    ],
)
def test_calls_that_share_a_dress(text: str) -> None:
    """In one list, fence or tag, or behind one lead-in."""
    calls = calls_in(text)[0]
    assert [(call.name, call.arguments) for call in calls] == [(n, ARGUMENTS[n]) for n in TWO]


@pytest.mark.parametrize("name", TEXTS)
def test_what_stays_text(tokenizer: Tokenizer, name: str) -> None:
    """It is told whole, and calls nothing."""
    reply, told = read(tokenizer, TEXTS[name])

    assert (reply.calls, reply.repaired) == ([], False)
    assert told == reply.answer == TEXTS[name].strip()


@pytest.mark.parametrize(
    ("text", "told_after"),
    [
        ('{"name": "read_me"}', 19),
        ('{"name": "read_file", "version": "1"}', 24),
        ('{ "port": 80 }', 5),
        ('["a", "b"]', 2),
        ("{} is empty", 2),
        ("```python\nprint(1)\n```", 11),
        ("`app.log` says", 2),
        ("Here it is.", 1),
        ("ready", 5),
        ("now or later", 4),
        ("A list:\n\n- one", 1),
    ],
)
def test_text_is_told_as_soon_as_it_cannot_be_a_call(text: str, told_after: int) -> None:
    """So many characters of it are needed; after that nothing of it waits."""
    watch = DressWatch(TOOLS)
    lengths = [len(watch.push(letter)) for letter in text]

    assert next(n for n, length in enumerate(lengths, 1) if length) == told_after
    assert sum(lengths[:told_after]) == told_after


def test_prose_costs_nothing_behind_the_lead_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is looked at any more where no call would count."""
    looked: list[str] = []
    watch = DressWatch(TOOLS)
    watch.push(LONG)
    monkeypatch.setattr(call_dress, "find_head", lambda line, names: looked.append(line))

    assert watch.push(f"\n{CALL}") == f"\n{CALL}"
    assert (watch.off, looked) == (True, [])


def test_a_long_call_is_looked_at_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning tells what it may be: the time for a long one grows with its length."""
    seen: list[int] = []
    find = dressed_call.find_head

    def spy(line: str, names: tuple[str, ...]) -> dressed_call.Found:
        seen.append(len(line))
        return find(line, names)

    monkeypatch.setattr(call_dress, "find_head", spy)
    text = '{"name": "read_file", "arguments": {"path": "' + "ab " * 2000
    reply, told = read(tokenizer, text)
    assert max(seen) < 600
    assert told == reply.answer == text.strip()


def test_what_models_copy_from_a_schema_is_left_out() -> None:
    """Its keywords; neither what the tool takes, nor what nobody knows."""
    given = {"path": "a", "end": None, "additionalProperties": False, "type": "x"}
    odd = json.dumps({"name": "read_file", "arguments": {**given, "odd": 1}})
    (call,), notes = calls_in(odd)

    assert call.arguments == {"path": "a", "end": None, "odd": 1}
    assert len(notes) == 2
    takes_all = {"name": "f", "parameters": {"type": "object", "additionalProperties": True}}
    text = '{"name": "f", "arguments": {"type": "x", "required": null}}'
    (call,) = calls_in(text, [{"type": "function", "function": takes_all}])[0]
    assert call.arguments == {"type": "x", "required": None}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "open_folder", "arguments": {"path": "logs"}}',
        '```json\n{\n  "name": "open_folder",\n  "arguments": {\n    "path": "logs"\n  }\n}\n```',
        '{{"name": "open_folder", "parameters": {"path": "logs"}}}',
    ],
)
def test_a_call_of_a_tool_that_is_not_there(tokenizer: Tokenizer, text: str) -> None:
    """It has a problem that names those that are; nothing of it is an answer."""
    reply, told = read(tokenizer, text)
    (call,) = reply.calls

    assert (told, reply.answer, call.arguments) == ("", "", {"path": "logs"})
    assert call.problem == "no such tool: open_folder; the tools are read_file, now, edit"


def test_arguments_that_nest_too_deeply() -> None:
    """They could not be written down again: the call must not run."""
    deep = '{"a": ' * 150 + "1" + "}" * 150
    (call,) = calls_in(f'{{"name": "now", "arguments": {deep}}}')[0]
    assert "nested" in call.problem
    assert calls_in(f'{{"name": "now", "arguments": {"[" * 9999}')[0] == []
    assert calls_in('{"name": "now", "arguments": ' + '{"a": ' * 9999)[0] == []


PARTS = st.sampled_from(
    [
        *(
            "{",
            "}",
            "{{",
            "}}",
            "[",
            "]",
            "(",
            ")",
            '"',
            "'",
            ",",
            ":",
            "\n",
            " ",
            "```",
            "```json\n",
        ),
        *(
            "<tools>",
            "</tools>",
            "read_file",
            "now",
            "name",
            '"name": "now"',
            '"arguments": {',
            "=",
        ),
        *("\\", '"path": "a"', "now(", "print(", "word. ", "\\u00", "é", "true", "[TOOL_CALLS]"),
        *(CALL, doubled("edit"), python("edit"), written("now", indent=1)),
    ]
)


@settings(max_examples=500, deadline=None)
@given(parts=st.lists(PARTS, max_size=14), cuts=st.integers(1, 9))
@example(parts=["{", "{", '"name": "now"', ",", '"arguments": {', "\\"], cuts=1)
def test_nothing_is_lost(parts: list[str], cuts: int) -> None:
    """Reading raises nothing; it is the same however the text comes; what is told is a beginning
    of it, and with what is held the whole."""
    text = "".join(parts)
    watch = DressWatch(TOOLS)
    told = "".join(watch.push(text[n : n + cuts]) for n in range(0, len(text), cuts))
    found = watch.found()

    assert found == calls_in(text)
    assert found == watch.found()
    assert not found[0] or watch.released == told
    assert told + watch.let_go() == text
    assert all(isinstance(call.arguments, dict) for call in found[0])


@settings(max_examples=50, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_told_whole(text: str) -> None:
    """Whatever letters it is made of."""
    watch = DressWatch(TOOLS)
    assert "".join(map(watch.push, text)) + watch.let_go() == text


def read(tokenizer: Tokenizer, text: str) -> tuple[Reply, str]:
    """A reply of this text, and what was told of it as text by its end."""
    reader = ReplyReader(tokenizer, FORMATS["hermes"], tools=TOOLS)
    told = ""
    for token in [*tokenizer.encode(text), next(iter(tokenizer.stop_ids))]:
        told += "".join(piece for _, piece in reader.push(token))
    reply = reader.finish()
    rest = "".join(piece for _, piece in reader.rest)
    if reply.calls:
        assert (told + rest).split() == text.strip().split()
    return reply, told if reply.calls else told + rest
