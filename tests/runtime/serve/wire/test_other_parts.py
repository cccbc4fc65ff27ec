"""Histories with parts that no model here takes: they are answered, and show what was there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.serving import Server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triplepoint.runtime.serve.wire.messages import OtherPart, Talk, messages_of
from triplepoint.runtime.serve.wire.tools import arguments_of, without_halves

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "seen"},
    IMAGE,
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "A note."}},
    {"type": "search_result", "title": "T", "content": [{"type": "text", "text": "Found."}]},
    {"type": "tool_reference", "tool_name": "grep"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "refusal", "refusal": "No."},
    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    {"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]},
]
ITEMS: list[dict[str, Any]] = [
    {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
    {"type": "local_shell_call", "call_id": "l", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "call_id": "l", "output": "a.txt"},
    {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}},
    {"type": "compaction", "id": "c", "encrypted_content": "abc"},
    {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": None},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {"role": "assistant", "content": [{"type": "output_audio"}]},
    {"role": "user", "content": [{"type": "input_file", "filename": "a.pdf"}]},
]
UNKNOWN = st.builds(
    lambda kind, more: {**more, "type": kind},
    st.text("abcdef_", min_size=1, max_size=8),
    st.dictionaries(
        st.sampled_from(["id", "name", "text", "content", "output", "source", "call_id", "url"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.text(max_size=4), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        max_size=3,
    ),
)
FUZZ = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (IMAGE, "[image image/png, which is not text]"),
        (PARTS[2], "[image_url image/png, which is not text]"),
        (PARTS[4], "[document text/plain]\nA note."),
        (PARTS[5], "[search_result T]\nFound."),
        (PARTS[6], "[tool_reference grep, which is not text]"),
        (PARTS[7], "[server_tool_use web_search q, which is not text]"),
        (PARTS[10], ""),
        (PARTS[11], "No."),
    ],
)
def test_what_a_placeholder_shows(part: dict[str, Any], text: str) -> None:
    """The kind, what is known of it, and the text in it; of the thoughts of others nothing."""
    assert OtherPart(**part).text_at("") == text


def test_a_call_of_a_custom_tool() -> None:
    """It is a call with its one text, and its result belongs to it."""
    custom = {"id": "x", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "x", "content": "ok"},
    ]
    _, called, result = messages_of(Talk.model_validate({"messages": messages}).messages)

    assert called.calls[0].arguments == {"arguments": "*** Begin"}
    assert (result.name, result.call_id) == ("apply_patch", called.calls[0].id)


def post(server: Server, path: str, **body: Any) -> None:
    answer = server.post(path, {"model": "nano", **body})
    assert answer.status_code == 200, (answer.text, body)


def question(server: Server, chat: Any, messages: Any, responses: Any) -> None:
    """Ask in each format, with a history."""
    user = {"role": "user", "content": "x"}
    post(server, "/v1/chat/completions", max_tokens=1, messages=[user, *chat, user])
    post(server, "/v1/messages", max_tokens=1, messages=[user, *messages, user])
    post(server, "/v1/responses", max_output_tokens=1, input=[user, *responses, user])


def test_every_known_kind_in_the_past(server: Server) -> None:
    """What clients send for ever does not end a conversation."""
    spoken = [{"role": role, "content": PARTS} for role in ("user", "assistant", "user")]
    chat = [{"role": role, "content": PARTS} for role in ("user", "assistant", "tool")]
    question(server, chat, spoken, [*ITEMS, *spoken])
    question(server, (), (), reversed(ITEMS))


@pytest.mark.slow
@settings(FUZZ, max_examples=60)
@given(st.data())
def test_any_history(server: Server, data: st.DataObject) -> None:
    """Known and unknown kinds, in any order, are never refused in past turns, nor in results."""
    part = st.sampled_from(PARTS) | UNKNOWN
    parts = st.lists(part, max_size=3)
    message = st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        parts,
    )
    plain = st.lists(message, max_size=3)
    items = st.lists(st.sampled_from(ITEMS) | UNKNOWN, max_size=4)
    question(server, data.draw(plain), data.draw(plain), data.draw(items))
    result = {"type": "tool_result", "tool_use_id": "t", "content": data.draw(parts)}
    last = {"role": "user", "content": [result, *data.draw(parts)]}
    use = {"role": "assistant", "content": [PARTS[-2]]}
    asked = [{"role": "user", "content": "x"}, use, last]
    post(server, "/v1/messages", max_tokens=1, messages=asked)


@pytest.mark.parametrize(
    ("path", "body", "tools"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "web_search"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}]}, "mcp_toolset"),
        ("/v1/responses", {"input": "x"}, "custom"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_tools_of_other_servers(
    server: Server, path: str, body: Any, tools: str, streamed: bool
) -> None:
    """They are ignored, and a header says so; one that must be called is refused."""
    most = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    asked = {**body, "model": "nano", most: 1, "tools": [{"type": tools}], "stream": streamed}
    answer = server.post(path, asked)

    assert answer.status_code == 200, answer.text
    noted = [f"tools[0]: type {tools!r} is not available here: ignored"]
    assert json.loads(answer.headers["warnings"]) == noted
    choice = {"type": "any"} if path == "/v1/messages" else "required"
    assert server.post(path, {**asked, "tool_choice": choice}).status_code == 400


HALVES = [rb"cut \ud83d", rb"\udca9 \ud83d\ude00 \\ud83d", b"\xed\xa0\xbd raw"]
WHOLE = ["cut \ufffd", "\ufffd \U0001f600 \\ud83d", "\ufffd raw"]


@pytest.mark.parametrize(("half", "whole"), [*zip(HALVES, WHOLE, strict=True)])
def test_half_of_a_surrogate_pair(server: Server, half: bytes, whole: str) -> None:
    """It becomes U+FFFD wherever it comes from; whole pairs and escaped backslashes stay."""
    body = b'{"messages": [{"role": "user", "content": "%s"}]}' % half
    answer = server.client.post("/apply-template", content=body)

    assert answer.status_code == 200, answer.text
    assert whole in answer.json()["prompt"]


@FUZZ
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_halves_in_arguments(text: str) -> None:
    """The arguments of a past call can be encoded, and keep what is whole."""
    halves = json.dumps({"a": text + "\ud83d"})

    assert json.loads(without_halves(halves)) == {"a": text + "\ufffd"}
    assert arguments_of(halves) == {"a": text + "\ufffd"}
