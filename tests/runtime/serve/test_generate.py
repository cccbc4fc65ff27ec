"""A request on an engine: how its answers end, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from triplepoint import Engine
from triplepoint.runtime.inference.sampling import Sampling
from triplepoint.runtime.memory import HUGE_PAGE
from triplepoint.runtime.serve.events import Closed, Done, Event, Failed, Text
from triplepoint.runtime.serve.generate import Generation, GenerationRequest
from triplepoint.runtime.serve.prompts import Prompt

pytest.importorskip("starlette", reason="the server needs pip install 'triplepoint[serve]'")


def run(engine: Any, prompt: Prompt, **more: Any) -> list[Event]:
    """The events of a request."""
    events: list[Event] = []
    Generation(events.append).run(engine, GenerationRequest(prompt, Sampling(), **more))
    return events


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
