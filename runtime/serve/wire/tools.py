"""Tools, schemas and limits of requests: what all formats of conversations share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ....tools.schema import without
from ...conversation.formats.toolcalls import is_flat
from ...conversation.grammar import CallChoice
from ..http.api_error import APIError
from ..settings import Limits


def arguments_of(given: str | dict[str, Any]) -> dict[str, Any]:
    """Parse the arguments of a call in a history; invalid JSON becomes one argument."""
    if isinstance(given, dict):
        return given
    try:
        arguments = json.loads(without_halves(given) if "\\u" in given else given or "{}")
    except (ValueError, RecursionError):
        return {"arguments": given}
    if not is_flat(arguments):
        return {"arguments": given}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def without_halves(text: str) -> str:
    """Replace unpaired surrogates in JSON by U+FFFD, since they cannot be encoded."""
    whole = json.dumps(json.loads(text), ensure_ascii=False)
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def joined(texts: Iterable[str]) -> str:
    """Join the texts of a message's parts, each on lines of its own."""
    made = ""
    for text in filter(None, texts):
        made += text if not made or made[-1] == "\n" or text[0] == "\n" else f"\n{text}"
    return made


def check_turns(turns: Any, param: str, limits: Limits) -> None:
    """Raise `APIError` for a conversation with more turns than the server's limit."""
    if isinstance(turns, list) and len(turns) > limits.messages:
        what = "items" if param == "input" else "messages"
        raise APIError(f"there are more than {limits.messages:,} {what}", param=param)


def check_size(schema: Any, where: str, limits: Limits) -> None:
    """Raise `APIError` for a schema that is too large; `where` names the parameter."""
    size = len(json.dumps(schema))
    if size > limits.schema:
        raise APIError(
            f"the schema has {size:,} characters; the limit is {limits.schema:,}",
            param=where,
        )


def schema_of(given: dict[str, Any] | None, where: str, limits: Limits) -> dict[str, Any]:
    """Return the schema of an answer, by default any object; raises as `check_size`."""
    check_size(given or {}, where, limits)
    return given or {"type": "object"}


class Offered(NamedTuple):
    """A tool of a request, independent of the wire format."""

    kind: str
    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | None = None


def tools_of(
    tools: Sequence[Offered],
    limits: Limits,
    *,
    kind: str = "function",
    schema: str = "parameters",
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the schemas of tools for templates and grammars, and notes on ignored tools.

    Args:
        kind: the supported one; tools of other kinds, run by another server, are ignored.
        schema: name of a tool's schema in the format, for errors.

    Raises:
        APIError: there are too many, they are too large, or two have one name.
    """
    if len(tools) > limits.tools:
        raise APIError(f"there are more than {limits.tools} tools", param="tools")
    made: list[dict[str, Any]] = []
    notes: list[str] = []
    for number, tool in enumerate(tools):
        if tool.kind != kind:
            notes.append(f"tools[{number}]: type {tool.kind!r:.50} is not available here: ignored")
            continue
        if not 0 < len(tool.name) <= 256:
            raise APIError(
                "a tool needs a name of up to 256 characters", param=f"tools[{number}].name"
            )
        check_size(tool.schema, f"tools[{number}].{schema}", limits)
        made.append(_shown(tool.name, tool.description, tool.schema))
    if len({tool["function"]["name"] for tool in made}) < len(made):
        raise APIError("two tools have the same name", param="tools", code="invalid_value")
    check_size(made, "tools", limits)
    return made, notes


def check_choice(
    calls: CallChoice, call_of: Iterable[str], tools: Sequence[Mapping[str, Any]]
) -> None:
    """Raise `APIError` for a choice of unknown tools, or a required call without tools."""
    offered = {tool["function"]["name"] for tool in tools}
    for name in call_of:
        if name not in offered:
            raise APIError(f"no such tool: {name:.100}", param="tool_choice")
    if calls == "required" and not tools:
        raise APIError("tool_choice needs tools", param="tool_choice")


def _shown(name: str, description: str | None, schema: dict[str, Any] | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": name}
    if description is not None:
        shown["description"] = description
    shown["parameters"] = without(schema, ()) or {"type": "object", "properties": {}}
    return {"type": "function", "function": shown}
