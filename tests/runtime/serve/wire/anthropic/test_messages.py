"""Anthropic's format: shapes and orders of what clients get, and what they are refused."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from helpers.serving import Server, named_events

from triplepoint.runtime.conversation.chat import Message
from triplepoint.runtime.serve.models.events import (
    Call,
    CallPart,
    Done,
    Event,
    PromptRead,
    Text,
    Thought,
)
from triplepoint.runtime.serve.wire.anthropic.blocks import (
    MAX_THOUGHT,
    carried,
    messages_of,
    signature_of,
)
from triplepoint.runtime.serve.wire.anthropic.messages import CountBody, MessagesWriter

URL = "/v1/messages"
READ = {
    "name": "read_file",
    "description": "Read a text file.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}
QUESTION = {"role": "user", "content": "What's the error in app.log?"}
EVENTS: list[Event] = [
    PromptRead(10, 4, 0.1),
    Thought(0, "Let me "),
    Thought(0, "see."),
    Text(0, "\n\n"),
    Text(0, "I read “it”."),
    Text(0, "\n"),
    Call(0, 0, "functions.read:0", "read", '{"path": "a"}'),
    Text(0, "\n"),
    Call(0, 1, "functions.read:1", "read", "{}"),
    Done(0, "tool_calls", 9, 3, 0.1),
]
PROMPT: dict[str, Any] = {"model": "nano", "messages": [{"role": "user", "content": "hello"}]}


def ask(server: Server, **more: Any) -> Any:
    """The body of an answer."""
    return server.post(URL, {**PROMPT, "max_tokens": 8, **more}).json()


def stream(server: Server, **more: Any) -> list[tuple[str, Any]]:
    """The events of an answer."""
    answer = server.post(f"{URL}?beta=true", {**PROMPT, "max_tokens": 8, "stream": True, **more})
    assert answer.status_code == 200, answer.text
    return named_events(answer.text)


def shown(**asked: Any) -> list[Message]:
    """What a template is given of a conversation."""
    body = CountBody.model_validate({"model": "nano", **asked})
    return messages_of(body.system, body.messages)


def test_an_answer(server: Server) -> None:
    """Every field that clients look at is there; it is the text of the chat format."""
    body = ask(server)
    chat = server.chat().json()

    assert body["id"].startswith("msg_")
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "nano")
    assert body["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
    usage = body["usage"]
    assert usage["output_tokens"] == 8
    assert (
        usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    )


def test_a_stream(server: Server) -> None:
    """The events come in the order that clients expect, and make the whole answer."""
    events = stream(server)
    names = [name for name, _ in events]
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    start, stop = events[0][1]["message"], events[-2][1]

    assert names[:2] == ["message_start", "content_block_start"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == (
        [],
        None,
        0,
    )
    assert "".join(d["text"] for d in deltas) == ask(server)["content"][0]["text"]
    assert stop["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert stop["usage"]["output_tokens"] == 8


def test_blocks_of_a_stream() -> None:
    """Thoughts, texts and calls are blocks of their own, none of white space; nothing is lost."""
    writer, whole = MessagesWriter("m", 100), MessagesWriter("m", 100)
    events = named_events(b"".join([*map(writer.stream, EVENTS), writer.end()]).decode())
    for event in EVENTS:
        whole.add(event)
    made: list[Any] = []
    for _, data in events:
        if data["type"] == "content_block_start":
            assert data["index"] == len(made)
            made.append(data["content_block"])
        elif data["type"] == "content_block_delta":
            assert data["index"] == len(made) - 1
            *_, kind = delta = data["delta"]
            key = "input" if kind == "partial_json" else kind
            made[-1][key] = (made[-1][key] or "") + delta[kind]
    *told, one, two = made
    found = whole.whole()

    assert [data["index"] for name, data in events if name == "content_block_stop"] == [0, 1, 2, 3]
    assert told == found["content"][:2]
    assert told[0]["thinking"] == "Let me see."
    assert told[0]["signature"]
    assert told[1] == {"type": "text", "text": "\n\nI read “it”.\n"}
    assert [json.loads(call["input"]) for call in (one, two)] == [{"path": "a"}, {}]
    assert [call["input"] for call in found["content"][2:]] == [{"path": "a"}, {}]
    assert one["id"] != two["id"]
    assert one["id"].startswith("toolu_")
    assert found["stop_reason"] == "tool_use"
    assert found["usage"]["input_tokens"] == 6
    assert found["usage"]["cache_read_input_tokens"] == 4
    assert found["usage"]["output_tokens_details"] == {"thinking_tokens": 3}


def test_thoughts_that_are_not_shown() -> None:
    """Their blocks are empty; with their signatures they come back as they were."""
    writer, whole = MessagesWriter("m", 100, thoughts=False), MessagesWriter("m", 100)
    events = named_events(b"".join([*map(writer.stream, EVENTS), writer.end()]).decode())
    for event in EVENTS:
        whole.add(event)
    of_it = [data for _, data in events if data.get("index") == 0]
    block = writer.whole()["content"][0]
    begun, signed, ended = of_it

    assert begun["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert signed["delta"] == {"type": "signature_delta", "signature": block["signature"]}
    assert ended["type"] == "content_block_stop"
    assert block["thinking"] == ""
    assert writer.whole()["content"][1] == whole.whole()["content"][1]
    (said,) = shown(messages=[{"role": "user", "content": "a"}, *_said(block)])[1:]
    assert said.thinking == "Let me see."


@pytest.mark.parametrize(
    "signature",
    ["", "x", "thought1.", "thought1.***", "thought1.AAAA"],
)
def test_a_signature_that_holds_no_thought(signature: str) -> None:
    """Nothing was thought, then."""
    block = {"type": "thinking", "thinking": "", "signature": signature}
    (said,) = shown(messages=[{"role": "user", "content": "a"}, *_said(block)])[1:]

    assert said.thinking == ""


def test_a_signature_that_would_fill_memory() -> None:
    """What is found in it is bounded."""
    made = signature_of("a" * (20 * MAX_THOUGHT), carrying=True)

    assert len(carried(made)) == MAX_THOUGHT


def test_display_omitted(server: Server) -> None:
    """It is taken in both kinds of thinking; other words are not."""
    for kind in ("enabled", "adaptive"):
        asked = {"type": kind, "budget_tokens": 1024, "display": "omitted"}
        assert ask(server, thinking=asked)["type"] == "message"
    refused = ask(server, thinking={"type": "enabled", "display": "all"})["error"]
    assert refused["param"] == "thinking.display"


def _said(block: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": [block, {"type": "text", "text": "b"}]}]


def test_a_call_that_is_cut() -> None:
    """Its block ends with what was written of it."""
    writer = MessagesWriter("m", 9)
    told: list[Event] = [PromptRead(1, 0, 0.1), CallPart(0, 0, "x", "read", '{"pa', True)]
    told += [CallPart(0, 0, "x", "read", 'th": "', False), Done(0, "length", 9, 0, 0.1)]
    events = named_events(b"".join([*map(writer.stream, told), writer.end()]).decode())
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]

    assert [delta["partial_json"] for delta in deltas] == ['{"pa', 'th": "']
    assert [name for name, _ in events][-3:] == [
        "content_block_stop", "message_delta", "message_stop"
    ]  # fmt: skip
    assert events[-2][1]["delta"]["stop_reason"] == "max_tokens"


def test_why_an_answer_ended() -> None:
    """A stop sequence is told; so is whether the limit or the context was too short."""

    def end(done: Done) -> tuple[str, str | None]:
        writer = MessagesWriter("m", 9)
        for event in (PromptRead(1, 0, 0.1), done):
            writer.add(event)
        return writer.whole()["stop_reason"], writer.whole()["stop_sequence"]

    assert end(Done(0, "stop", 3, 0, 0.1)) == ("end_turn", None)
    assert end(Done(0, "stop", 3, 0, 0.1, "END")) == ("stop_sequence", "END")
    assert end(Done(0, "length", 9, 0, 0.1)) == ("max_tokens", None)
    assert end(Done(0, "length", 8, 0, 0.1)) == ("model_context_window_exceeded", None)


def test_a_tool_call_and_its_result(server: Server) -> None:
    """A call fits the schema, streamed and whole, and goes on with its result."""
    body = {"messages": [QUESTION], "tools": [READ], "max_tokens": 200}
    first = ask(server, **body, tool_choice={"type": "any"})
    calls = [block for block in first["content"] if block["type"] == "tool_use"]
    events = stream(server, **body, tool_choice={"type": "tool", "name": "read_file"})
    pieces = [data["delta"].get("partial_json", "") for _, data in events if "delta" in data]

    assert first["stop_reason"] == "tool_use"
    assert (calls[0]["name"], calls[0]["input"].keys()) == ("read_file", {"path"})
    assert json.loads("".join(pieces)) == calls[0]["input"]
    assert sum(map(bool, pieces)) > 2, "the input comes as it is written"
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": "ERROR disk full\n"}
        for call in calls
    ]
    said = {"role": "assistant", "content": first["content"]}
    body["messages"] = [QUESTION, said, {"role": "user", "content": results}]
    second = ask(server, **body)
    assert second["stop_reason"] in ("end_turn", "tool_use")
    assert second["usage"]["cache_read_input_tokens"] > 0
    none = ask(server, **{**body, "max_tokens": 20}, tool_choice={"type": "none"})
    assert {block["type"] for block in none["content"]} == {"text"}


def test_stop_sequences(server: Server) -> None:
    """An answer ends before the first of them, and tells which."""
    whole = ask(server, max_tokens=30)["content"][0]["text"]
    at = len(whole) // 2
    stopped = ask(server, max_tokens=30, stop_sequences=["\x00", whole[at : at + 3]])

    assert (stopped["stop_reason"], stopped["stop_sequence"]) == (
        "stop_sequence", whole[at : at + 3]
    )  # fmt: skip


def test_an_answer_of_a_schema(server: Server) -> None:
    """The answer is JSON that fits it."""
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
    }
    output = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    body = ask(server, output_config=output, max_tokens=60)

    assert json.loads(body["content"][0]["text"]).keys() == {"ok"}


def test_tokens_are_counted(server: Server) -> None:
    """As many as the request then has, with system, tools and results."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
        {"type": "text", "text": "ERROR"}
    ]}  # fmt: skip
    asked = {
        "model": "nano",
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            QUESTION,
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
        ],
        "tools": [READ],
    }
    counted = server.post(f"{URL}/count_tokens", asked).json()
    usage = ask(server, **asked, max_tokens=1)["usage"]

    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_what_a_template_is_given() -> None:
    """Results before what the user says beside them; system messages, wherever they stand; no
    identifier that was chosen at random, and no header of Claude Code's."""
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_x", "name": "f", "input": {}},
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_x", "is_error": True, "content": "no"}
    system, user, said, found, more = shown(
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cch=1a2b;"},
            {"type": "text", "text": "One."},
            {"type": "text", "text": "Two."},
        ],
        messages=[
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [result, {"type": "text", "text": "c"}]},
            {"role": "system", "content": "d"},
        ],
    )

    assert (system.role, system.content) == ("system", "One.\nTwo.")
    assert (user.role, user.content) == ("user", "a\n\nb")
    assert (said.text, said.thinking, said.calls[0].id) == ("I look.", "Hm.", "c00000000")
    assert (found.role, found.name, found.call_id) == ("tool", "f", "c00000000")
    assert found.content == "Error: no"
    assert more.role == "user"
    assert more.content == "c\n\n<system-reminder>\nd\n</system-reminder>"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"container": "x"}, "container"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": {"type": "always"}}, "thinking.type"),
        ({"tools": [READ, READ]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [READ], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"tools": [READ], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tools": [{**READ, "input_schema": {"type": "frob"}}]}, "tools"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "frob"}}}},
            "output_config.format",
        ),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management.edits[0].type",
        ),
    ],
)
def test_what_is_refused(server: Server, more: dict[str, Any], param: str) -> None:
    """400 in Anthropic's envelope, and the error names the parameter."""
    for streamed in (False, True):
        answer = server.post(URL, {**PROMPT, "max_tokens": 8, "stream": streamed, **more})
        body = answer.json()
        assert answer.status_code == 400, body
        assert body["type"] == "error"
        assert body["error"]["param"] == param, body
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["message"]


