"""Drafting state of one sequence, shared by all of its decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .copies import NormalizedSources
from .length import DraftLengthPolicy, HeadLengthPolicy
from .ngram_index import NgramIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine_drafting import EngineDrafting


class SequenceDrafting:
    """Drafting settings, indices and statistics of a sequence; `Drafter` is of one decode."""

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        """tokens: the sequence's own list; call `truncate` and `reset` when it changes."""
        self.engine = engine
        """Drafting state that all sequences of the engine share."""
        self.settings = engine.settings
        """Speculative decoding settings; by default the engine's."""
        self.sources: Sequence[tuple[int, int]] = ()
        """Ranges of positions, first and end, that are likely to be quoted."""
        self.reset(tokens)

    def reset(self, tokens: list[int]) -> None:
        """Set the list of tokens, and drop all indices and statistics."""
        self.ngrams = NgramIndex(tokens)
        """Index of n-grams, for drafts from the context."""
        self.lengths = DraftLengthPolicy(self.engine, tokens)
        """Lengths of drafts from the context."""
        self.copies = NormalizedSources(self.engine.tokenizer)
        """`sources`, converted to the forms in which they are copied."""
        self.head_lengths = HeadLengthPolicy(self.engine, self.lengths)
        """Lengths of drafts of the model's MTP layer."""

    def truncate(self, n: int) -> None:
        """Drop the tokens from `n` on from the index, before the sequence drops them."""
        self.ngrams.truncate(n)
