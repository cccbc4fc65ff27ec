"""Chat completions: shapes and orders of what clients get, and what they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.serving import Server, events

from triplepoint import Agent, Engine, RemoteEngine
from triplepoint.runtime.conversation import grammar
from triplepoint.runtime.serve.settings import Limits
from triplepoint.runtime.serve.wire.messages import Part, TextPart, text_of

READ = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a text file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        },
    },
}
NO_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "frob"}}}
NO_TOOL = {"name": "x", "parameters": {"type": "frob"}}
LIST = {
    "type": "function",
    "function": {"name": "list_dir", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to ask about."""
    (tmp_path / "app.log").write_text("INFO start\nERROR db: connection refused\nINFO stop\n")
    return tmp_path


@pytest.mark.slow
def test_an_agent_gets_the_answers_of_an_engine_in_its_own_process(
    server: Server, folder: Path
) -> None:
    """README's question through HTTP: the same answer, calls and tokens as in-process."""
    question = "What's the error in app.log?"
    own = server.service.models.loaded()[0].engine
    there = Agent(own, workspace=folder, trace=False).run(question)
    engine = RemoteEngine(f"{server.url}/v1")
    here = Agent(engine, workspace=folder, trace=False).run(question)

    assert engine.model.name == "nano"
    assert "connection refused" in here.answer
    assert here.answer == there.answer
    assert (here.usage.input_tokens, here.usage.output_tokens) == (
        there.usage.input_tokens,
        there.usage.output_tokens,
    )
    assert here.usage.cached_tokens >= there.usage.cached_tokens


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"response_format": NO_SCHEMA}, "response_format"),
        ({"tools": [{"type": "function", "function": NO_TOOL}]}, "tools"),
    ],
    ids=["answer", "tool"],
)
def test_a_bad_schema_is_refused_before_anything_is_computed(
    server: Server, monkeypatch: pytest.MonkeyPatch, given: Any, param: str, stream: bool
) -> None:
    """Also where the vocabulary is so large that grammars are built beside the prefill."""
    monkeypatch.setattr(grammar, "_BACKGROUND", 0)
    for _ in range(2):
        answer = server.chat(stream=stream, **given)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param


def test_deep_arguments_of_a_history(server: Server) -> None:
    """They are shown as text, like all that a call's arguments should not be."""
    deep = '{"a":' + "[" * 600 + "]" * 600 + "}"
    call = {"id": "a", "type": "function", "function": {"name": "list_dir", "arguments": deep}}
    called = {"role": "assistant", "tool_calls": [call]}
    said = {"role": "tool", "tool_call_id": "a", "content": "a.txt"}
    asked = [{"role": "user", "content": "hello"}, called, said]
    body = {"messages": asked, "tools": [LIST], "max_tokens": 4}
    assert server.post("/v1/chat/completions", body).status_code == 200


def test_parts_of_a_message_are_on_lines_of_their_own() -> None:
    """As in Anthropic's format: a heading that begins a part begins a line."""
    parts: list[Part] = [
        TextPart(type="text", text=one) for one in ("You code.", "# Rules\n", "Be brief.")
    ]
    assert text_of(parts, "content") == "You code.\n# Rules\nBe brief."


def test_an_answer(server: Server) -> None:
    """Every field that clients look at is there, with its type."""
    body = server.chat().json()

    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "nano")
    assert isinstance(body["created"], int)
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    usage = body["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    timings = body["timings"]
    assert timings["predicted_n"] == 8
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]


def test_a_stream(server: Server) -> None:
    """The chunks are those of the answer, in the order that clients expect, with one id."""
    *chunks, last, done = server.stream(stream_options={"include_usage": True})
    first = chunks[0]["choices"][0]

    assert first["delta"] == {"role": "assistant", "content": None}
    assert first["finish_reason"] is None
    assert len({(c["id"], c["created"], c["object"]) for c in [*chunks, last]}) == 1
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    assert text == server.chat().json()["choices"][0]["message"]["content"]
    assert [c["choices"][0]["finish_reason"] for c in chunks][-2:] == [None, "length"]
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert all(c["usage"] is None for c in chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8)
    assert done == "[DONE]"


def test_a_stream_without_usage_has_none(server: Server) -> None:
    """The chunk without choices comes only when it was asked for."""
    *chunks, done = server.stream()

    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)
    assert done == "[DONE]"


