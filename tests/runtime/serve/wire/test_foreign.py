"""Parameters of other services, in all formats."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from helpers.serving import Server, events
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.wire.anthropic.messages import MessagesBody
from triplepoint.runtime.serve.wire.body import Body, _names, checked
from triplepoint.runtime.serve.wire.foreign import IGNORED, READ_AS, REFUSED, translated
from triplepoint.runtime.serve.wire.llama.completion import NativeBody
from triplepoint.runtime.serve.wire.openai.chat_completions import ChatBody
from triplepoint.runtime.serve.wire.openai.completions import CompletionBody
from triplepoint.runtime.serve.wire.openai.embeddings import EmbeddingsBody
from triplepoint.runtime.serve.wire.openai.responses_body import ResponsesBody

TALK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
WIRES: dict[str, tuple[type[Body], dict[str, Any]]] = {
    "/v1/chat/completions": (ChatBody, TALK),
    "/v1/messages": (MessagesBody, TALK),
    "/v1/responses": (ResponsesBody, {"input": "hello", "max_output_tokens": 8}),
    "/v1/completions": (CompletionBody, {"prompt": "hello", "max_tokens": 8}),
    "/completion": (NativeBody, {"prompt": "hello", "max_tokens": 8}),
}
OTHERS = sorted({name for names in IGNORED.values() for name in names.split()})


def notes(answer: httpx.Response) -> list[str]:
    """What the response says of its request."""
    assert answer.status_code == 200, answer.text
    return json.loads(answer.headers.get("warnings", "[]"))


def read(kind: type[Body], **more: Any) -> dict[str, Any]:
    """The parameters that these become."""
    return translated(more, _names(kind))


@pytest.mark.parametrize("path", WIRES)
def test_what_only_steers_other_services(server: Server, path: str) -> None:
    """It is ignored in all formats, with a note; where it asks for nothing, without."""
    kind, body = WIRES[path]
    names = [name for name in OTHERS if name not in _names(kind)]
    assert {"keep_alive", "provider"} <= {*names}
    found: list[str] = []
    for some in (names[:16], names[16:32], names[32:]):  # of which a header has no more
        found += notes(server.post(path, {**body, **dict.fromkeys(some, "5m")}))
    assert [re.findall("'(.*?)' is ignored: ", note) for note in found] == [[n] for n in names]
    usual = dict.fromkeys(names, False) | {"service_tier": "auto"}
    assert notes(server.post(path, {**body, **usual})) == []


@pytest.mark.parametrize(
    ("kind", "asked", "meant"),
    [
        (ChatBody, {"repetition_penalty": 1.3}, {"repeat_penalty": 1.3}),
        (ChatBody, {"think": True}, {"reasoning_effort": "medium"}),
        (ChatBody, {"think": "high"}, {"reasoning_effort": "high"}),
        (ChatBody, {"enable_thinking": False}, {"reasoning_effort": "none"}),
        (ChatBody, {"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        (ChatBody, {"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        (ChatBody, {"reasoning": {"enabled": False}}, {"reasoning_effort": "none"}),
        (ChatBody, {"thinking_budget_tokens": 9}, {"reasoning_budget": 9}),
        (ChatBody, {"reasoning_budget_tokens": -1}, {}),
        (NativeBody, {"thinking_budget_tokens": -1}, {}),
        (
            MessagesBody,
            {"reasoning_budget": 9},
            {"thinking": {"type": "enabled", "budget_tokens": 9}},
        ),
        (MessagesBody, {"thinking_token_budget": 0}, {"thinking": {"type": "disabled"}}),
        (ResponsesBody, {"think": False}, {"reasoning": {"effort": "none"}}),
        (MessagesBody, {"think": False}, {"thinking": {"type": "disabled"}}),
        (MessagesBody, {"options": {"num_predict": 5}}, {"max_tokens": 5}),
        (
            ChatBody,
            {"options": {"num_predict": -2, "top_k": 4, "num_ctx": 8192, "num_gpu": 1}},
            {"n_predict": -1, "top_k": 4},
        ),
        (ChatBody, {"top_k": 2, "options": {"top_k": 4}}, {"top_k": 2}),
        (ChatBody, {"format": "json"}, {"json_schema": {"type": "object"}}),
        (ChatBody, {"guided_json": '{"type": "array"}'}, {"json_schema": {"type": "array"}}),
        (ChatBody, {"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        (ChatBody, {"guided_regex": r"^[a-z]/\$$"}, {"grammar": r"/[a-z]/\$/"}),
        (NativeBody, {"guided_choice": ["a", '"\n']}, {"grammar": r'root ::= "a" | "\"\n"'}),
        (
            CompletionBody,
            {"structured_outputs": {"json_object": True, "regex": None}},
            {"json_schema": {"type": "object"}},
        ),
        (
            MessagesBody,
            {"structured_outputs": {"json": {}}},
            {"output_config": {"format": {"type": "json_schema", "name": "answer", "schema": {}}}},
        ),
        (ChatBody, {"skip_special_tokens": True, "n_keep": 0.0, "verbose": False}, {}),
        (ChatBody, {"n": 2, "n_cmpl": 3}, {"n": 2}),
        (NativeBody, {"n_cmpl": 3, "logprobs": 1}, {"n": 3, "n_probs": 1}),
        (EmbeddingsBody, {"user": "x", "keep_alive": 0}, {}),
    ],
)
def test_what_has_a_meaning_here(
    kind: type[Body], asked: dict[str, Any], meant: dict[str, Any]
) -> None:
    """It is read as ours, by the names of each format; what a client says in our words counts."""
    assert read(kind, **asked) == meant


@pytest.mark.parametrize(
    ("path", "more", "param"),
    [
        ("/v1/chat/completions", {"use_beam_search": True}, "use_beam_search"),
        ("/v1/chat/completions", {"skip_special_tokens": False}, "skip_special_tokens"),
        ("/v1/chat/completions", {"n_keep": True}, "n_keep"),
        ("/v1/chat/completions", {"bad_words": ["x"]}, "bad_words"),
        ("/v1/chat/completions", {"options": {"tfs_z": 0.5, "top_k": 1}}, "tfs_z"),
        ("/v1/chat/completions", {"options": 3}, "options"),
        ("/v1/chat/completions", {"guided_choice": [1]}, "guided_choice"),
        ("/v1/chat/completions", {"guided_json": "{"}, "guided_json"),
        ("/v1/chat/completions", {"guided_regex": "(a"}, "grammar"),
        ("/v1/chat/completions", {"guided_regex": "a\\"}, "grammar"),
        ("/v1/chat/completions", {"stop_token_ids": [10**9]}, "stop_token_ids"),
        ("/v1/messages", {"guided_regex": "a"}, "guided_regex"),
        ("/v1/messages", {"repetition_penalty": 1.5}, "repetition_penalty"),
        ("/v1/responses", {"guided_choice": ["a"]}, "guided_choice"),
        ("/v1/responses", {"reasoning_budget": 9}, "reasoning_budget"),
        ("/v1/chat/completions", {"reasoning_budget": -2}, "reasoning_budget"),
    ],
)
def test_what_would_change_the_answer(
    server: Server, path: str, more: dict[str, Any], param: str
) -> None:
    """It is refused by name."""
    answer = server.post(path, {**WIRES[path][1], **more})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(0, 2)
    | st.sampled_from(["", "json"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "json", "top_k", *READ_AS]), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(
    wire=st.sampled_from(sorted(WIRES)),
    more=st.dictionaries(st.sampled_from([*READ_AS, *REFUSED, *OTHERS]), JSON, max_size=3),
)
def test_any_value_is_read_or_refused(wire: str, more: dict[str, Any]) -> None:
    """What is read holds only names of the format, and those that it refuses itself."""
    kind, body = WIRES[wire]
    refused: APIError | None = None
    made: dict[str, Any] = {}
    try:
        made = read(kind, **body, **more)
        checked(kind, made)
    except APIError as error:
        refused = error
    assert made.keys() <= _names(kind) or refused is not None
    assert refused is None or (refused.status == 400 and refused.param)


def test_answers_of_a_form(server: Server) -> None:
    """vLLM's words hold chats and completions."""
    for form, expected in (
        ({"guided_choice": ["yes/no", 'a "b"']}, r'yes/no|a "b"'),
        ({"guided_regex": "^(ab|c/d){2}$"}, "(ab|c/d){2}"),
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
        ({"structured_outputs": {"grammar": 'root ::= ("x"{2})?  "y"'}}, "(xx)?y"),
    ):
        chat = server.chat("hello", **form).json()["choices"][0]["message"]["content"]
        text = server.post("/v1/completions", {"prompt": "Say", "max_tokens": 20, **form})
        assert re.fullmatch(expected, chat), (form, chat)
        assert re.fullmatch(expected, text.json()["choices"][0]["text"])
        assert any("is read as 'grammar'" in note for note in notes(text))


