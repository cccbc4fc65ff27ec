"""Calls in plain JSON: what is one, and what only begins as one."""

from __future__ import annotations

import pytest

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.json_text import calls_in, may_be_calls
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import ToolSet, tool


@tool
def read_file(path: str) -> str:
    """Reads a file."""
    return path


@tool
def no_arguments() -> str:
    """Takes nothing."""
    return "ok"


TOOLS = ToolSet([read_file, no_arguments])


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ('{"name": "read_file", "arguments": {"path": "x"}}', ["read_file"]),
        ('```json\n{"name": "read_file", "parameters": {"path": "x"}}\n```', ["read_file"]),
        ('```\n{\n  "name": "no_arguments",\n  "arguments": {}\n}\n```\n', ["no_arguments"]),
        ('[{"name": "no_arguments", "arguments": {}}]', ["no_arguments"]),
        ('{"name": "unknown", "arguments": {}}', []),
        ('{"name": "read_file"}', []),
        ('Here: {"name": "no_arguments", "arguments": {}}', []),
        ('{"name": "no_arguments", "arguments": {}} is how to call.', []),
        ('{"name": "no_arguments", "arguments": "{}"}', []),
        ("[]", []),
        ("", []),
    ],
)
def test_an_answer_that_is_nothing_but_a_call(answer: str, names: list[str]) -> None:
    """JSON or a fence alone that calls a known tool is a call; with anything beside it, not."""
    assert [call.name for call in calls_in(answer, TOOLS.schemas())] == names
    if names:  # nothing of it is told as text before it is known to be a call
        known = [tool["function"]["name"] for tool in TOOLS.schemas()]
        assert all(may_be_calls(answer[:end], known) for end in range(len(answer) + 1))


def test_a_long_call_is_looked_at_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the beginning tells what it may be: the time for a long one grows with its length."""
    seen: list[int] = []

    def spy(begun: str, names: list[str]) -> bool:
        seen.append(len(begun))
        return may_be_calls(begun, names)

    monkeypatch.setattr("triplepoint.runtime.conversation.reply.may_be_calls", spy)
    text = '{"name": "read_file", "arguments": {"path": "' + "ab " * 2000
    reader = ReplyReader(tokenizer, FORMATS["hermes"], tools=TOOLS.schemas())
    assert not [piece for token in tokenizer.encode(text) for piece in reader.push(token)]
    assert max(seen) < 600
    assert reader.finish().answer == text
    assert "".join(piece for _, piece in reader.rest) == text


@pytest.mark.parametrize(
    ("answer", "told_after"),
    [
        ('{"name": "read_me"}', 16),
        ('{ "port": 80 }', 5),
        ('{"nam": 1}', 6),
        ('["a", "b"]', 2),
        ("{} is empty", 2),
        ("```python\nprint(1)\n```", 11),
        ("`app.log` says", 2),
        ("Here it is.", 1),
    ],
)
def test_an_answer_that_begins_as_a_call(
    tokenizer: Tokenizer, answer: str, told_after: int
) -> None:
    """It is told as soon as it cannot be one any more, and nothing of it is lost."""
    known = [tool["function"]["name"] for tool in TOOLS.schemas()]
    waits = [may_be_calls(answer[:end], known) for end in range(1, len(answer) + 1)]
    assert waits.index(False) == told_after - 1

    reader = ReplyReader(tokenizer, FORMATS["hermes"], tools=TOOLS.schemas())
    told = [piece for token in tokenizer.encode(answer) for piece in reader.push(token)]
    assert told
    assert reader.finish().answer == answer
    assert "".join(text for _, text in told + reader.rest) == answer
