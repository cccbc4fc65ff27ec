"""Responses that a client goes on with by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from helpers.serving import Server, named_events

from triplepoint.runtime.serve.settings import Limits
from triplepoint.runtime.serve.wire.openai import stored_responses
from triplepoint.runtime.serve.wire.openai.stored_responses import ResponseStore

URL = "/v1/responses"
ASKED: dict[str, Any] = {"max_output_tokens": 8, "temperature": 0}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"type": "function", "name": "read_file", "parameters": PATH}


def ask(server: Server, given: Any, **more: Any) -> Any:
    """The body of an answer."""
    answer = server.post(URL, {**ASKED, "input": given, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_items_that_are_named(server: Server) -> None:
    """Vercel's AI SDK sends what was said before as references; of other keys there are none."""
    first = ask(server, "hello")
    named = [{"type": "item_reference", "id": one["id"]} for one in first["output"]]
    begin, end = {"role": "user", "content": "hello"}, {"role": "user", "content": "and then?"}
    second = ask(server, [begin, *named, end])
    whole = ask(server, [begin, *first["output"], end], store=False)

    assert second["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert second["output"][0]["content"][0]["text"] == whole["output"][0]["content"][0]["text"]
    third = ask(server, "more", previous_response_id=second["id"])
    assert third["usage"]["input_tokens"] > second["usage"]["input_tokens"]
    kept = server.app.state.responses
    assert kept.item("", named[0]["id"]) == first["output"][0]
    assert kept.item("another key", named[0]["id"]) is None


def test_a_thought_that_is_named(server: Server) -> None:
    """LangChain's streams keep its identifier alone; of another server's, nothing is known."""
    thought = {"type": "reasoning_text", "text": "It must be four."}
    known = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [thought]}
    server.app.state.responses.put("", {"id": "resp_1", "output": [known]}, [])
    begin, end = {"role": "user", "content": "hello"}, {"role": "user", "content": "and then?"}
    bare = {"type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
    answer = ask(server, [begin, {**bare, "id": "rs_1"}, {**bare, "id": "rs_2"}, bare, end])
    listed = server.client.get(f"{URL}/{answer['id']}/input_items?order=asc").json()["data"]

    assert [one.get("content") for one in listed[1:4]] == [[thought], [], []]


def test_it_goes_on(server: Server) -> None:
    """What is said next is answered as in the whole conversation; instructions do not go on."""
    first = ask(server, "hello", instructions="Be short.")
    second = ask(server, "and then?", previous_response_id=first["id"])
    conversation = [
        {"role": "user", "content": "hello"},
        *first["output"],
        {"role": "user", "content": "and then?"},
    ]
    whole = ask(server, conversation, store=False)

    assert (first["store"], first["previous_response_id"]) == (True, None)
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert second["output"][0]["content"][0]["text"] == whole["output"][0]["content"][0]["text"]
    counted = {"input": "and then?", "previous_response_id": first["id"]}
    assert (
        server.post(f"{URL}/input_tokens", counted).json()["input_tokens"]
        == (whole["usage"]["input_tokens"])
    )


def test_it_is_shown_and_goes(server: Server) -> None:
    """The response, what it answered, and nothing once it was deleted."""
    first = ask(server, [{"role": "user", "content": "hello"}])
    second = ask(server, "and then?", previous_response_id=first["id"])
    path = f"{URL}/{second['id']}"
    items = server.client.get(f"{path}/input_items", params={"order": "asc"}).json()
    newest = server.client.get(f"{path}/input_items", params={"limit": 1}).json()
    rest = server.client.get(f"{path}/input_items", params={"after": newest["last_id"]}).json()

    assert server.client.get(path).json() == second
    assert [one["type"] for one in items["data"]] == ["message"] * 3
    assert items["data"][0]["content"] == [{"type": "input_text", "text": "hello"}]
    assert (items["first_id"], items["has_more"]) == (items["data"][0]["id"], False)
    assert newest["data"][0]["content"][0]["text"] == "and then?"
    assert newest["has_more"]
    assert rest["data"] == items["data"][1::-1]
    for query, param in (
        ({"order": "x"}, "order"), ({"limit": "0"}, "limit"), ({"limit": "x"}, "limit"),
        ({"after": "x"}, "after"),
    ):  # fmt: skip
        refused = server.client.get(f"{path}/input_items", params=query)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert server.client.get(f"{path}?stream=true").status_code == 400
    assert server.client.delete(path).json()["deleted"] is True
    for gone in (
        server.client.get(path),
        server.client.delete(path),
        server.client.get(f"{path}/input_items"),
    ):
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
    again = server.post(URL, {**ASKED, "input": "x", "previous_response_id": second["id"]})
    assert again.status_code == 400
    assert again.json()["error"]["code"] == "previous_response_not_found"


def test_what_is_not_kept(server: Server) -> None:
    """With `store: false` nothing is, nor of what failed; a stream is kept as it ended."""
    none = ask(server, "hello", store=False)
    streamed = server.post(URL, {**ASKED, "input": "hello", "stream": True})
    last = named_events(streamed.text)[-1][1]["response"]

    assert none["store"] is False
    assert server.client.get(f"{URL}/{none['id']}").status_code == 404
    assert server.client.get(f"{URL}/{last['id']}").json() == last


def test_calls_go_on(server: Server) -> None:
    """A call's result goes on with the response that made it, through openai-python."""
    openai = pytest.importorskip("openai", reason="pip install openai")
    http = httpx.Client(trust_env=False)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", http_client=http) as client:
        asked: dict[str, Any] = {"model": "nano", "tools": [READ], "max_output_tokens": 200}
        first = client.responses.create(
            **asked, input="read the file notes.txt", tool_choice="required"
        )
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "milk"}
        second = client.responses.create(**asked, input=[result], previous_response_id=first.id)
        items = client.responses.input_items.list(second.id, order="asc")
        kinds = [item.type for item in items]
        shown = client.responses.retrieve(second.id)
        client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)

    assert kinds[0] == "message"
    assert kinds[-2:] == ["function_call", "function_call_output"]
    assert shown.output_text == second.output_text


