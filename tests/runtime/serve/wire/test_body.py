"""Bodies of requests, whatever they hold and however they come."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.models.events import Call, Closed, Done, PromptRead
from triplepoint.runtime.serve.models.generate import Generation
from triplepoint.runtime.serve.settings import Limits
from triplepoint.runtime.serve.wire import body
from triplepoint.runtime.serve.wire.anthropic.messages import MessagesBody
from triplepoint.runtime.serve.wire.body import Body, checked
from triplepoint.runtime.serve.wire.foreign import translated
from triplepoint.runtime.serve.wire.llama.text_routes import DetokenizeBody
from triplepoint.runtime.serve.wire.openai.chat_completions import ChatBody
from triplepoint.runtime.serve.wire.openai.completions import CompletionBody
from triplepoint.runtime.serve.wire.openai.responses_body import ResponsesBody

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
MANY = 100_000


@pytest.mark.parametrize(
    ("kind", "body", "name"),
    [
        (ChatBody, HELLO, "functions"),
        (ChatBody, HELLO, "bad_words"),
        (ResponsesBody, {"input": "hello"}, "context_management"),
        (MessagesBody, {**HELLO, "max_tokens": 1}, "mcp_servers"),
    ],
)
def test_an_empty_list_asks_for_nothing(kind: type[Body], body: dict[str, Any], name: str) -> None:
    """Of what is not here it counts as not given; anything in it is refused by name."""
    names = set(kind.model_fields)
    checked(kind, translated({**body, name: []}, names))

    for asked in ([{}], {}, ""):
        with pytest.raises(APIError, match=f"'{name}' is not supported"):
            checked(kind, translated({**body, name: asked}, names))


@pytest.mark.parametrize(
    ("path", "name"),
    [("chat/completions", "messages"), ("completions", "prompt"), ("responses", "input")],
)
def test_an_empty_list_of_what_is_here_is_looked_at(server: Server, path: str, name: str) -> None:
    """A conversation must not be empty, which is not the same as that it is missing."""
    refused = server.post(f"/v1/{path}", {name: []})

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == name
    assert "Missing" not in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        (ChatBody, {"messages": [1] * MANY}, "messages[0]"),
        (ChatBody, {**HELLO, **{f"x{n}": 1 for n in range(MANY)}}, None),
        (ChatBody, {**HELLO, "logit_bias": {str(n): "" for n in range(MANY)}}, "logit_bias"),
        (
            ChatBody,
            {**HELLO, "chat_template_kwargs": {str(n): [] for n in range(MANY)}},
            "chat_template_kwargs",
        ),
        (CompletionBody, {"prompt": [1, 2, *[None] * MANY]}, "prompt[2]"),
        (CompletionBody, {"prompt": ["a", *[[1, 2.5]] * MANY]}, "prompt[1][1]"),
        (
            ResponsesBody,
            {"input": [{"role": "user", "content": [1] * MANY}]},
            "input[0].content[0]",
        ),
        (MessagesBody, {"messages": [1] * MANY, "max_tokens": 1}, "messages[0]"),
        (DetokenizeBody, {"tokens": ["a"] * MANY}, "tokens[0]"),
    ],
)
def test_a_body_full_of_errors(kind: type[Body], body: dict[str, Any], param: str | None) -> None:
    """The first one is told; to note all of them would take seconds, and gigabytes."""
    began = time.process_time()
    with pytest.raises(APIError) as refused:
        checked(kind, body)

    assert refused.value.param == param
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("more", "param"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
    ],
)
def test_where_an_error_is(more: dict[str, Any], param: str) -> None:
    """As a client writes it."""
    with pytest.raises(APIError) as refused:
        checked(ChatBody, {**HELLO, **more})

    assert refused.value.param == param


def test_null_is_not_given(server: Server) -> None:
    """Clients send null for what they do not set, also inside of what they set."""
    names = ("audio", "stop", "seed", "tools", "tool_choice", "response_format", "logit_bias")
    assert server.chat(**dict.fromkeys(names)).status_code == 200
    assert server.stream(stream_options={"include_usage": None})[-1] == "[DONE]"
    called = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": None, "is_error": None}
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [result]},
    ]
    answer = server.post("/v1/messages", {"messages": messages, "max_tokens": 1})

    assert answer.status_code == 200, answer.text


def test_a_compressed_body(server: Server) -> None:
    """It is refused for what it is."""
    body = gzip.compress(json.dumps(HELLO).encode())
    answer = server.client.post(
        "/v1/chat/completions", content=body, headers={"Content-Encoding": "gzip"}
    )

    assert answer.status_code == 415
    assert answer.json()["error"]["param"] == "content-encoding"


def test_a_client_that_goes_before_its_request_is_there(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no error of the server, and its log does not say so."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        )
        connection.sendall(head.encode() + b'{"messages":')
    time.sleep(0.2)  # for the event loop to say what it has to

    assert server.chat().status_code == 200
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


def test_a_number_that_is_none_in_json(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may write 1e999, which is infinite here; the answer has null for it."""
    call = Call(0, 0, "c", "f", '{"a": 1e999}')

    def calling(self: Generation, *_: Any) -> None:
        for event in (PromptRead(1, 0, 0.1), call, Done(0, "tool_calls", 1, 0, 0.1), Closed()):
            self.emit(event)

    monkeypatch.setattr(Generation, "run", calling)
    answer = server.post("/v1/messages", {**HELLO, "max_tokens": 8})

    assert answer.status_code == 200
    assert answer.json()["content"][0]["input"] == {"a": None}


@pytest.mark.parametrize(
    ("path", "param", "more"),
    [
        ("/v1/chat/completions", "messages", {}),
        ("/v1/messages", "messages", {"max_tokens": 1}),
        ("/v1/responses", "input", {}),
        ("/apply-template", "messages", {}),
    ],
)
def test_too_many_messages(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, param: str, more: dict[str, Any]
) -> None:
    """They are refused before each is looked at."""
    monkeypatch.setattr(body, "checked", lambda *_: pytest.fail("they were looked at"))
    many = Limits().messages + 1
    answer = server.post(path, {param: [{"role": "user", "content": "x"}] * many, **more})

    assert answer.status_code == 400
    assert "there are more than 10,000" in answer.json()["error"]["message"]


def test_a_large_body_keeps_nobody_waiting(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is checked in a thread of its own, a small one at once."""
    threads: list[str] = []

    def noted(kind: type[Body], value: dict[str, Any]) -> Any:
        threads.append(threading.current_thread().name)
        return checked(kind, value)

    monkeypatch.setattr(body, "checked", noted)
    for size in (10, body.LARGE):
        assert server.post("/tokenize", {"content": "x" * size}).status_code == 200

    assert len(set(threads)) == len(threads) == 2
