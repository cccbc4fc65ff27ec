"""The fallback format: a JSON object on a line of its own, in a fence or not.

{"name": "read_file", "arguments": {"path": "app.log"}}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .toolcalls import (
    MAX_CALLS,
    CallPrefix,
    JsonFormat,
    Tag,
    ToolCall,
    Tools,
    any_of,
    calls_of,
    head_texts,
    heads,
    spelled,
    written,
)

_END = re.compile(r"\n```\s*$")


class JsonText(JsonFormat):
    """The fallback format: a line that begins with ``{"name": "`` is a call; one call per line."""

    name = "json"
    openings = (
        CallPrefix('{"name": "', "line", in_call=True),
        CallPrefix('[{"name": "', "line", in_call=True),
    )
    example = '{"name": <name>, "arguments": <arguments>}'

    def speaks(self, template: str) -> bool:
        """Return False: no template uses this fallback."""
        return False

    def rules(self, tools: Tools, tag: Tag) -> list[str]:
        """Return the rules of the calls; the key ``parameters`` may replace ``arguments``."""
        count = len(tools)
        lines, listed = (
            "" if self.single else f"({between} call){{0,{MAX_CALLS - 1}}}"
            for between in ('"\\n"', '", "')
        )
        rules = [
            f'kept_0: {any_of("rest", count)} {lines} "\\n```"?',
            f'kept_1: {any_of("rest", count)} {listed} "]" "\\n```"?',
            f'whole_0: call {lines} "\\n```"?',
            f'whole_1: "[" call {listed} "]" "\\n```"?',
            f"call: {any_of('call', count)}",
        ]
        for key in ("arguments", "parameters"):
            tails = heads(tools, key, len(self.opening))
            for i, (whole, rest) in enumerate(zip(head_texts(tools, key), tails, strict=True)):
                rules.append(f'{key}_call_{i}: {spelled(whole)} arguments_{i} "}}"')
                rules.append(f'{key}_rest_{i}: {rest} arguments_{i} "}}"')
        for i in range(count):
            rules.append(f"call_{i}: arguments_call_{i} | parameters_call_{i}")
            rules.append(f"rest_{i}: arguments_rest_{i} | parameters_rest_{i}")
        return rules

    def parse(self, body: str, tools: Tools = ()) -> list[ToolCall]:
        """Parse a JSON list of calls, or one call per line."""
        text = _END.sub("", body).strip()
        if text.startswith("["):
            return calls_of(text)
        try:
            return calls_of(text)
        except ValueError:
            # Other ends of lines than this one are in texts as they are.
            lines = [line for line in text.split("\n") if line.strip()]
            if len(lines) < 2:
                raise
            return [call for line in lines for call in calls_of(line)]

    def render(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(written, calls))
