"""OpenAI's Responses: shapes and orders of what clients get, and what they are refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from helpers.serving import Server, named_events

from triplepoint.runtime.conversation.chat import Message
from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.models.events import (
    Call,
    CallPart,
    Done,
    Event,
    PromptRead,
    Text,
    Thought,
)
from triplepoint.runtime.serve.wire.openai.responses_body import ResponsesBody
from triplepoint.runtime.serve.wire.openai.responses_input import messages_of
from triplepoint.runtime.serve.wire.openai.responses_writer import ResponsesWriter

URL = "/v1/responses"
READ = {
    "type": "function",
    "name": "read_file",
    "description": "Read a text file.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}
QUESTION = {"role": "user", "content": [{"type": "input_text", "text": "What's in app.log?"}]}
EVENTS: list[Event] = [
    PromptRead(10, 4, 0.1),
    Thought(0, "Let me "),
    Thought(0, "see."),
    Text(0, "\n\n"),
    Text(0, "I read “it”."),
    Text(0, "\n"),
    Call(0, 0, "functions.read:0", "read", '{"path": "a"}'),
    Text(0, "\n"),
    Done(0, "tool_calls", 9, 3, 0.1),
]


def ask(server: Server, **more: Any) -> Any:
    """The body of an answer."""
    return server.post(URL, {"input": "hello", "max_output_tokens": 8, **more}).json()


def allow(name: str, kind: str = "function") -> dict[str, Any]:
    """A choice of one tool that may be called."""
    return {"type": "allowed_tools", "mode": "auto", "tools": [{"type": kind, "name": name}]}


def stream(server: Server, **more: Any) -> list[tuple[str, Any]]:
    """The events of an answer."""
    body = {"input": "hello", "max_output_tokens": 8, "stream": True, **more}
    answer = server.post(URL, body)
    assert answer.status_code == 200, answer.text
    return checked(named_events(answer.text))


def checked(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Events that are numbered, and whose items are those of the last one."""
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    output = events[-1][1]["response"]["output"]
    done = [data for name, data in events if name == "response.output_item.done"]
    assert [data["output_index"] for data in done] == list(range(len(done)))
    assert [data["item"] for data in done] == output
    for name, data in events:
        if "item_id" in data:
            assert data["item_id"] == output[data["output_index"]]["id"], name
        if name.startswith("response.output_text."):
            assert (data["content_index"], data["logprobs"]) == (0, [])
    return events


def writer(**more: Any) -> ResponsesWriter:
    """Of an answer to nobody."""
    return ResponsesWriter("m", ResponsesBody.model_validate({"input": "x", **more}))


def shown(items: list[dict[str, Any]], instructions: str | None = None) -> list[Message]:
    """What a template is given of a conversation."""
    body = ResponsesBody.model_validate({"input": items})
    return messages_of(instructions, body.input)