def test_errors_in_the_envelope(server: Server) -> None:
    """Whatever the cause: the model, the length, the method, the version, no JSON."""

    def error(**more: Any) -> tuple[int, str, str]:
        answer = server.post(URL, {**PROMPT, "max_tokens": 8, **more})
        assert answer.json()["type"] == "error"
        told = answer.json()["error"]
        return answer.status_code, told["type"], told["message"]

    assert error(model="agent:claude")[:2] == (404, "not_found_error")
    long = error(messages=[{"role": "user", "content": "word " * 6000}])
    assert long[:2] == (400, "invalid_request_error")
    assert long[2].startswith("prompt is too long: ")
    assert long[2].endswith(" tokens > 4096 maximum")
    assert server.client.get(URL).json()["type"] == "error"
    assert server.client.post(URL, content=b"{").json()["error"]["code"] == "invalid_json"
    old = server.client.post(URL, json=PROMPT, headers={"anthropic-version": "2023-01-01"})
    assert (old.status_code, old.json()["error"]["param"]) == (400, "anthropic-version")


def test_threads_are_refused_as_the_tool_runner_expects(server: Server) -> None:
    """Anthropic's tool runner begins with one, and sends all messages after this error alone."""
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_x"}):
        answer = server.post(URL, {**PROMPT, "max_tokens": 8, "thread": thread})
        error = answer.json()["error"]

        assert (answer.status_code, error["param"]) == (400, "thread")
        assert error["details"]["error_code"] == "thread_unsupported_request"
        assert error["details"]["unsupported"] == ["thread"]


