"""MiniMax M2: all calls of a turn in one pair of tags.

<minimax:tool_call>
<invoke name="read_file">
<parameter name="path">app.log</parameter>
</invoke>
</minimax:tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .tagged import Tagged, in_a_row, typed
from .toolcalls import CallPrefix, Tag, ToolCall, Tools, any_of

_INVOKE = re.compile(r'\s*<invoke name="([^"\n]+)">\n?')
_DONE = re.compile(r"\s*</invoke>\s*")
_PARAMETER = re.compile(r'<parameter name="([^"\n]+)">(.*?)</parameter>\n', re.DOTALL)
_LOOSE = re.compile(
    r'\s*<parameter name="([^"\n]+)">(.*?)</parameter>\s*(?=<parameter |</invoke>)', re.DOTALL
)


class MiniMax(Tagged):
    """The MiniMax M2 format: each call and each argument on lines of its own."""

    name = "minimax"
    openings = (CallPrefix("<minimax:tool_call>"),)
    closing = "</minimax:tool_call>"
    head_text, key_text = '<invoke name="{}">\n', '<parameter name="{}">'
    end, foot = "</parameter>\n", "</invoke>\n"
    begun = re.compile(r'<parameter name="[^"\n]+">')
    names = re.compile(r'[^"\n]+')
    example = (
        '<minimax:tool_call>\n<invoke name="NAME">\n<parameter name="ARGUMENT">value</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    )

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        return [
            f'calls: "\\n" {self.many("call", "")} {tag(self.closing)}',
            f'call: {any_of("call", len(tools))} "</invoke>\\n"',
        ]

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse the calls of a body; arguments get the types of the tools' schemas."""
        for pattern in (_PARAMETER, _LOOSE):  # as the grammar writes it, or nearly so
            if calls := _calls(pattern, body, tools):
                return calls
        raise ValueError(f'a tool call must be <invoke name="…">…</invoke>, not {body[:60]!r}')

    def render(self, calls: Sequence[ToolCall]) -> str:
        return f"{self.opening}\n{''.join(map(self.written, calls))}{self.closing}"


def _calls(pattern: re.Pattern[str], body: str, tools: Tools) -> list[ToolCall]:
    """Parse consecutive calls that match `pattern`; none where the text holds anything else."""
    calls: list[ToolCall] = []
    at = 0
    while head := _INVOKE.match(body, at):
        found, end = in_a_row(pattern, body, head.end())
        done = _DONE.match(body, end)
        if done is None:
            return []
        text = body[head.start() : done.end()].strip()
        calls.append(ToolCall(head[1], typed(found, head[1], tools), text))
        at = done.end()
    return [] if body[at:].strip() else calls