def test_where_answers_end(server: Server) -> None:
    """A stop token ends them and is a part of them; none ends before so many tokens."""
    ids = server.post("/tokenize", {"content": "abc"}).json()["tokens"]
    ask = {"prompt": "x", "grammar": 'root ::= "abcabcabcabc"', "max_tokens": 40}
    whole = server.post("/completion", {**ask, "return_tokens": True}).json()
    stop = whole["tokens"][-2]
    cut = server.post("/completion", {**ask, "stop_token_ids": [stop], "return_tokens": True})
    assert ids
    assert cut.json()["tokens"] == whole["tokens"][: whole["tokens"].index(stop) + 1]
    assert cut.json()["stop_type"] == "eos"
    short = server.chat("hello", max_tokens=60).json()
    assert short["choices"][0]["finish_reason"] == "stop"
    count = short["usage"]["completion_tokens"]
    for more in ({}, {"logprobs": True}, {"temperature": 0.7, "seed": 3}):
        longer = server.chat("hello", max_tokens=60, min_tokens=count + 5, **more).json()
        assert longer["usage"]["completion_tokens"] >= count + 5
    held = {"grammar": 'root ::= "abc"', "min_tokens": 30, "max_tokens": 40, "prompt": "x"}
    ended = server.post("/v1/completions", held).json()["choices"][0]
    assert (ended["text"], ended["finish_reason"]) == ("abc", "stop")