def test_keys_see_their_own(start: Callable[..., Server]) -> None:
    """A response of another key is not there; nor is any where none is kept."""
    server = start(keys=("one", "two"))
    server.wait("/health")
    mine, other = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    body = {**ASKED, "input": "hello"}
    made = server.post(URL, body, **mine).json()
    path = f"{URL}/{made['id']}"

    assert server.client.get(path, headers=mine).status_code == 200
    assert server.client.get(path, headers=other).status_code == 404
    assert server.client.delete(path, headers=other).status_code == 404
    again = {**body, "previous_response_id": made["id"]}
    assert server.post(URL, again, **other).status_code == 400
    assert server.post(URL, again, **mine).status_code == 200
    assert server.app.state.responses.held()[0] == 2
    server.close()
    assert server.app.state.responses.held() == (0, 0)


def test_a_conversation_that_gets_too_long(start: Callable[..., Server]) -> None:
    """What was kept counts with what is new."""
    server = start(limits=Limits(messages=3))
    server.wait("/health")
    made = server.post(URL, {**ASKED, "input": "hello"}).json()
    more = [{"role": "user", "content": "again"}] * 2
    answer = server.post(URL, {**ASKED, "input": more, "previous_response_id": made["id"]})

    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "there are more than 3 items"


def test_a_server_that_keeps_none(start: Callable[..., Server]) -> None:
    """Who asks for it is told so; who does not is served."""
    server = start(limits=Limits(response_bytes=0))
    server.wait("/health")
    body = {**ASKED, "input": "hello"}

    assert server.post(URL, body).status_code == 200
    refused = server.post(URL, {**body, "store": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "store")


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """By count, bytes and age, of each key by itself; who was asked for last stays."""
    now = 0.0
    monkeypatch.setattr(stored_responses.time, "monotonic", lambda: now)
    kept = ResponseStore(3, 1000, 10.0)
    for n in range(4):
        kept.put("a", {"id": str(n)}, [])
        kept.put("b", {"id": str(n)}, [])
    assert [kept.get("a", str(n)) is not None for n in range(4)] == [False, True, True, True]
    kept.get("a", "1")
    kept.put("a", {"id": "4"}, [{"x": "y" * 300}])
    assert kept.get("a", "2") is None
    assert kept.get("a", "1") == ({"id": "1"}, [])
    kept.put("a", {"id": "large"}, [{"x": "y" * 1000}])
    assert kept.get("a", "large") is None
    kept.put("a", {"id": "5"}, [{"x": "y" * 700}])
    assert kept.get("a", "5") is not None
    assert kept.get("a", "4") is None
    assert kept.get("b", "3") is not None
    now = 11.0
    assert kept.get("a", "5") is None
    assert kept.held()[0] == 3  # nobody has looked at those of b
    assert not kept.remove("a", "5")
    assert kept.get("b", "3") is None