def test_a_tool_call_and_its_result(server: Server) -> None:
    """A call comes with an id, arguments that fit the schema, and goes on with its result."""
    asked: list[dict[str, Any]] = [{"role": "user", "content": "What's the error in app.log?"}]
    body = {"messages": asked, "tools": [READ], "max_tokens": 200}
    first = server.post("/v1/chat/completions", {**body, "tool_choice": "required"}).json()
    (choice,) = first["choices"]

    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "read_file")
    assert set(json.loads(call["function"]["arguments"])) == {"path"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "ERROR disk full\n"}
    body = {**body, "messages": [*asked, choice["message"], result]}
    second = server.post("/v1/chat/completions", body).json()
    assert second["choices"][0]["finish_reason"] in ("stop", "tool_calls")
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_streamed_tool_call(server: Server) -> None:
    """Its id and name come once, in the first fragment; every fragment has its index."""
    chunks = server.stream(
        "What's the error in app.log?", tools=[READ], tool_choice="required", max_tokens=200
    )[:-1]
    deltas = [c["choices"][0]["delta"] for c in chunks]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]

    assert [part["index"] for part in parts] == [0] * len(parts)
    assert len(parts) > 3, "the arguments come as they are written"
    assert "id" in parts[0]
    assert "name" in parts[0]["function"]
    assert not any("id" in part or "name" in part["function"] for part in parts[1:])
    assert "path" in json.loads("".join(part["function"]["arguments"] for part in parts))
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_streamed_call_that_is_cut(server: Server) -> None:
    """What was written of it has come; the stream says that it was too long, and whole there is no
    call."""
    body: dict[str, Any] = {"tools": [READ], "tool_choice": "required"}
    question = "What's the error in app.log?"
    tokens, written, chunks = 3, "", list[Any]()
    while not written:
        tokens += 1
        chunks = server.stream(question, **body, max_tokens=tokens)[:-1]
        deltas = [c["choices"][0]["delta"] for c in chunks]
        parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
        written = "".join(part["function"]["arguments"] for part in parts)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(written)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    whole = server.chat(question, **body, max_tokens=tokens).json()["choices"][0]
    assert "tool_calls" not in whole["message"]
    assert whole["finish_reason"] == "length"


def test_progress_of_the_prompt(start: Callable[..., Server]) -> None:
    """With `return_progress` chunks tell how much of the prompt is read, up to all of it."""
    server = start(lambda source: Engine.load(source, tune={"chunk": 32}))
    server.wait()
    question = "How much of this is read? " * 12
    chunks = server.stream(question, return_progress=True)[:-1]
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    again = server.stream(question, return_progress=True)[:-1]
    last = [chunk["prompt_progress"] for chunk in again if "prompt_progress" in chunk][-1]

    assert len(told) > 2
    assert [one["processed"] for one in told] == sorted({one["processed"] for one in told})
    assert {one["total"] for one in told} == {told[-1]["processed"]}
    assert told[0]["cache"] == 0
    assert 0 < last["cache"] < last["processed"] == last["total"]
    assert not any("prompt_progress" in chunk for chunk in server.stream(question)[:-1])
    body = {"prompt": question, "stream": True, "return_progress": True, "max_tokens": 2}
    plain = events(server.post("/v1/completions", body).text)[:-1]
    assert plain[0]["prompt_progress"]["total"] > 32
    assert "prompt_progress" not in plain[-1]


