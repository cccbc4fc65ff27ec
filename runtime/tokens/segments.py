"""Segments of rendered text with their origins, and the marks that separate them."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import TemplateError

Origin = Literal["template", "system", "tools", "user", "tool_result", "model", "harness"]

HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"})
"""HTML escapes that a template may apply to a text."""
MAX_QUOTED = 3
"""Maximum nesting of JSON quoting that a template may apply to a content."""
MAX_TIMES, _ROOM = 8, 1 << 20
"""Maximum length of rendered contents, as a multiple of the originals, plus characters."""
_EDGE = "\u2003"  # a space that no template writes; missing where the template strips a content
_EDGES = rf"({_EDGE}|\\u{ord(_EDGE):04x})?"  # also as JSON of ASCII only
_MARK = re.compile(rf'{_EDGES}([0-9a-f]{{16}})\.(\d+)(\\*)(?:"|(&#34;))\2{_EDGES}')


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of rendered text and its origin."""

    text: str
    origin: Origin
    message: int | None = None
    """Index of the message whose content it is; None for the template's text."""
    trusted: bool = False
    """Whether control tokens are recognized in it: only in the template's own text."""


class Marks:
    """Placeholders for contents while a template is rendered.

    A mark contains a random word, so that no text can contain it by chance or intent; a quote in
    its middle, which shows whether the template wrote it as JSON or escaped it as HTML; and unusual
    spaces at its edges, which show whether the template strips contents.
    """

    def __init__(self) -> None:
        self._word = secrets.token_hex(8)
        self._contents: list[Segment] = []

    def put(self, text: str, origin: Origin, message: int | None = None) -> str:
        """Store an untrusted content; return its placeholder."""
        self._contents.append(Segment(text, origin, message))
        number = len(self._contents) - 1
        return f'{_EDGE}{self._word}.{number}"{self._word}{_EDGE}'

    def split(self, rendered: str) -> list[Segment]:
        """Split rendered text into segments: the template's own text, and the contents.

        Raises:
            TemplateError: a few marks would become a text without end.
        """
        segments: list[Segment] = []
        done = 0
        left_over = MAX_TIMES * sum(len(one.text) for one in self._contents) + _ROOM
        for match in _MARK.finditer(rendered):
            left, word, number, slashes, escaped, right = match.groups()
            if word != self._word:
                continue
            if match.start() > done:
                segments.append(Segment(rendered[done : match.start()], "template", trusted=True))
            done = match.end()
            content = self._contents[int(number)]
            text = content.text
            text = text if left else text.lstrip()
            text = text if right else text.rstrip()
            quoted = len(slashes).bit_length()  # 1, 3, 7 … by how often it was quoted
            if quoted > MAX_QUOTED:
                raise TemplateError("the chat template quotes a message again and again")
            for _ in range(quoted):
                text = json.dumps(text, ensure_ascii=False)[1:-1]
            text = text.translate(HTML) if escaped else text
            left_over -= len(text)
            if left_over < 0:
                raise TemplateError("the chat template repeats the messages too often")
            segments.append(replace(content, text=text))
        if done < len(rendered):
            segments.append(Segment(rendered[done:], "template", trusted=True))
        return segments
