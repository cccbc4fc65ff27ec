"""Formats of tool calls: how they are read, and what their schemas leave open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from triplepoint.runtime.conversation.formats import FORMATS, Hermes, format_of, register, toolcalls
from triplepoint.runtime.conversation.formats.schemas import MAX_INTEGER, strict
from triplepoint.runtime.conversation.formats.toolcalls import CallPrefix, ToolCall, quoted


def test_hermes_reads_what_json_dumps_writes() -> None:
    """Name and arguments are read; the text is kept as it was written."""
    (call,) = Hermes().parse('\n{"name": "read_file", "arguments": {"path": "é"}}\n')

    assert call == ToolCall(
        "read_file", {"path": "é"}, '{"name": "read_file", "arguments": {"path": "é"}}'
    )


@pytest.mark.parametrize("body", ["", "nonsense", "[1]", '{"name": 1}', "[" * 100_000])
def test_hermes_says_what_is_wrong(body: str) -> None:
    """What is no call is a ValueError, however it is malformed."""
    with pytest.raises(ValueError, match="tool call"):
        Hermes().parse(body)


def test_calls_that_say_the_same_have_the_same_key() -> None:
    """The order of arguments does not make another call; their values do."""
    one = ToolCall("f", {"a": 1, "b": 2})

    assert one.key == ToolCall("f", {"b": 2, "a": 1}, "written otherwise").key
    assert one.key != ToolCall("f", {"a": 1, "b": 3}).key
    assert one.key != ToolCall("g", {"a": 1, "b": 2}).key


def test_a_template_names_its_format() -> None:
    """The format is found by its tag in the template's text; another can be registered."""
    assert format_of("… <tool_call> …") is FORMATS["hermes"]
    assert format_of("no tools here") is None

    class Other(Hermes):
        name = "other"
        openings = (CallPrefix("[CALL]"),)

    register(Other())
    try:
        found = format_of("… [CALL] …")
        assert found is not None
        assert found.name == "other"
    finally:
        del FORMATS["other"]


def test_strict_closes_what_a_schema_leaves_open() -> None:
    """Objects take no unknown keys and integers have bounds, at every depth; the rest stays."""
    inner = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}}
    schema = {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer"},
            "free": {"type": "object", "additionalProperties": {"type": "integer"}},
            "one": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
            "const": {"const": {"type": "integer"}},
        },
        "$defs": {"Inner": inner},
    }

    closed = strict(schema)

    bounds = {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER}
    assert closed["additionalProperties"] is False
    assert closed["properties"]["minimum"] == {"type": "integer", **bounds}
    assert closed["properties"]["free"] == {
        "type": "object",
        "additionalProperties": {"type": "integer", **bounds},
    }
    assert closed["properties"]["const"] == {"const": {"type": "integer"}}
    assert closed["$defs"]["Inner"]["additionalProperties"] is False
    number = closed["$defs"]["Inner"]["properties"]["n"]
    assert number == {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
    assert "additionalProperties" not in schema


def test_a_schema_is_made_a_rule_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar of the same tools costs no second look at their schemas; of others it does."""
    made = list[object]()

    def counted(schema: Mapping[str, Any], drop: Iterable[str] = ()) -> dict[str, Any]:
        made.append(schema)
        return strict(schema, drop)

    def rule(pattern: str, *lenient: str) -> str:
        given = {"type": "object", "properties": {"only-here": {"pattern": pattern}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": given}}
        return FORMATS["hermes"].grammar([tool], quoted, lenient)

    monkeypatch.setattr(toolcalls, "strict", counted)
    assert rule("a+") == rule("a+")
    assert len(made) == 1
    assert len({rule("a+"), rule("b+"), rule("a+", "f")}) == 3
    assert len(made) == 3
