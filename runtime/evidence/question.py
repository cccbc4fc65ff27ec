"""Parses a question into search terms and intent by its words, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...arguments import without_surrogates
from . import languages
from .words import Terms, joined, terms, words

MAX_LENGTH = 6000
"""Maximum characters of a question; of a longer one its end is parsed."""
MAX_SMALL = 12
"""Maximum words of a greeting."""


@dataclass(frozen=True)
class Question:
    """A parsed question, ready for the search."""

    text: str
    """The question, unchanged."""
    terms: Terms
    """Search terms, including those of earlier questions."""
    own: Terms
    """Search terms of this question alone."""
    numbers: tuple[int, int] | None
    """First and last number of the requested lines; negative from the end."""
    faults: bool
    """Whether the question is about failures."""
    counts: bool
    """Whether the question asks for a count or the most frequent item."""
    follows: bool
    """Whether the question refers to earlier messages."""
    ends: bool
    """Whether the question asks for the last of something."""
    small: bool
    """Whether the text is a greeting or thanks."""
    here: bool
    """Whether the question's words refer to this folder."""
    asks: bool
    """Whether the text is a question, by its words."""
    acts: bool
    """Whether the text is a task that changes something, and not a question."""
    removes: bool
    """Whether the text may request to delete a whole file."""
    moves: bool
    """Whether the text may request to move a whole file."""


def read(text: str, earlier: Sequence[str] = (), *, faults: bool = False) -> Question:
    """Parse a question.

    Args:
        text: the question.
        earlier: previous questions and answers, the newest last.
        faults: whether it is about failures, whatever its words say.
    """
    text = without_surrogates(text[-MAX_LENGTH:])
    own = terms(text)
    spoken = words(text)
    small = 0 < len(spoken) <= MAX_SMALL and all(
        word in languages.SMALL or len(word) == 1 for word in spoken
    )
    points = bool(languages.CONTINUES.search(text)) or not languages.POINTS.isdisjoint(spoken)
    # Few words of its own cannot identify a line: earlier questions add the rest.
    follows = bool(earlier) and not small and (points or len(own.telling) <= 3)
    sought = own
    if follows:
        before = [
            terms(one, weight) for one, weight in zip(reversed(earlier), (0.5, 0.35), strict=False)
        ]
        sought = joined(own, *before)
    counts = bool(languages.COUNTS.search(text)) and not languages.WHICH_FILE.search(text)
    asks = languages.ASKS.search(text) is not None
    return Question(
        text, sought, own, _numbers(text), faults or bool(languages.ASKS_FAULT.search(text)),
        counts, follows, bool(languages.ENDS.search(text)), small,
        not languages.HERE.isdisjoint(spoken),
        asks, languages.ACTS.search(text) is not None and not asks,
        languages.REMOVES.search(text) is not None and not languages.PART_OF_FILE.search(text),
        languages.MOVES.search(text) is not None,
    )  # fmt: skip


@lru_cache(maxsize=8)
def parsed(text: str) -> Question:
    """Parse a question without earlier ones, cached (see `read`)."""
    return read(text)


def _numbers(text: str) -> tuple[int, int] | None:
    if found := languages.LINE.search(text):
        first = int(found[1] or found[3])
        last = int(found[2] or first)
        return (first, last) if 0 < first <= last else None
    if languages.LAST_LINE.search(text):
        return -1, -1
    return (1, 1) if languages.FIRST_LINE.search(text) else None
