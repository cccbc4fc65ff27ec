"""Tracks a model's thinking in the token ledger and removes it from the history.

Whether it does is the template's decision (`Chat.keeps_thoughts`). Its tokens are then cut out of
the ledger; what follows them has to be recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ledger import Span, TokenLedger

if TYPE_CHECKING:
    from .chat import Chat
    from .messages import Message

THOUGHT = "thinking"
"""Ledger label of thinking tokens, tags included."""
NEAR = 8  # tokens before an answer in which the template's own opening tag is looked for


@dataclass(frozen=True)
class Mark:
    """A position in a conversation's tokens that survives removals of thinking."""

    tokens: int
    cuts: int = 0
    """Number of removals of thinking before the mark was made."""


@dataclass(frozen=True)
class Cut:
    """Spans that were removed together, at their positions before the removal."""

    spans: list[Span]
    left: int = 0
    """Number of tokens that the template leaves in place of each message's thought."""

    def moved(self, at: int) -> int:
        """Map a position before the removal to the one after it."""
        before = [span for span in self.spans if span.start < at]
        left = self.left * len({span.message for span in before})
        return at + left - sum(min(span.end, at) - span.start for span in before)


class Thoughts:
    """The thinking spans in one ledger.

    Attributes:
        cuts: the removals so far, in order.
    """

    def __init__(self, ledger: TokenLedger) -> None:
        self._ledger = ledger
        self.cuts: list[Cut] = []
        self._before: tuple[list[int], list[Span]] | None = None

    def mark(self) -> Mark:
        """Return the end of the ledger as a mark."""
        return Mark(len(self._ledger), len(self.cuts))

    def current(self, mark: Mark) -> Mark:
        """Return the mark, adjusted to the removals since it was made."""
        at = mark.tokens
        for cut in self.cuts[mark.cuts :]:
            at = cut.moved(at)
        return Mark(at, len(self.cuts))

    def label(
        self, before: int, thought: Sequence[int], message: int, opened: bool, opening: int | None
    ) -> None:
        """Label the tokens of the model's thinking in the ledger.

        Args:
            before: position of the model's first token.
            thought: indices of the thinking tokens, from there.
            message: index of the model's message.
            opened: whether the template has opened the thinking, so that its tag belongs to it.
            opening: the id of that tag; without one it cannot be found, and nothing is labeled.
        """
        start = before
        if opened and thought:
            near = self._ledger.ids[max(0, before - NEAR) : before]
            if opening not in near:
                return
            start = before - 1 - near[::-1].index(opening)
        if thought:
            self._ledger.relabel(start, before, message=message, label=THOUGHT)
        for first, end in _runs(thought):  # mostly one; each looks through all spans
            self._ledger.relabel(before + first, before + end, message=message, label=THOUGHT)

    def drop(self, messages: Sequence[Message], chat: Chat) -> int | None:
        """Remove the thinking that the template omits; return its first position, or None.

        Args:
            messages: of the conversation, the new ones included.
            chat: knows what the template keeps.
        """
        question = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
        gone = [
            span
            for span in self._ledger.spans
            if span.label == THOUGHT and not chat.keeps_thoughts(old=(span.message or 0) < question)
        ]
        if not gone:
            return None
        self._before = self._ledger.ids, self._ledger.spans
        left = chat.left_of_thought
        self.cuts.append(Cut(gone, len(left)))
        return self._ledger.cut(gone, left)

    def restore(self) -> None:
        """Undo the last `drop`."""
        assert self._before is not None, "nothing was taken out"
        self._ledger.ids, self._ledger.spans = self._before
        self.cuts.pop()


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each run of consecutive numbers."""
    first = end = -1
    for number in numbers:
        if number != end:
            if first < end:
                yield first, end
            first = number
        end = number + 1
    if first < end:
        yield first, end
