"""Parts of a conversation that no model here takes: a text in their place, once they are past.

A client sends its whole history with each request: to refuse a past part is to refuse all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict

from ..http.api_error import APIError
from .body import WireModel
from .tools import joined

MAX_FACTS, MAX_FACT = 4, 80  # of a part that its placeholder shows, and characters of each
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_FACTS = ("name", "tool_name", "title", "filename", "media_type", "url", "image_url", "query")
_TEXTS = ("text", "content", "output", "refusal")


class OtherPart(WireModel):
    """An image, a document, a call of a tool that another server ran, …, with all that it has."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: str

    def text_at(self, where: str, *, newest: bool = False) -> str:
        """The text in its place: what it is, and the texts in it; none of another model's thoughts.

        Raises:
            APIError: it has no text and is of the `newest` question; `where` names it.
        """
        found = list(_strings(self.model_dump()))
        facts = [re.sub("(?s)^data:|;.*", "", fact) for key, fact in found if key in _FACTS]
        head = " ".join(dict.fromkeys(fact[:MAX_FACT] for fact in [self.type, *facts][:MAX_FACTS]))
        texts = joined(text for key, text in found if key in _TEXTS)
        if self.type in _THOUGHTS:
            return ""
        if texts:
            return texts if self.type == "refusal" else f"[{head}]\n{texts}"
        if newest:
            raise APIError(
                f"content of type {self.type!r:.50} is not supported: these models take only text",
                param=f"{where}.type",
                code="unsupported_content",
            )
        return f"[{head}, which is not text]"


def _strings(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The strings in a part and its inner parts, with their keys."""
    for key, value in part.items():
        if isinstance(value, str):
            plain = key == "data" and part.get("type") == "text"  # a document of plain text
            yield "text" if plain else key, value
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                yield from _strings(inner)
