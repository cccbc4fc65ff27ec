"""A request on an engine: how its answers end, and what is told of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from triplepoint import Engine
from triplepoint.runtime.conversation.messages import Message
from triplepoint.runtime.conversation.turn import Limits, TurnRequest
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.memory import HUGE_PAGE
from triplepoint.runtime.serve.models.events import Call, Closed, Done, Event, Failed, Text
from triplepoint.runtime.serve.models.generate import Generation, GenerationRequest
from triplepoint.runtime.serve.models.prompts import Conversation, Prompt, Prompts
from triplepoint.runtime.serve.wire.anthropic.messages import MessagesWriter
from triplepoint.runtime.serve.wire.openai.chat_writer import ChatWriter
from triplepoint.runtime.serve.wire.openai.responses_body import ResponsesBody
from triplepoint.runtime.serve.wire.openai.responses_writer import ResponsesWriter

pytest.importorskip("starlette", reason="the server needs pip install 'triplepoint[serve]'")


def run(engine: Any, prompt: Prompt, **more: Any) -> list[Event]:
    """The events of a request."""
    events: list[Event] = []
    turn = TurnRequest(Sampling(), limits=Limits(more.pop("max_tokens", None)), **more)
    Generation(events.append).run(engine, GenerationRequest(prompt, turn, cached=False))
    return events


def chat_writer() -> ChatWriter:
    """Of whole answers in each format."""
    return ChatWriter("m", usage=False)


def messages_writer() -> MessagesWriter:
    """See `chat_writer`."""
    return MessagesWriter("m", 100)


def responses_writer() -> ResponsesWriter:
    """See `chat_writer`."""
    return ResponsesWriter("m", ResponsesBody(input="hi"))


@pytest.fixture(scope="module")
def tight() -> Iterator[Engine]:
    """nano with memory for one page."""
    with Engine.load("nano", threads=1, context=2048, kv_memory=HUGE_PAGE) as engine:
        yield engine


def test_an_answer_that_outgrows_the_memory_ends(tight: Engine) -> None:
    """What was written stays an answer, which ended for its length."""
    endless = Prompt(tight.tokenizer.encode("one " * 100))
    *texts, done, closed = run(tight, endless, max_tokens=1900, endless=True)

    assert isinstance(done, Done)
    assert done.reason == "length"
    assert 0 < done.tokens < 1900
    assert any(isinstance(event, Text) for event in texts)
    assert isinstance(closed, Closed)


def test_a_prompt_that_outgrows_the_memory_is_too_long(tight: Engine) -> None:
    """Clients find the words that they look for, with the tokens that fit."""
    ids = tight.tokenizer.encode("one " * 1000)[:1000]
    (failed,) = run(tight, Prompt(ids, param="prompt"), max_tokens=8)

    assert isinstance(failed, Failed)
    assert (failed.error.param, failed.error.code) == ("prompt", "context_length_exceeded")
    assert failed.error.overflow is not None
    tokens, fits = failed.error.overflow
    assert tokens == 1000
    assert 0 < fits < 1000
    assert failed.error.message.startswith(f"This model's maximum context length is {fits} tokens")
    told = failed.error.body_at("/v1/messages")["error"]["message"]
    assert told == f"prompt is too long: 1000 tokens > {fits} maximum"


PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "end": {"type": "integer"}},
    "required": ["path"],
}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": PARAMETERS}}]
ASKED = Conversation([Message("user", "hi", text="hi")], TOOLS)
CALL = '{"name": "read_file", "arguments": {"end": 3, "path": "a"}}'


def scripted_events(scripted: Any, said: Any, asked: Conversation = ASKED) -> list[Event]:
    """The events where the model says this."""
    engine = scripted(said)
    return run(engine, Prompts(engine.tokenizer).prompt(asked))


@pytest.mark.parametrize("make", [chat_writer, messages_writer, responses_writer])
def test_a_call_as_plain_text_is_told_once(scripted: Any, make: Callable[[], Any]) -> None:
    """It is a call; the whole answer does not have it as its text, too."""
    events = scripted_events(scripted, f"```json\n{CALL}\n```<|im_end|>")
    writer = make()
    for event in events:
        writer.add(event)
    told = json.dumps(writer.whole())

    (call,) = [event for event in events if isinstance(event, Call)]
    assert json.loads(call.arguments) == {"end": 3, "path": "a"}
    assert told.count("read_file") == 1
    assert "```" not in told
    assert any(isinstance(event, Done) and event.reason == "tool_calls" for event in events)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ('{"name": "read_file", "arguments": {"path": 1}}', ASKED),
        ('{"name": "read_file", "arguments": {}}', ASKED),
        ('{"name": "read_file", "arguments": {"path": "a", "b": 1}}', ASKED),
        (f"[{CALL}, {CALL}]", replace(ASKED, one_call=True)),
    ],
)
def test_plain_text_that_may_be_no_call_stays_text(
    scripted: Any, said: str, asked: Conversation
) -> None:
    """Arguments that do not fit their schema, and several calls where one may be."""
    events = scripted_events(scripted, f"{said}<|im_end|>", asked)

    assert "".join(event.text for event in events if isinstance(event, Text)) == said
    assert not [event for event in events if isinstance(event, Call)]
    assert [event.reason for event in events if isinstance(event, Done)] == ["stop"]


def test_a_budget_of_thinking_holds_each_answer(scripted: Any) -> None:
    """The prompt has it, from whatever format it came."""
    engine = scripted()
    prompt = Prompts(engine.tokenizer).prompt(Conversation([Message("user", "hi", text="hi")]))
    for most in (None, 0, 7):
        own = replace(prompt, thinking_tokens=most)
        request = GenerationRequest(own, TurnRequest(Sampling()), choices=2)
        assert request.turn_for(engine, 1).limits.thinking_tokens == most
