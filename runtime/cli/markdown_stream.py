"""Cuts a growing text into Markdown blocks, so that each can be drawn once it is whole."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from rich.markdown import Markdown

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownStream:
    """Takes pieces of a text and gives back its blocks: paragraphs, lists, fenced code."""

    def __init__(self) -> None:
        self.pending = ""
        """What has come since the last whole block."""

    def push(self, piece: str) -> list[str]:
        """The blocks that a piece completes."""
        self.pending += piece
        if "\n" not in piece:
            return []
        blocks: list[str] = []
        while (end := self._end()) is not None:
            block, self.pending = self.pending[:end], self.pending[end:].lstrip("\n")
            if block.strip():
                blocks.append(block.strip("\n"))
        return blocks

    def finish(self) -> str:
        """The rest."""
        rest, self.pending = self.pending, ""
        return rest.strip("\n")

    def _end(self) -> int | None:
        """Where the first block ends: at a blank line, but not within fenced code."""
        fence = ""
        at = 0
        while (line_end := self.pending.find("\n", at)) >= 0:
            line = self.pending[at:line_end]
            found = _FENCE.match(line)
            if fence:
                if found and found[1].startswith(fence) and not line.strip(" `~"):
                    fence = ""
                    return line_end + 1
            elif found:
                if at:  # the paragraph before it is a block of its own
                    return at
                fence = found[1]
            elif not line.strip():
                return line_end + 1
            at = line_end + 1
        return None


def as_markdown(text: str) -> Markdown:
    """A block as the terminal shows it: what an answer quotes, such as HTML, stays in sight."""
    from rich.markdown import Markdown

    # No links that a terminal would open: the text may be anyone's.
    shown = Markdown("", hyperlinks=False)
    shown.markup, shown.parsed = text, _parser().parse(text)
    return shown


@cache
def _parser() -> MarkdownIt:
    """CommonMark with tables, but without HTML, entities, escapes, and emphasis by ``_``.

    Answers quote code: ``Vec<String>``, ``&amp;``, ``\\*`` and ``__init__`` are what they are.
    """
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import emphasis

    def by_stars(state: StateInline, silent: bool) -> bool:
        return state.src[state.pos] != "_" and emphasis.tokenize(state, silent)

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["html_block", "html_inline", "autolink", "entity", "escape"])
    parser.inline.ruler.at("emphasis", by_stars)
    return parser
