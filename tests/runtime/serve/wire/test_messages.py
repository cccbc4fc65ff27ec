"""The choice of tools in OpenAI's chat format."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.serving import Server

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
LIST = {
    "type": "function",
    "function": {"name": "list_dir", "parameters": {"type": "object", "properties": {}}},
}


def allow(*tools: Any, mode: str = "auto") -> dict[str, Any]:
    """A choice of tools that may be called."""
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_tool_choice(server: Server) -> None:
    """A named tool is called, and with none there is text, whatever the model would have done."""

    def ask(choice: Any) -> Any:
        body = server.chat(
            "What's the error in app.log?", tools=[READ, LIST], tool_choice=choice, max_tokens=60
        )
        return body.json()["choices"][0]["message"]

    named = ask({"type": "function", "function": {"name": "list_dir"}})
    assert [call["function"]["name"] for call in named["tool_calls"]] == ["list_dir"]
    refused = ask("none")
    assert "tool_calls" not in refused
    assert refused["content"]


def test_allowed_tools(server: Server) -> None:
    """The model is told of all tools, and calls only those that it may."""

    def ask(choice: Any) -> Any:
        question = "What's the error in app.log?"
        return server.chat(question, tools=[READ, LIST], tool_choice=choice, max_tokens=60).json()

    plain = ask("auto")
    must = ask(allow(LIST, mode="required"))
    may = ask(allow(LIST))
    both = ask(allow(READ, LIST))

    def called(answer: Any) -> list[str]:
        calls = answer["choices"][0]["message"].get("tool_calls", ())
        return [call["function"]["name"] for call in calls]

    assert called(plain) == called(both) == ["read_file"]
    assert called(must) == ["list_dir"]
    assert "read_file" not in called(may)
    lengths = {answer["usage"]["prompt_tokens"] for answer in (plain, must, may, both)}
    assert len(lengths) == 1, "the prompt is the same, so what is cached of it is found"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [READ], "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
        ),
        ({"tools": [READ], "tool_choice": {"type": "custom"}}, "tool_choice"),
        (
            {
                "tools": [READ],
                "tool_choice": allow({"type": "function", "function": {"name": "x"}}),
            },
            "tool_choice",
        ),
        ({"tools": [READ], "tool_choice": allow()}, "tool_choice.allowed_tools.tools"),
        (
            {"tools": [READ], "tool_choice": allow({"type": "mcp"})},
            "tool_choice.allowed_tools.tools[0].type",
        ),
    ],
)
def test_what_is_refused(server: Server, more: dict[str, Any], param: str) -> None:
    """A choice of tools that are not offered, or of a kind that is not done here."""
    answer = server.chat(**more)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