def test_an_answer(server: Server) -> None:
    """Every field that clients look at is there; it is the text of the chat format."""
    body = ask(server, metadata={"a": "b"}, instructions=None)
    chat = server.chat().json()
    (item,) = body["output"]

    assert body["id"].startswith("resp_")
    assert (body["object"], body["model"], body["status"]) == ("response", "nano", "incomplete")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (body["error"], body["store"], body["metadata"]) == (None, True, {"a": "b"})
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "incomplete")
    (part,) = item["content"]
    assert (part["type"], part["annotations"]) == ("output_text", [])
    assert part["text"] == chat["choices"][0]["message"]["content"]
    usage, tokens = body["usage"], chat["usage"]["prompt_tokens"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (tokens, 8)
    assert usage["total_tokens"] == tokens + 8
    assert usage["input_tokens_details"]["cached_tokens"] < tokens
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


def test_a_stream(server: Server) -> None:
    """The events come in the order that clients expect, and make the whole answer."""
    events = stream(server)
    names = [name.removeprefix("response.") for name, _ in events]
    text = "".join(d["delta"] for name, d in events if name.endswith("text.delta"))

    assert names[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(names[4:-4]) == {"output_text.delta"}
    assert names[-4:] == [
        "output_text.done", "content_part.done", "output_item.done", "incomplete"
    ]  # fmt: skip
    assert events[0][1]["response"]["status"] == "in_progress"
    assert events[0][1]["response"]["output"] == []
    assert text == ask(server)["output"][0]["content"][0]["text"]
    assert events[-1][1]["response"]["usage"]["output_tokens"] == 8


def test_items_of_a_stream() -> None:
    """Thoughts, texts and calls are items of their own, none of white space; nothing is lost."""
    streamed, whole = writer(), writer()
    told = b"".join([*map(streamed.stream, EVENTS), streamed.end()])
    events = checked(named_events(told.decode()))
    for event in EVENTS:
        whole.add(event)
    found = whole.whole()
    names = [name.removeprefix("response.") for name, _ in events]

    assert names == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    thought, said, call = found["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert thought["summary"] == []
    assert found["reasoning"] == {"effort": None, "summary": None}
    assert said["content"][0]["text"] == "\n\nI read “it”.\n"
    assert (call["type"], call["name"], call["arguments"]) == (
        "function_call", "read", '{"path": "a"}'
    )  # fmt: skip
    assert call["call_id"].startswith("call_")
    assert {item["status"] for item in found["output"]} == {"completed"}
    items = events[-1][1]["response"]["output"]
    assert [item.get("content") for item in items] == [thought["content"], said["content"], None]
    assert found["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    added = [data["item"] for name, data in events if name.endswith("item.added")]
    assert [item["status"] for item in added] == ["in_progress"] * 3
    assert (added[1]["content"], added[2]["arguments"]) == ([], "")


@pytest.mark.parametrize("asked", ["auto", "concise", "detailed"])
def test_thoughts_as_a_summary(asked: str) -> None:
    """Where one is asked for, it is what was thought: most clients show nothing else of it."""
    streamed, whole = writer(reasoning={"summary": asked}), writer(reasoning={"summary": asked})
    told = b"".join([*map(streamed.stream, EVENTS), streamed.end()])
    events = checked(named_events(told.decode()))
    for event in EVENTS:
        whole.add(event)
    found = whole.whole()
    names = [name.removeprefix("response.reasoning_summary_") for name, _ in events]
    part = {"type": "summary_text", "text": "Let me see."}
    thought, *_ = found["output"]

    assert names[2:9] == [
        "response.output_item.added", "part.added", "text.delta", "text.delta",
        "text.done", "part.done", "response.output_item.done",
    ]  # fmt: skip
    assert [data["summary_index"] for _, data in events[3:8]] == [0] * 5
    assert (events[6][1]["text"], events[7][1]["part"]) == (part["text"], part)
    assert (thought["summary"], thought["status"]) == ([part], "completed")
    assert "content" not in thought
    assert found["reasoning"] == {"effort": None, "summary": asked}
    assert shown([thought, {"role": "user", "content": "x"}])[0].thinking == part["text"]


def test_a_call_that_is_cut() -> None:
    """Its item is incomplete, and has what was written."""
    cut = writer()
    told: list[Event] = [PromptRead(1, 0, 0.1), CallPart(0, 0, "x", "read", '{"pa', True)]
    told += [CallPart(0, 0, "x", "read", 'th": "', False), Done(0, "length", 9, 0, 0.1)]
    events = checked(named_events(b"".join([*map(cut.stream, told), cut.end()]).decode()))
    name, last = events[-1]

    assert name == "response.incomplete"
    (item,) = last["response"]["output"]
    assert (item["status"], item["arguments"]) == ("incomplete", '{"path": "')


@pytest.mark.parametrize("count", [0, 3])
def test_a_stream_that_fails(count: int) -> None:
    """It ends with response.failed, also where nothing else came before."""
    failing = writer()
    told = b"".join(map(failing.stream, EVENTS[:count]))
    told += failing.failed(APIError("no", status=500, code="internal", type="server_error"))
    events = named_events(told.decode())

    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert events[0][0] == "response.created"
    name, data = events[-1]
    assert (name, data["response"]["status"]) == ("response.failed", "failed")
    assert data["response"]["error"] == {"code": "internal", "message": "no"}


def test_a_tool_call_and_its_result(server: Server) -> None:
    """A call fits the schema, streamed and whole, and goes on with its result."""
    asked: list[Any] = [QUESTION]
    body = {"tools": [READ], "max_output_tokens": 200}
    first = ask(server, input=asked, tool_choice="required", **body)
    call = first["output"][-1]
    named = {"type": "function", "name": "read_file"}
    events = stream(server, input=asked, tool_choice=named, **body)
    pieces = [d["delta"] for name, d in events if name.endswith("arguments.delta")]

    assert (first["status"], first["tools"]) == ("completed", [READ])
    assert (call["type"], call["name"]) == ("function_call", "read_file")
    assert json.loads(call["arguments"]).keys() == {"path"}
    assert "".join(pieces) == call["arguments"]
    assert len(pieces) > 2, "the arguments come as they are written"
    assert events[-1][1]["response"]["tool_choice"] == named
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "ERROR full\n"}
    second = ask(server, input=[*asked, *first["output"], result], **body)
    assert second["output"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0
    none = ask(server, input=asked, tools=[READ], tool_choice="none", max_output_tokens=20)
    assert [item["type"] for item in none["output"]] == ["message"]


def test_allowed_tools(server: Server) -> None:
    """Of all tools that the model is told of only those are called; a kind that is skipped where
    tools are offered is skipped here, too."""
    other = {"type": "function", "name": "list_dir", "parameters": {"type": "object"}}
    allowed = [{"type": "web_search"}, {"type": "function", "name": "list_dir"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    body = {"input": [QUESTION], "tools": [READ, other], "max_output_tokens": 60}
    plain = ask(server, **body)
    answer = ask(server, **body, tool_choice=choice)

    assert plain["output"][-1]["name"] == "read_file"
    assert [item["name"] for item in answer["output"]] == ["list_dir"]
    assert answer["usage"]["input_tokens"] == plain["usage"]["input_tokens"]
    assert answer["tool_choice"]["mode"] == "required"


def test_an_answer_of_a_schema(server: Server) -> None:
    """With a schema the answer is JSON that fits it; with json_object it is an object."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    body = ask(server, text={"format": form}, max_output_tokens=60)

    assert json.loads(body["output"][0]["content"][0]["text"]).keys() == {"ok"}
    assert body["text"]["format"]["schema"] == schema
    some = ask(server, text={"format": {"type": "json_object"}}, max_output_tokens=4)
    assert some["output"][0]["content"][0]["text"].startswith("{")


def test_logprobs(server: Server) -> None:
    """They are asked for with include, and stand in the part."""
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = ask(server, **more)["output"][0]["content"][0]

    assert b"".join(bytes(one["bytes"]) for one in part["logprobs"]).decode() == part["text"]
    assert all(len(one["top_logprobs"]) == 2 for one in part["logprobs"])


def test_what_a_template_is_given() -> None:
    """One system message, whatever stands at the beginning; one turn of the assistant of all its
    items; no identifier that was chosen at random."""
    said = [{"type": "output_text", "text": "I look.", "annotations": []}]
    system, user, turn, found, more = shown(
        [
            {"type": "message", "role": "developer", "content": "b"},
            {"role": "user", "content": "one"},
            {"role": "user", "content": "two"},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "id": "msg", "role": "assistant", "content": said},
            {"type": "function_call", "call_id": "call_x", "name": "f", "arguments": '{"a": '},
            {"type": "function_call_output", "call_id": "call_x", "output": "yes"},
            {"role": "developer", "content": "c"},
        ],
        "a",
    )

    assert (system.role, system.content) == ("system", "a\n\nb")
    assert (user.role, user.content) == ("user", "one\n\ntwo")
    assert (turn.text, turn.thinking) == ("I look.", "Hm.")
    assert (turn.calls[0].id, turn.calls[0].arguments) == ("c00000000", {"arguments": '{"a": '})
    assert (found.role, found.name, found.content) == ("tool", "f", "yes")
    assert more.content == "<system-reminder>\nc\n</system-reminder>"


def test_settings_of_llama_server(server: Server) -> None:
    """They do here what they do elsewhere."""
    asked = {"input": "hello there", "n_predict": 3}
    for cached in (True, False):
        usage = server.post(URL, {**asked, "cache_prompt": cached}).json()["usage"]
        assert usage["output_tokens"] == 3
    assert usage["input_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"conversation": "x"}, "conversation"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"store": "yes"}, "store"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "f"}]}, "input[0].arguments"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"timings_per_token": True}, "timings_per_token"),
        ({"tools": [READ, READ]}, "tools"),
        ({"tools": [{**READ, "parameters": {"type": "frob"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [READ], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tools": [READ], "tool_choice": allow("x")}, "tool_choice"),
        ({"tools": [READ], "tool_choice": allow("x", "mcp")}, "tool_choice.tools"),
        ({"tools": [READ], "tool_choice": allow("x", "web_search")}, "tool_choice.tools"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "frob"}}}},
            "text.format",
        ),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"input": "word " * 6000}, "input"),
    ],
)  # fmt: skip
def test_what_is_refused(server: Server, more: dict[str, Any], param: str) -> None:
    """400, and the error names the parameter, also where a stream was asked for."""
    for streamed in (False, True):
        answer = server.post(URL, {"input": "hello", "stream": streamed, **more})
        error = answer.json()["error"]
        assert answer.status_code == 400, error
        assert error["param"] == param, error
        long = error["code"] == "context_length_exceeded"
        assert error["type"] == ("exceed_context_size_error" if long else "invalid_request_error")


def test_what_codex_always_sends(server: Server) -> None:
    """It is taken; of tools that are not here the model is not told."""
    skipped = [
        {"type": "web_search", "external_web_access": True},
        {"type": "namespace", "name": "agents", "description": "", "tools": []},
    ]
    body = ask(
        server,
        input=[{"type": "message", "id": "msg_x", **QUESTION}],
        tools=[READ, *skipped],
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
        store=False,
        prompt_cache_key="x",
        client_metadata={"x": "y"},
        max_output_tokens=200,
    )

    assert body["tools"] == [READ]
    assert body["output"]


def test_what_has_no_effect(server: Server) -> None:
    """How OpenAI caches and limits what is not here is taken; so is what is done in any case."""
    options = {"mode": "explicit", "ttl": "30m"}
    body = ask(
        server, prompt_cache_options=options, max_tool_calls=3, reasoning={"mode": "standard"}
    )

    assert body["output"][0]["content"] == ask(server)["output"][0]["content"]


def test_the_settings_of_a_response_can_be_asked_again(server: Server) -> None:
    """What a response says of its request is a request that is taken."""
    first = ask(server, metadata={"a": "b"}, temperature=0.5)
    names = first.keys() & ResponsesBody.model_fields.keys()
    again = ask(server, **{name: first[name] for name in names})

    assert again["status"] in ("incomplete", "completed"), again  # sampled: it may end by itself
    assert again["metadata"] == {"a": "b"}
    assert "top_logprobs" in names


def test_openai_python(server: Server) -> None:
    """The official client: an answer, a stream, a call and an error."""
    openai = pytest.importorskip("openai", reason="pip install openai")
    http = httpx.Client(trust_env=False)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", http_client=http) as client:
        asked: dict[str, Any] = {"model": "nano", "max_output_tokens": 8, "input": "hello"}
        whole = client.responses.create(**asked)
        with client.responses.stream(**asked) as events:
            last = list(events)[-1]
        assert (last.type, whole.status) == ("response.incomplete", "incomplete")
        assert last.response.output_text == whole.output_text
        assert whole.output_text
        asked = {"model": "nano", "input": [QUESTION], "tools": [READ], "tool_choice": "required"}
        with client.responses.stream(**asked, max_output_tokens=200) as events:
            called = events.get_final_response().output[-1]
        assert (called.name, json.loads(called.arguments).keys()) == ("read_file", {"path"})
        with pytest.raises(openai.BadRequestError, match="kept only for a while"):
            client.responses.create(model="nano", input="x", previous_response_id="resp_x")
