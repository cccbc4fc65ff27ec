"""Splits a stream of text into Markdown blocks, so that each is drawn once it is complete."""

from __future__ import annotations

import re
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis
from rich.markdown import Markdown

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownStream:
    """A splitter of streamed text into Markdown blocks: paragraphs, lists, fenced code."""

    def __init__(self) -> None:
        self.pending = ""
        """The text after the last complete block."""

    def push(self, piece: str) -> list[str]:
        """Append a piece, and return the blocks that it completes."""
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
        """Return the text after the last complete block, and reset."""
        rest, self.pending = self.pending, ""
        return rest.strip("\n")

    def _end(self) -> int | None:
        """Find the end of the first block: a blank line outside fenced code."""
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
    """Render a block for the terminal; HTML and escapes in it are shown literally."""
    # No links that a terminal would open: the text may be anyone's.
    shown = Markdown("", hyperlinks=False)
    shown.markup, shown.parsed = text, _parser().parse(text)
    return shown


@cache
def _parser() -> MarkdownIt:
    """Build a parser of CommonMark with tables, without HTML, entities, escapes and ``_`` emphasis.

    Answers quote code: ``Vec<String>``, ``&amp;``, ``\\*`` and ``__init__`` are what they are.
    """

    def by_stars(state: StateInline, silent: bool) -> bool:
        return state.src[state.pos] != "_" and emphasis.tokenize(state, silent)

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["html_block", "html_inline", "autolink", "entity", "escape"])
    parser.inline.ruler.at("emphasis", by_stars)
    return parser