def test_a_key(start: Any) -> None:
    """It comes in x-api-key; without it there is an error in Anthropic's envelope."""
    server = start(keys=("secret",))
    body = {**PROMPT, "max_tokens": 1}

    refused = server.post(URL, body)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert server.post(URL, body, **{"x-api-key": "secret"}).status_code == 200


def test_models(server: Server) -> None:
    """Anthropic's client, which says its version, gets models and errors about them in its form."""
    said = {"anthropic-version": "2023-06-01"}
    page = server.client.get("/v1/models", headers=said).json()
    one = server.client.get("/v1/models/nano", headers=said).json()
    none = server.client.get("/v1/models/agent:claude", headers=said)

    assert page == {"data": [one], "has_more": False, "first_id": "nano", "last_id": "nano"}
    assert (one["type"], one["id"], one["display_name"]) == ("model", "nano", "nano")
    assert (one["lifecycle"], one["max_input_tokens"]) == ("active", 4096)
    assert datetime.fromisoformat(one["created_at"]).tzinfo is not None
    assert (none.status_code, none.json()["error"]["type"]) == (404, "not_found_error")
    assert server.client.get("/v1/models").json()["object"] == "list"


def test_what_claude_code_always_sends(server: Server) -> None:
    """It is taken, also by a model that has no switch for thinking."""
    more = {
        "metadata": {"user_id": "{}"},
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
    }

    assert ask(server, **more)["type"] == "message"


