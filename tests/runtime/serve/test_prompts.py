"""Answers that were begun already, and that the model goes on with."""

from __future__ import annotations

import json
from typing import Any

from helpers.serving import Server, events

URL = "/v1/chat/completions"


def test_it_goes_on_with_a_begun_answer(server: Server) -> None:
    """A last message of the assistant is gone on with, as by llama-server and Open WebUI."""
    asked = [{"role": "user", "content": "Say something about disks."}]
    whole = server.post(URL, {"messages": asked, "max_tokens": 16, "temperature": 0}).json()
    text = whole["choices"][0]["message"]["content"]
    prompt = server.post("/apply-template", {"messages": asked}).json()["prompt"]
    begun = [*asked, {"role": "assistant", "content": text[:9]}]
    body = {"messages": begun, "max_tokens": 6, "temperature": 0}
    more = {"continue_final_message": True, "add_generation_prompt": False}
    first, second = server.post(URL, body).json(), server.post(URL, {**body, **more}).json()
    *pieces, _ = events(server.post(URL, {**body, "stream": True}).text)
    plain = server.post(
        "/v1/completions", {"prompt": prompt + text[:9], "max_tokens": 6, "temperature": 0}
    ).json()
    told = first["choices"][0]["message"]["content"]

    assert server.post("/apply-template", {"messages": begun}).json()["prompt"] == prompt + text[:9]
    assert told == plain["choices"][0]["text"]
    assert second["choices"] == first["choices"]
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces) == told
    assert first["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    for name, value in (("continue_final_message", True), ("add_generation_prompt", False)):
        refused = server.post(URL, {**body, "messages": asked, name: value}).json()
        assert refused["error"]["param"] == name


def test_it_goes_on_within_a_schema(server: Server) -> None:
    """A begun answer and what follows fit the schema together; one that cannot is refused."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    body: dict[str, Any] = {"json_schema": schema, "max_tokens": 40, "temperature": 0}
    asked = [{"role": "user", "content": "hello"}]
    begun = '{"n": 12'
    answer = server.post(
        URL, {**body, "messages": [*asked, {"role": "assistant", "content": begun}]}
    ).json()
    wrong = server.post(
        URL, {**body, "messages": [*asked, {"role": "assistant", "content": "Well, "}]}
    )

    found = json.loads(begun + answer["choices"][0]["message"]["content"])
    assert str(found["n"]).startswith("12")
    assert wrong.status_code == 400
