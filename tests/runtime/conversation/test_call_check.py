"""Calls that no grammar held the model to."""

from __future__ import annotations

from typing import Any

import pytest

from triplepoint.runtime.conversation.call_check import fits
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.tokens.tokenizer import Tokenizer

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "end": {"type": "integer", "maximum": 9},
        "at": {"anyOf": [{"$ref": "#/$defs/At"}, {"type": "null"}]},
        "all": {"type": "array", "items": {"$ref": "#/$defs/At"}},
    },
    "required": ["path"],
    "$defs": {
        "At": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
            "required": ["x"],
        }
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "g"}},
]


@pytest.mark.parametrize(
    ("name", "arguments", "fit"),
    [
        ("f", {"path": "x"}, True),
        ("f", {"end": 3, "path": 'é "\n'}, True),
        ("f", {"at": {"y": 1, "x": 2.5}, "path": "x"}, True),
        ("f", {"at": None, "path": "x", "all": [{"y": 1, "x": 2}, {"x": 1}]}, True),
        ("f", {}, False),
        ("f", {"path": 1}, False),
        ("f", {"path": "x", "end": 10}, False),
        ("f", {"path": "x", "other": 1}, False),
        ("f", {"path": "x", "at": {"y": 1}}, False),
        ("g", {}, True),
        ("h", {}, False),
    ],
)
def test_what_fits(tokenizer: Tokenizer, name: str, arguments: dict[str, Any], fit: bool) -> None:
    """Names and arguments have to be right; their order may be any."""
    assert fits(ToolCall(name, arguments), TOOLS, tokenizer) is fit


def test_a_definition_of_anything(tokenizer: Tokenizer) -> None:
    """`true` is a schema too, also by name."""
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/V"}}, "$defs": {"V": True}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    assert fits(ToolCall("f", {"v": [{"b": 1, "a": 2}]}), tools, tokenizer)
    assert not fits(ToolCall("f", {"w": 1}), tools, tokenizer)
