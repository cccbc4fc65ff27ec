"""Nothing is read twice: what a turn costs in a long conversation, and what is said when it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import Notice, PhaseFinished
from triplepoint.runtime.conversation.chat import Chat, Message
from triplepoint.runtime.engine.engine import NANO, Engine
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import FileTools, ToolSet
from triplepoint.traces import Trace
from triplepoint.traces.timeline import plain


def long_nano(path: Path, context: int) -> Path:
    """The embedded model with another number in its context_length."""
    key = b"qwen3.context_length" + struct.pack("<I", 4)  # uint32
    data = NANO.read_bytes()
    at = data.index(key) + len(key)
    path.write_bytes(data[:at] + struct.pack("<I", context) + data[at + 4 :])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("before", [5_000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_a_turn_of_200_tokens_after_many(tmp_path: Path, before: int) -> None:
    """No more than 264 tokens are prefilled: the new ones and what the last turn left over."""
    with Engine.load(long_nano(tmp_path / "long.gguf", 24576)) as engine:
        agent = Agent(engine, trace=False, max_tokens=1)
        word = "sensor"
        each = agent.setup.conversation.count(f" {word}")
        list(agent.stream(word + f" {word}" * (before // each)))
        assert len(agent.session.tokens) >= before
        question = word + f" {word}" * (180 // each)
        events = list(agent.stream(question))

    (finished,) = [e for e in events if isinstance(e, PhaseFinished) and e.reuse]
    assert finished.reuse is not None
    assert 180 <= finished.phase.tokens <= 264
    assert finished.reuse.reused >= before
    assert finished.reuse.reused + finished.phase.tokens == finished.reuse.total


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tokens: tokens.__setitem__(3, tokens[3] + 1), "in the template text (template)"),
        (lambda tokens: tokens.__delitem__(slice(-2, None)), "in the generated tokens of mess"),
    ],
)
def test_a_session_that_was_changed_is_read_again(
    scripted: MakeEngine, tmp_path: Path, change: Callable[[list[int]], None], says: str
) -> None:
    """From the first token that differs, and that token, its message and the cost are told."""
    path = tmp_path / "run.jsonl"
    agent = Agent(scripted("Hi." + END, "Yes." + END), trace=path)
    agent.run("Hello")
    before = list(agent.ledger.ids)
    change(agent.session.tokens)
    events = list(agent.stream("Still there?"))
    agent.close()

    assert agent.session.tokens[: len(before)] == before
    assert agent.session.tokens == agent.ledger.ids
    (notice,) = [e.message for e in events if isinstance(e, Notice)]
    assert says in notice
    assert "the session was changed beside the conversation" in notice
    assert " tokens were recomputed in " in notice
    trace = Trace.load(path)
    (miss,) = [phase.miss for phase in trace.phases if phase.miss]
    assert miss.tokens == len(before) - miss.position
    assert miss.seconds > 0
    assert f"recomputed {miss.tokens} tokens" in plain(trace)


def test_a_redacted_miss_has_no_tokens(scripted: MakeEngine, tmp_path: Path) -> None:
    """Where it was and what it cost stays; the two token ids go."""
    path = tmp_path / "run.jsonl"
    agent = Agent(scripted("Hi." + END, "Yes." + END), trace=path, redact=True)
    agent.run("Hello")
    agent.session.tokens[3] += 1
    agent.run("Still there?")
    agent.close()

    trace = Trace.load(path)
    assert trace.turns[0].question.startswith("[redacted")
    (miss,) = [phase.miss for phase in trace.phases if phase.miss]
    assert (miss.position, miss.expected, miss.found) == (3, None, None)
    assert miss.field == "template text"


def test_more_tokens_behind_the_end_cost_nothing(scripted: MakeEngine) -> None:
    """They are forgotten; nothing is recomputed, so nothing is said."""
    agent = Agent(scripted("Hi." + END, "Yes." + END), trace=False)
    agent.run("Hello")
    agent.session.prefill([7, 8, 9])
    events = list(agent.stream("Still there?"))

    assert not [event for event in events if isinstance(event, Notice)]
    assert agent.session.tokens == agent.ledger.ids
    assert agent.trace.phases[-2].miss is None


def test_days_and_folders_are_not_in_the_prefix(
    scripted: MakeEngine, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """What the model is told before the question is the same on another day, elsewhere."""
    heads: list[Any] = []
    for day, name in ((1, "here"), (2, "there")):
        root = tmp_path / name
        root.mkdir()
        (root / f"{name}.txt").write_text(name)
        agent = Agent(scripted(), workspace=root, trace=False)
        tools = ToolSet(FileTools(root)).schemas()
        chat = Chat(tokenizer, tools=tools, now=datetime(2026, 11, day))
        asked = [Message("system", agent.setup.config.system), Message("user", "What?")]
        shares = chat.encode(chat.open(asked), first=True)
        heads.append([ids for segment, ids in shares if segment.origin != "user"])

    assert heads[0] == heads[1]
    assert sum(map(len, heads[0])) > 50
