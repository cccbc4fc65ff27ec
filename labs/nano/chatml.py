"""A conversation as the segments that nano is trained on: the bytes of `template.jinja`.

The template file is what a runtime renders; this module says the same in Python because training
must know which tokens are the assistant's. tests/labs/nano/test_chatml.py holds them equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from triplepoint.runtime.agent.prompt import SYSTEM_PROMPT

from .files import Call
from .writer import Round

SIGNATURES = "list_dir(path)\nread_file(path, start, end)\nsearch(pattern, path)"


class Segment(NamedTuple):
    """A piece of a conversation; `control`: its text may form control tokens."""

    text: str
    target: bool = False
    control: bool = False


def system_segments(system: str = SYSTEM_PROMPT, signatures: str = SIGNATURES) -> list[Segment]:
    return [
        Segment("<|im_start|>", control=True),
        Segment(f"system\n{system}\n# Tools\n{signatures}\n"),
        Segment("<|im_end|>", control=True),
        Segment("\n"),
    ]


def call_text(call: Call) -> str:
    """Format a call as JSON, as Hermes and Qwen write it."""
    arguments = {"name": call.name, "arguments": call.arguments}
    return json.dumps(arguments, ensure_ascii=False)


def round_segments(item: Round) -> Iterable[Segment]:
    """Format one round; targets are the assistant's own tokens and the <|im_end|> after them."""
    start, end = Segment("<|im_start|>", control=True), Segment("<|im_end|>", control=True)
    done = Segment("<|im_end|>", target=True, control=True)
    yield from (start, Segment("user\n"), Segment(item.question), end, Segment("\n"))
    for call, result in item.steps:
        yield from (start, Segment("assistant\n"), Segment("<tool_call>", True, True))
        yield from (Segment(f"\n{call_text(call)}\n", True), Segment("</tool_call>", True, True))
        yield from (done, Segment("\n"), start, Segment("user\n"))
        yield from (Segment("<tool_response>", control=True), Segment("\n"), Segment(result))
        yield from (Segment("\n"), Segment("</tool_response>", control=True), end, Segment("\n"))
    yield from (start, Segment("assistant\n"), Segment(item.answer, True), done, Segment("\n"))
