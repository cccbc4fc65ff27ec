"""GLM 4.5 and later, and others: a name, then keys and values in tags of their own.

<tool_call>read_file
<arg_key>path</arg_key>
<arg_value>app.log</arg_value>
</tool_call>

Some models write no line breaks between the tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from .tagged import Tagged, json_names, plain, typed
from .toolcalls import DECODER, CallPrefix, Tag, ToolCall, Tools, any_of, quoted

_NAME = re.compile(r'\s*([^\s<>(){}\[\]:,"]+)\s*')
_KEY = re.compile(r"\s*<arg_key>([^<\n]+)</arg_key>\s*<arg_value>")
_CLOSED = re.compile("</arg_value>")
_END = re.compile(r"\s*</arg_value>")
_BREAK = '"\\n"?'


class Glm(Tagged):
    """The GLM format: one call per pair of tags, its name followed by tagged arguments."""

    name = "glm"
    openings = (CallPrefix("<tool_call>"),)
    closing = "</tool_call>"
    hints = ("<arg_key>",)
    end = "</arg_value>"
    after_end = _BREAK
    inner = ("<arg_key>", "</arg_key>", "<arg_value>", end)
    reserved = ("<tool_response>", "</tool_response>")
    example = (
        "<tool_call>NAME\n<arg_key>ARGUMENT</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"
    )
    on_request = True
    names = re.compile(r"[^<\n]+")
    begun = re.compile(r"<arg_value>")

    def head(self, name: str) -> str:
        return f"{quoted(name)} {_BREAK}"

    def key(self, name: str, tag: Tag) -> str:
        key = f"{tag('<arg_key>')} {quoted(name)} {tag('</arg_key>')}"
        return f"{key} {_BREAK} {tag('<arg_value>')}"

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        more = self.many("call", f"{_BREAK} {tag(self.opening)}")
        return [
            f"calls: {more} {_BREAK}",
            f"call: {any_of('call', len(tools))} {tag(self.closing)}",
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the name and the arguments, typed by the schema."""
        head = _NAME.match(body)
        if head is None:
            raise ValueError(f"a tool call must begin with a name, not {body[:60]!r}")
        found, end = _arguments(body, head.end(), json_names(head[1], tools))
        if body[end:].strip():
            raise ValueError(
                f"{head[1]}: a tool call's arguments are malformed: {body[end:][:60]!r}"
            )
        return [ToolCall(head[1], typed(found, head[1], tools), body.strip())]

    def render(self, calls: Sequence[ToolCall]) -> str:
        texts = []
        for call in calls:
            lines = [self.opening + call.name]
            for key, value in call.arguments.items():
                lines.append(f"<arg_key>{key}</arg_key>")
                lines.append(f"<arg_value>{plain(value)}</arg_value>")
            texts.append("\n".join([*lines, self.closing]))
        return "\n".join(texts)


def _arguments(
    body: str, at: int, in_json: Callable[[str], bool]
) -> tuple[list[tuple[str, str]], int]:
    """Match arguments from an index on; return their keys and texts, and where they end.

    Inside a JSON string the end tag of a value is plain text.
    """
    found: list[tuple[str, str]] = []
    while key := _KEY.match(body, at):
        start, end = key.end(), None
        if in_json(key[1]):
            with suppress(ValueError, RecursionError):
                begin = len(body) - len(body[start:].lstrip())
                end = _END.match(body, DECODER.raw_decode(body, begin)[1])
        end = end or _CLOSED.search(body, start)
        if end is None:
            break
        found.append((key[1], body[start : end.start()]))
        at = end.end()
    return found, at