@pytest.mark.slow  # to import it takes seconds
def test_anthropic_python(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official client: an answer, a stream, a call, a count and an error."""
    anthropic = pytest.importorskip("anthropic", reason="pip install anthropic")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with anthropic.Anthropic(base_url=server.url, api_key="x") as client:
        whole = client.messages.create(**PROMPT, max_tokens=8)
        with client.messages.stream(**PROMPT, max_tokens=8) as events:
            text, last = "".join(events.text_stream), events.get_final_message()
        assert text == whole.content[0].text == last.content[0].text
        assert last.usage.output_tokens == 8
        asked = {**PROMPT, "messages": [QUESTION], "tools": [READ]}
        with client.messages.stream(**asked, max_tokens=200, tool_choice={"type": "any"}) as events:
            called = events.get_final_message().content[-1]
        assert (called.name, called.input.keys()) == ("read_file", {"path"})
        assert client.messages.count_tokens(**asked).input_tokens > 20
        assert [model.display_name for model in client.models.list()] == ["nano"]
        with pytest.raises(anthropic.NotFoundError, match="does not exist"):
            client.messages.create(**{**PROMPT, "model": "claude"}, max_tokens=8)
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            client.messages.create(model="nano", max_tokens=8, messages=[
                {"role": "user", "content": "word " * 6000}
            ])  # fmt: skip


def test_it_goes_on_with_a_begun_answer(server: Server) -> None:
    """A last message of the assistant is gone on with (prefill)."""
    asked = [{"role": "user", "content": "hello"}]
    begun = [*asked, {"role": "assistant", "content": "Well, the"}]
    body = {"max_tokens": 5, "temperature": 0}
    text = server.post(URL, {**body, "model": "nano", "messages": begun}).json()["content"]
    chat = server.post("/v1/chat/completions", {**body, "messages": begun}).json()

    assert text[0]["text"] == chat["choices"][0]["message"]["content"]


@pytest.mark.parametrize("path", [URL, f"{URL}/count_tokens"])
def test_a_conversation_of_nothing(server: Server, path: str) -> None:
    """Messages without a word are an answer or a refusal, and no error of the server's."""
    for messages in (
        [{"role": "system", "content": ""}],
        [{"role": "system", "content": []}, {"role": "user", "content": []}],
        [{"role": "user", "content": []}, {"role": "assistant", "content": []}],
    ):
        answer = server.post(path, {"model": "nano", "max_tokens": 1, "messages": messages})
        assert answer.status_code in (200, 400), (messages, answer.text)