def test_functions_before_there_were_tools(server: Server) -> None:
    """Calls and results in a history are those of tools."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = {"name": "f", "arguments": '{"a": 1}'}
    user = TALK["messages"][0]
    old = [
        user,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "f", "content": "42"},
    ]
    new = [
        user,
        {"role": "assistant", "tool_calls": [{"id": "x", "function": call}]},
        {"role": "tool", "tool_call_id": "x", "content": "42"},
    ]
    prompts = [
        server.post("/apply-template", {"messages": messages, "tools": tools}).json()["prompt"]
        for messages in (old, new)
    ]
    assert prompts[0] == prompts[1]
    assert "42" in prompts[0]


def test_what_llama_server_says(server: Server) -> None:
    """Of a prompt that is too long, and of times beside the usage of a stream."""
    error = server.chat("word " * 6000).json()["error"]
    assert (error["type"], error["code"]) == (
        "exceed_context_size_error",
        "context_length_exceeded",
    )
    assert error["n_prompt_tokens"] > error["n_ctx"] == 4096
    for path in ("/v1/chat/completions", "/v1/completions"):
        options = {"stream": True, "stream_options": {"include_usage": True}}
        *_, last, done = events(server.post(path, {**WIRES[path][1], **options}).text)
        assert (last["choices"], done) == ([], "[DONE]")
        assert last["timings"]["predicted_n"] == last["usage"]["completion_tokens"]
