"""Conversations that come in blocks or items, as messages that every template takes.

Templates are of chats: one system message, then user and assistant in turn. Clients of agents send
more: several system messages, some of them in the midst of a conversation, two messages of the user
after another, one turn of the assistant as many items.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ..conversation.chat import Message
from ..conversation.grammar import CallChoice
from ..conversation.toolcalls import ToolCall, is_flat
from .api_error import APIError
from .settings import Limits


class Turns:
    """Puts a conversation together, from its beginning on.

    Calls get identifiers by their place: so what clients, or we, chose at random is no part of a
    prompt that begins as the one before.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._names: dict[str, tuple[str, str]] = {}  # of calls: name and identifier here
        self._turns = 0
        self._texts: list[str] = []  # of the assistant's turn that is being put together
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._speaks = False

    def system(self, text: str) -> None:
        """Instructions: one message at the beginning; later ones stand in what the user says."""
        if not text:
            return
        self.close()
        if all(message.role == "system" for message in self.messages):
            before = self.messages.pop().content + "\n\n" if self.messages else ""
            self.messages.append(Message("system", before + text))
        else:
            self.user(f"<system-reminder>\n{text}\n</system-reminder>")

    def user(self, text: str) -> None:
        """What the user says; what he says after another is one message."""
        self.close()
        if self.messages and self.messages[-1].role == "user":
            text = f"{self.messages.pop().content}\n\n{text}"
        self.messages.append(Message("user", text))

    def said(self, text: str) -> None:
        """What the assistant has said."""
        self._speaks = True
        self._texts.append(text)

    def thought(self, text: str) -> None:
        """What the assistant has thought."""
        self._speaks = True
        self._thoughts.append(text)

    def called(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        """A call that the assistant has made."""
        self._speaks = True
        own = f"c{self._turns % 10**4:04}{len(self._calls) % 10**4:04}"
        self._names[call_id] = (name, own)
        self._calls.append(ToolCall(name, arguments, id=own))

    def result(self, call_id: str, text: str) -> None:
        """The result of a call."""
        self.close()
        name, own = self._names.get(call_id, ("", call_id))
        self.messages.append(Message("tool", text, name, own))

    def close(self) -> None:
        """End the assistant's turn, if it is one."""
        if not self._speaks:
            return
        text = "\n\n".join(filter(None, self._texts))
        thinking = "\n\n".join(filter(None, self._thoughts))
        calls = tuple(self._calls)
        self._turns += bool(calls)
        self.messages.append(Message("assistant", text, calls=calls, text=text, thinking=thinking))
        self._texts, self._thoughts, self._calls, self._speaks = [], [], [], False


def in_turns(messages: Iterable[Message]) -> list[Message]:
    """The conversation as strict templates want it: one system message at the beginning, later
    ones in what the user says, and one message of the user's at a time."""
    turns = Turns()
    for message in messages:
        if message.role == "system":
            turns.system(message.content)
        elif message.role == "user":
            turns.user(message.content)
        else:
            turns.messages.append(message)
    return turns.messages


def in_call_order(messages: Iterable[Message]) -> list[Message]:
    """The conversation with the results of calls in the order of the calls.

    Clients that run tools at once may send results as they come, each with the identifier of its
    call. Most templates write none, so a model takes the first result for that of the first call.
    """
    made: list[Message] = []
    for results, group in groupby(messages, key=lambda message: message.role == "tool"):
        part = list(group)
        if results and made:
            places = {call.id: place for place, call in enumerate(made[-1].calls)}
            part.sort(key=lambda one: places.get(one.call_id, len(places)))
        made += part
    return made


def arguments_of(given: str | dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call in a history; what is not JSON is shown to the model as it is."""
    if isinstance(given, dict):
        return given
    try:
        arguments = json.loads(given or "{}")
    except (ValueError, RecursionError):
        return {"arguments": given}
    if not is_flat(arguments):
        return {"arguments": given}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def joined(texts: Iterable[str]) -> str:
    """The texts of a message's parts, each on lines of its own."""
    made = ""
    for text in filter(None, texts):
        made += text if not made or made[-1] == "\n" or text[0] == "\n" else f"\n{text}"
    return made


def check_turns(turns: Any, param: str, limits: Limits) -> None:
    """Refuse a conversation of more turns than a server takes.

    Raises:
        APIError: there are more.
    """
    if isinstance(turns, list) and len(turns) > limits.messages:
        what = "items" if param == "input" else "messages"
        raise APIError(f"there are more than {limits.messages:,} {what}", param=param)


def check_size(schema: Any, where: str, limits: Limits) -> None:
    """Refuse a schema that is too large.

    Raises:
        APIError: it is; names where.
    """
    size = len(json.dumps(schema))
    if size > limits.schema:
        raise APIError(
            f"the schema has {size:,} characters; the limit is {limits.schema:,}",
            param=where,
        )


class Offered(NamedTuple):
    """A tool of a request, in whatever format it came."""

    kind: str
    name: str
    description: str | None
    schema: dict[str, Any] | None


def tools_of(
    tools: Sequence[Offered],
    limits: Limits,
    *,
    kind: str = "function",
    schema: str = "parameters",
    skipped: Container[str] = (),
) -> list[dict[str, Any]]:
    """The schemas of tools as templates and grammars take them.

    Args:
        kind: the one that there is here.
        schema: how the format calls the schema of a tool.
        skipped: kinds that the model is not told of.

    Raises:
        APIError: there are too many, they are too large, or of a kind that is not done here.
    """
    if len(tools) > limits.tools:
        raise APIError(f"there are more than {limits.tools} tools", param="tools")
    made: list[dict[str, Any]] = []
    for number, tool in enumerate(tools):
        if tool.kind in skipped:
            continue
        if tool.kind != kind:
            raise not_done(tool.kind, f"tools[{number}].type", kind)
        if not 0 < len(tool.name) <= 256:
            raise APIError(
                "a tool needs a name of up to 256 characters", param=f"tools[{number}].name"
            )
        check_size(tool.schema, f"tools[{number}].{schema}", limits)
        made.append(_shown(tool.name, tool.description, tool.schema))
    if len({tool["function"]["name"] for tool in made}) < len(made):
        raise APIError("Invalid 'tools': two tools have the same name.", param="tools")
    check_size(made, "tools", limits)
    return made


def not_done(kind: str, where: str, done: str) -> APIError:
    """The refusal of a tool of a kind that there is not here."""
    return APIError(
        f"tools of type {kind!r:.50} are not supported; supported: {done!r}",
        param=where,
        code="unsupported_parameter",
    )


def check_choice(
    calls: CallChoice, call_of: Iterable[str], tools: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse a choice of tools that are not offered.

    Raises:
        APIError: one is not, or there are none and one must be called.
    """
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
    shown["parameters"] = schema or {"type": "object", "properties": {}}
    return {"type": "function", "function": shown}
