"""What the decodes of one sequence share for their drafts, from one decode to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .copies import NormalizedSources
from .length import DraftLengthPolicy, HeadLengthPolicy
from .ngram_index import NgramIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine_drafting import EngineDrafting


class SequenceDrafting:
    """Settings, and what is known of a sequence's tokens and drafts; `Drafter` is of one decode."""

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        """tokens: the sequence's own list; call `truncate` and `reset` when it changes."""
        self.engine = engine
        """What all sequences of the engine share."""
        self.settings = engine.settings
        """How decodes need fewer passes than tokens; the engine's, if not set."""
        self.sources: Sequence[tuple[int, int]] = ()
        """Ranges of positions, first and end, that are likely to be quoted."""
        self.reset(tokens)

    def reset(self, tokens: list[int]) -> None:
        """Begin anew with these tokens."""
        self.ngrams = NgramIndex(tokens)
        """Where tokens stood before."""
        self.lengths = DraftLengthPolicy(self.engine, tokens)
        """How many tokens from the context are worth a draft."""
        self.copies = NormalizedSources(self.engine.tokenizer)
        """`sources` as they are written where they are copied to."""
        self.head_lengths = HeadLengthPolicy(self.engine, self.lengths)
        """How many tokens the model's own layer is to draft."""

    def truncate(self, n: int) -> None:
        """Forget the tokens from `n` on, before the sequence drops them."""
        self.ngrams.truncate(n)
