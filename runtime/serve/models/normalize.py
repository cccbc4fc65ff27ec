"""Constants in place of what clients change in system prompts from request to request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...conversation.chat import Message

if TYPE_CHECKING:
    pass

_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*", re.MULTILINE)
_NONCE = re.compile(r"\bcch=[0-9A-Za-z]+")
_BUILD = re.compile(r"\b(cc_version=\d+\.\d+\.\d+)\.[0-9A-Za-z]+")


def normalize(messages: Sequence[Message]) -> tuple[list[Message], tuple[str, ...]]:
    """The messages with constants for what clients change from request to request in system
    prompts, so that their beginnings stay the same; and what that was.
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