def test_an_answer_of_a_schema(server: Server) -> None:
    """With a strict schema the answer is JSON that fits it; with json_object it is an object."""
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["error", "warning"]}, "ok": {"type": "boolean"}},
        "required": ["kind", "ok"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    answer = server.chat(response_format=form, max_tokens=100).json()["choices"][0]
    value = json.loads(answer["message"]["content"])

    assert answer["finish_reason"] == "stop"
    assert value.keys() == {"kind", "ok"}
    assert value["kind"] in ("error", "warning")
    text = server.chat(response_format={"type": "json_object"}, max_tokens=4).json()
    assert text["choices"][0]["message"]["content"].startswith("{")


def test_several_answers(server: Server) -> None:
    """Each of n answers has a seed of its own; the same seed gives the same ones again."""

    def texts(seed: int) -> list[str]:
        body = server.chat(n=3, temperature=2.0, seed=seed).json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
        assert 3 <= body["usage"]["completion_tokens"] <= 24
        return [choice["message"]["content"] for choice in body["choices"]]

    first = texts(7)
    assert len(set(first)) > 1
    assert texts(7) == first
    assert texts(8) != first


def test_several_streamed_answers(server: Server) -> None:
    """Chunks of several answers tell them apart by index, and each begins and ends."""
    chunks = [c["choices"][0] for c in server.stream(n=3, temperature=2.0, seed=7)[:-1]]

    for index in range(3):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": None}
        ends = [chunk["finish_reason"] for chunk in own]
        assert ends[-1] in ("length", "stop")
        assert not any(ends[:-1])


def test_a_cut_answer_keeps_its_blank_space(server: Server) -> None:
    """Whoever goes on with it has all of it; probabilities are told of every token."""
    whole = server.chat(max_tokens=30, logprobs=True).json()["choices"][0]
    tokens = [bytes(one["bytes"]).decode() for one in whole["logprobs"]["content"]]
    count = 1 + next(n for n, token in enumerate(tokens) if token == " ")
    cut = server.chat(max_tokens=count, logprobs=True).json()["choices"][0]
    assert cut["finish_reason"] == "length"
    assert cut["message"]["content"] == "".join(tokens[:count])
    assert len(cut["logprobs"]["content"]) == count
    streamed = server.stream(max_tokens=count)
    pieces = [c["choices"][0]["delta"].get("content") or "" for c in streamed[:-1] if c["choices"]]
    assert "".join(pieces) == "".join(tokens[:count])


def test_stop_texts(server: Server) -> None:
    """An answer ends before the first of them, and says stop."""
    whole = server.chat(max_tokens=30).json()["choices"][0]["message"]["content"]
    at = len(whole) // 2
    stopped = server.chat(max_tokens=30, stop=[whole[at : at + 3]]).json()["choices"][0]

    assert stopped["finish_reason"] == "stop"
    assert stopped["message"]["content"] == whole[: whole.index(whole[at : at + 3])].rstrip()


def test_logprobs(server: Server) -> None:
    """Of each token: its probability, its bytes, and those of the likeliest."""
    body = server.chat(logprobs=True, top_logprobs=3, max_tokens=5).json()
    told = body["choices"][0]["logprobs"]["content"]

    text = b"".join(bytes(one["bytes"]) for one in told).decode()
    assert text.lstrip() == body["choices"][0]["message"]["content"]
    for one in told:
        assert len(one["top_logprobs"]) == 3
        logprobs = [other["logprob"] for other in one["top_logprobs"]]
        assert logprobs == sorted(logprobs, reverse=True)
        assert one["logprob"] <= logprobs[0] <= 0
    plain = server.chat(max_tokens=5).json()["choices"][0]["message"]
    assert plain["content"] == body["choices"][0]["message"]["content"]
    empty = server.chat(logprobs=True, max_tokens=0).json()["choices"][0]
    assert (empty["message"]["content"], empty["logprobs"]) == ("", {"content": []})


def test_sampling_settings(server: Server) -> None:
    """A bias of -100 forbids a token; what the engine has is taken as it is."""
    plain = server.chat().json()["choices"][0]["message"]["content"]
    first = server.post("/tokenize", {"content": plain}).json()["tokens"][0]
    begun = server.post("/detokenize", {"tokens": [first]}).json()["content"]
    other = server.chat(logit_bias={str(first): -100}, presence_penalty=0.5, top_k=5, min_p=0.1)

    assert plain.startswith(begun)
    assert not other.json()["choices"][0]["message"]["content"].startswith(begun)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"audio": {}}, "audio"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"n": 1000}, "n"),
        ({"logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 100}, "stop"),
        ({"logit_bias": {"x": True}}, "logit_bias.x"),
        ({"logit_bias": {"1": 1000}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
        ({"tools": [READ, READ]}, "tools"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": NO_SCHEMA}, "response_format"),
        ({"tools": [{"type": "function", "function": NO_TOOL}]}, "tools"),
        ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs.messages"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"repeat_penalty": 1e-310}, "repeat_penalty"),
        ({"stream_options": {"include_nothing": True}}, "stream_options.include_nothing"),
    ],
)
def test_what_is_refused(server: Server, more: dict[str, Any], param: str) -> None:
    """400, and the error names the parameter, also where a stream was asked for."""
    for stream in (False, True):
        answer = server.chat(**{"stream": stream, **more})
        error = answer.json()["error"]
        assert answer.status_code == 400, error
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"
        assert error["message"]


def test_options_of_a_stream_without_one(server: Server) -> None:
    """They would be ignored, so they are refused."""
    answer = server.chat(stream_options={"include_usage": True})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_options")


def test_what_has_no_effect(server: Server) -> None:
    """How OpenAI caches is taken, and so is what is done in any case."""
    options = {"mode": "explicit", "ttl": "30m"}
    more = {"verbosity": "medium", "logprobs": False, "top_logprobs": 0}

    assert server.chat(prompt_cache_options=options, **more).status_code == 200


def test_every_effort_is_known(server: Server) -> None:
    """Nano's template has no switch for thinking, which is another error."""
    for effort in ("low", "xhigh", "max"):
        error = server.chat(reasoning_effort=effort).json()["error"]
        assert error["code"] == "unsupported_parameter"


def test_bodies_that_are_no_requests(server: Server) -> None:
    """No JSON, deep JSON, no object, NaN: 400 each; too large: 413."""
    url = "/v1/chat/completions"
    for content in (b"", b"{", b"[1]", b'{"messages": NaN}', b"[" * 100_000, b"\xff\xfe{}"):
        answer = server.client.post(url, content=content)
        assert answer.status_code == 400, content[:20]
        assert answer.json()["error"]["code"] == "invalid_json"


def test_a_large_body(start: Any) -> None:
    """More bytes than are allowed are not read."""
    server = start(limits=Limits(body=1000))
    server.wait()

    assert server.chat("x" * 2000).status_code == 413


def test_a_prompt_that_is_too_long(server: Server) -> None:
    """The words that clients look for, in code and message."""
    for stream in (False, True):
        answer = server.chat("word " * 6000, stream=stream)
        error = answer.json()["error"]
        assert answer.status_code == 400
        assert error["code"] == "context_length_exceeded"
        assert "This model's maximum context length is 4096 tokens" in error["message"]


def test_malformed_arguments_in_the_history(server: Server) -> None:
    """A call that is not JSON is shown to the model as it is; the conversation goes on."""
    function = {"name": "read_file", "arguments": '{"path": '}
    called = {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}
    messages = [
        {"role": "user", "content": "hi"},
        {**called, "content": None},
        {"role": "tool", "tool_call_id": "a", "content": "error: no JSON"},
    ]
    answer = server.chat(messages=messages, tools=[READ])

    assert answer.status_code == 200
    shown = server.post("/apply-template", {"messages": messages, "tools": [READ]}).json()
    assert '{\\"path\\": ' in shown["prompt"]


def test_identifiers_of_calls_do_not_change_the_prompt(server: Server) -> None:
    """They are chosen at random, and a prompt that differs is computed anew."""

    def prompt(call_id: str) -> str:
        function = {"name": "read_file", "arguments": '{"path": "a"}'}
        call = {"id": call_id, "type": "function", "function": function}
        messages = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "x"},
        ]
        return server.post("/apply-template", {"messages": messages}).json()["prompt"]

    assert prompt("call_1") == prompt("call_2")


def test_openai_python(server: Server) -> None:
    """The official client: an answer, a stream, a call and an error."""
    openai = pytest.importorskip("openai", reason="pip install openai")
    http = httpx.Client(trust_env=False)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", http_client=http) as client:
        assert [model.id for model in client.models.list()] == ["nano"]
        asked = {"model": "nano", "messages": [{"role": "user", "content": "hello"}]}
        whole = client.chat.completions.create(**asked, max_tokens=8)
        stream = client.chat.completions.create(**asked, max_tokens=8, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(pieces) == whole.choices[0].message.content
        called = client.chat.completions.create(
            **asked, max_tokens=200, tools=[READ], tool_choice="required"
        )
        assert called.choices[0].message.tool_calls[0].function.name == "read_file"
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(**{**asked, "model": "agent:none"})
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            client.chat.completions.create(model="nano", messages=[
                {"role": "user", "content": "word " * 6000}
            ])  # fmt: skip
