"""Builds conversations that all chat templates accept, from blocks or items.

Templates expect one system message, then user and assistant in turn. Agents' clients send more:
several system messages, some of them in the midst of a conversation, two messages of the user
after another, one turn of the assistant as many items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ...conversation.chat import Message
from ...conversation.formats.toolcalls import ToolCall


class CallIds:
    """Deterministic IDs for the calls of a conversation, by their position.

    Random IDs, of clients or of ours, would change prompts that could share a cached prefix.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}  # of each call: name and identifier here
        self._turns = self._calls = 0

    def call(self, call_id: str, name: str, arguments: dict[str, Any]) -> ToolCall:
        """Return a call of the assistant's turn; its new ID of our own replaces the client's."""
        own = f"c{self._turns % 10**4:04}{self._calls % 10**4:04}"
        self._calls += 1
        self._known[call_id] = (name, own)
        return ToolCall(name, arguments, id=own)

    def end_turn(self) -> None:
        """End the assistant's turn."""
        self._turns += bool(self._calls)
        self._calls = 0

    def of_result(self, call_id: str, name: str = "") -> tuple[str, str]:
        """Return name and ID of the call that a result belongs to; those given if it is unknown."""
        return self._known.get(call_id, (name, call_id))


class Turns:
    """A builder of a conversation, from its first message on."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._ids = CallIds()
        self._texts: list[str] = []  # of the assistant's turn that is being put together
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._speaks = False

    def system(self, text: str) -> None:
        """Add instructions: to the leading system message, or later ones to a user message."""
        if not text:
            return
        self.close()
        if all(message.role == "system" for message in self.messages):
            before = self.messages.pop().content + "\n\n" if self.messages else ""
            self.messages.append(Message("system", before + text))
        else:
            self.user(f"<system-reminder>\n{text}\n</system-reminder>")

    def user(self, text: str) -> None:
        """Add a user text; consecutive ones become one message."""
        self.close()
        if self.messages and self.messages[-1].role == "user":
            text = f"{self.messages.pop().content}\n\n{text}"
        self.messages.append(Message("user", text))

    def say(self, text: str) -> None:
        """Add a text to the assistant's turn."""
        self._speaks = True
        self._texts.append(text)

    def thought(self, text: str) -> None:
        """Add a thought to the assistant's turn."""
        self._speaks = True
        self._thoughts.append(text)

    def called(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        """Add a tool call to the assistant's turn."""
        self._speaks = True
        self._calls.append(self._ids.call(call_id, name, arguments))

    def result(self, call_id: str, text: str) -> None:
        """Add the result of a tool call."""
        self.close()
        self.messages.append(Message("tool", text, *self._ids.of_result(call_id)))

    def close(self) -> None:
        """End the assistant's turn and append its message, if there is one."""
        if not self._speaks:
            return
        text = "\n\n".join(filter(None, self._texts))
        thinking = "\n\n".join(filter(None, self._thoughts))
        calls = tuple(self._calls)
        self._ids.end_turn()
        self.messages.append(Message("assistant", text, calls=calls, text=text, thinking=thinking))
        self._texts, self._thoughts, self._calls, self._speaks = [], [], [], False


def in_turns(messages: Iterable[Message]) -> list[Message]:
    """Merge messages for strict templates: one leading system message, no consecutive users.

    Later system messages become part of user messages.
    """
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
    """Sort the results of parallel tool calls in the order of the calls.

    Clients that run tools at once may send results as they come, each with the identifier of its
    call. Most templates write none, so a model takes the first result for that of the first call.
    """
    made: list[Message] = []
    for results, group in groupby(messages, key=lambda message: message.role == "tool"):
        part = list(group)
        if results and made:
            order = {call.id: number for number, call in enumerate(made[-1].calls)}
            part.sort(key=lambda one: order.get(one.call_id, len(order)))
        made += part
    return made


_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*", re.MULTILINE)
_NONCE = re.compile(r"\bcch=[0-9A-Za-z]+")
_BUILD = re.compile(r"\b(cc_version=\d+\.\d+\.\d+)\.[0-9A-Za-z]+")


def normalize(messages: Sequence[Message]) -> tuple[list[Message], tuple[str, ...]]:
    """Replace values that change with each request in system prompts by constants.

    So prompts keep a prefix that is cached. Returns the messages, and what was replaced.
    """
    made: list[Message] = []
    notes: dict[str, None] = {}
    for message in messages:
        if message.role == "system" and ("cch=" in message.content):
            content = _constant(message.content)
            if content != message.content:
                notes["cch"] = None
                message = replace(message, content=content)
        made.append(message)
    return made, tuple(notes)


def _constant(text: str) -> str:
    def line(found: re.Match[str]) -> str:
        return _NONCE.sub("cch=0", _BUILD.sub(r"\1.0", found[0]))

    first, end, rest = text.partition("\n")
    return _BILLING.sub(line, _NONCE.sub("cch=0", first) + end + rest)
