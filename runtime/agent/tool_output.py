"""Keeps the results of tools to a budget of tokens: what is cut is said, and can be read on."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ToolError
from ...tools import Tool, tool

MAX_KEPT = 32 * 2**20  # characters of cut results that can be read on
_CHARS = 16  # characters a token, at most, that are looked at: more would not fit anyhow


class ToolOutputStore:
    """What tools of one conversation returned, as far as it was cut.

    Args:
        budget: tokens of one result.
        count: tokens of a text.

    Attributes:
        pages: whether the model has `read_result`, so that a note can name it.
    """

    def __init__(self, budget: int, count: Callable[[str], int]) -> None:
        self.budget = budget
        self.pages = False
        self._count = count
        self._kept: dict[str, str] = {}
        self._made = 0

    def truncate(self, text: str) -> str:
        """The text, or what fits of it and a note of what does not."""
        if self._fits(text):
            return text
        name = ""
        if self.pages:
            self._made += 1
            name = f"r{self._made}"
            self._kept[name] = text
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return self._page(text, name, 0)

    def tool(self) -> Tool:
        """The tool that reads on; the notes name it from now on."""
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
        if id not in self._kept:
            known = ", ".join(self._kept) or "none"
            raise ToolError(f"no such result: {id}; there are {known}. Call the tool again instead")
        text = self._kept[id]
        if not 0 <= start < len(text):
            raise ToolError(f"{id} has {len(text)} characters; start={start} is past its end")
        return self._page(text, id, start)

    def _page(self, text: str, name: str, start: int) -> str:
        end = start + self._most(text[start : start + self.budget * _CHARS])
        if end >= len(text):
            return text[start:]
        line = text.rfind("\n", start, end)
        if line > start + (end - start) * 3 // 4:  # whole lines, where that costs little
            end = line + 1
        on = f'read on with read_result(id="{name}", start={end})' if name else "ask for less"
        where = f"{len(text) - end:,} of {len(text):,} characters not shown"
        return f"{text[start:end].rstrip()}\n[cut: {where}; {on}]"

    def _most(self, text: str) -> int:
        """How many characters of the beginning fit into the budget; at least one."""
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
        return len(text) * 4 <= self.budget or self._count(text) <= self.budget
