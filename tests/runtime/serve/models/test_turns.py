"""The tools of a request, in each of the formats in which they come."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from helpers.odd_tools import odd_tools
from helpers.serving import Server
from hypothesis import HealthCheck, given, settings

Ask = Callable[..., Any]
LONG = "synchronise_customer_relationship_records_between_production_and_"
TEXT = {"type": "string"}
FINE: dict[str, Any] = {
    "absent": None,
    "required": {"type": "object", "properties": {"a": TEXT}, "required": None},
    "properties": {"type": "object", "properties": None},
    "PHP": {"type": "object", "properties": []},
    "type": {"type": None, "properties": {"a": {**TEXT, "enum": None, "description": None}}},
    "argument": {"type": "object", "properties": {"a": None}},
}
ODD: dict[str, tuple[Any, str]] = {
    "type": ({"properties": {"n": {"type": "int"}}}, "its argument 'n': .*Invalid type: int"),
    "pointer": ({"properties": {"n": {"$ref": "#/$defs/No"}}}, "its argument 'n': .*exist"),
    "required": ({"type": "object", "required": "a"}, "its schema: "),
    "text": ({"type": "string"}, "its schema: it does not describe an object"),
    "null": ({"enum": [None]}, "its schema: "),
}


@pytest.fixture(params=["chat/completions", "messages", "responses"])
def ask(request: pytest.FixtureRequest, server: Server) -> Ask:
    """Offers tools of these names and schemas, one of which must be called."""
    path = request.param

    def post(*tools: tuple[Any, Any]) -> Any:
        said = [{"role": "user", "content": "hello"}]
        if path == "messages":
            body = {"messages": said, "max_tokens": 100, "tool_choice": {"type": "any"}}
            body["tools"] = [{"name": n, "input_schema": s, "description": None} for n, s in tools]
            return server.post("/v1/messages", {"model": "nano", **body})
        functions = [{"name": n, "parameters": s, "description": None} for n, s in tools]
        if path == "responses":
            made = [{"type": "function", **one} for one in functions]
            body = {"input": said, "max_output_tokens": 100}
        else:
            made = [{"type": "function", "function": one} for one in functions]
            body = {"messages": said, "max_tokens": 100}
        body |= {"model": "nano", "tools": made, "tool_choice": "required"}
        return server.post(f"/v1/{path}", body)

    return post


@pytest.mark.parametrize("schema", FINE.values(), ids=[*FINE])
def test_what_is_null_is_absent(ask: Ask, schema: Any) -> None:
    """Clients write null for what they do not say."""
    answer = ask(("ping", schema))

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "names",
    [("user.get", "user_get"), ("查询", "更新"), (LONG + "a", LONG + "b"), ('a"b', "a b>\n")],
)
def test_names_stay_as_the_client_has_them(ask: Ask, names: tuple[str, ...]) -> None:
    """It knows its tools by them, however alike they are."""
    for name in names:
        others = [(one, {"type": "object", "required": 3}) for one in names if one != name]
        assert f"tool {others[0][0]}: no grammar" in ask(*others).json()["error"]["message"]
        answer = ask((name, FINE["argument"]))
        assert answer.status_code == 200, answer.text
        assert json.dumps(name, ensure_ascii=False) in json.dumps(answer.json(), ensure_ascii=False)


@pytest.mark.parametrize(("schema", "problem"), ODD.values(), ids=[*ODD])
def test_a_tool_without_a_grammar(ask: Ask, schema: Any, problem: str) -> None:
    """Is refused with its name and its argument: a client that offers it may wait for its call."""
    answer = ask(("ping", FINE["argument"]), ("odd", schema))

    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert re.match(f"tool odd: no grammar can be made from {problem}", message)


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(odd=odd_tools())
def test_any_tool(ask: Ask, odd: Any) -> None:
    """Is called with an object, or refused in words of ours."""
    odd = odd if isinstance(odd, dict) else {}
    answer = ask((odd.get("name"), odd.get("inputSchema")))

    assert answer.status_code in (200, 400), answer.text
    assert "got past the grammar" not in answer.text
