"""Truncates tool results to a token budget, with a marker, and pages through the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ToolError
from ...tools import Tool, tool

if TYPE_CHECKING:
    from ..conversation.messages import Message

MAX_STORED = 32 * 2**20  # characters of cut results that can be read on
_READ_ON = re.compile(r'read on with read_result\(id="r(\d{1,9})", start=\d+\)\]$')
_CHARS = 16  # characters a token, at most, that are looked at: more would not fit anyhow


@dataclass(eq=False)
class ToolOutputStore:
    """The truncated tool results of one conversation.

    Args:
        budget: maximum tokens of one result.
        count: counts the tokens of a text.
        messages: returns the conversation's messages, whose notes may name results already; a new
            result must not reuse such a name.

    Attributes:
        pages: whether the model has the tool `read_result`, so that notes can name it.
    """

    budget: int
    count: Callable[[str], int]
    messages: Callable[[], Sequence[Message]] = tuple
    pages: bool = field(default=False, init=False)
    _stored: dict[str, str] = field(default_factory=dict, init=False)
    _made: int = field(default=0, init=False)

    def truncate(self, text: str) -> str:
        """Truncate a result to the budget, with a note on what was cut."""
        if self._fits(text):
            return text
        name = ""
        if self.pages:
            name = self._new_name()
            self._stored[name] = text
            while len(self._stored) > 1 and sum(map(len, self._stored.values())) > MAX_STORED:
                del self._stored[next(iter(self._stored))]
        return self._page(text, name, 0)

    def take_over(self, other: ToolOutputStore) -> None:
        """Copy the results of another conversation, which this one continues."""
        self._stored, self._made = dict(other._stored), other._made

    def _new_name(self) -> str:
        if not self._made:
            results = [one.content for one in self.messages() if one.role == "tool"]
            self._made = max(
                (int(n) for text in results for n in _READ_ON.findall(text)), default=0
            )
        self._made += 1
        return f"r{self._made}"

    def tool(self) -> Tool:
        """Return the tool that pages through stored results; notes name it from now on."""
        self.pages = True
        made = tool(self.read_result)
        made.self_truncates = True
        return made

    def read_result(self, id: str, start: int) -> str:
        """Read on in a result that was cut.

        Args:
            id: The name that the note of the cut gives, such as r1.
            start: The character to begin with, as the note gives it.
        """
        if id not in self._stored:
            known = ", ".join(self._stored) or "none"
            raise ToolError(f"no such result: {id}; there are {known}. Call the tool again instead")
        text = self._stored[id]
        if not 0 <= start < len(text):
            raise ToolError(f"{id} has {len(text)} characters; start={start} is past its end")
        return self._page(text, id, start)

    def _page(self, text: str, name: str, start: int) -> str:
        end = start + self._prefix_len(text[start : start + self.budget * _CHARS])
        if end >= len(text):
            return text[start:]
        line = text.rfind("\n", start, end)
        if line > start + (end - start) * 3 // 4:  # whole lines, where that costs little
            end = line + 1
        on = f'read on with read_result(id="{name}", start={end})' if name else "ask for less"
        where = f"{len(text) - end:,} of {len(text):,} characters not shown"
        return f"{text[start:end].rstrip()}\n[cut: {where}; {on}]"

    def _prefix_len(self, text: str) -> int:
        """Return how many leading characters of a text fit the budget; at least one."""
        if self._fits(text):
            return len(text)
        fits, too_many = 1, len(text)
        while too_many - fits > max(1, fits // 64):  # near enough
            middle = (fits + too_many) // 2
            if self._fits(text[:middle]):
                fits = middle
            else:
                too_many = middle
        return fits

    def _fits(self, text: str) -> bool:
        if len(text) > self.budget * _CHARS:
            return False
        # A token is at least a byte, so a short text needs no counting.
        return len(text) * 4 <= self.budget or self.count(text) <= self.budget
