"""The interface of a draft source: one file each, listed in `config.SOURCES`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ..passes.sequence import TokenSequence
    from .config import SpeculativeConfig
    from .engine_drafting import EngineDrafting

NOTHING, FIXED = 1.0, inf  # gains: of no draft; of one whose length is a setting


@dataclass(frozen=True, slots=True)
class Ask:
    """What is known before a pass."""

    sequence: TokenSequence
    """The sequence that decodes."""
    known: int
    """Tokens that the pass computes in any case."""
    room: int
    """Maximum number of drafts."""
    measured: bool
    """Whether as many are drafted as pay; False: `room`."""
    escaped: Callable[[], bool]
    """Returns whether the next token is inside a JSON string."""


class DraftSource:
    """A source of drafts for one sequence. It may hold its tokens, but not the sequence itself."""

    wants_hidden = False
    """Whether `observe_hidden` is called with the hidden states that chose tokens."""

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        """tokens: the sequence's own list, which grows; `truncate` is called before it is cut."""
        self.engine, self.tokens = engine, tokens

    def begin(self, settings: SpeculativeConfig, quoted: Sequence[tuple[int, int]]) -> bool:
        """Prepare for a decode; return whether this source can draft in it.

        quoted: ranges of positions, first and end, that are likely to be quoted.
        """
        return True

    def offer(self, ask: Ask) -> float:
        """Return how many times as fast the best draft makes the pass (`best_length`).

        `NOTHING`: there is no draft that pays; `FIXED`: there is one, whose length is set.
        """
        raise NotImplementedError

    def draft(self, ask: Ask) -> tuple[list[int], float]:
        """Return the tokens that were offered, and the seconds that they took."""
        raise NotImplementedError

    def compare(self, right: Sequence[bool]) -> None:
        """Learn which tokens of the last draft were right, up to the first that was not."""

    def observe(self, token: int) -> None:
        """Learn which token was chosen after the last offer, when nothing was drafted."""

    def observe_hidden(self, tokens: int, hidden: np.ndarray) -> None:
        """Receive the hidden state of the row that chose the last of `tokens` tokens."""

    def truncate(self, n: int) -> None:
        """Drop what depends on the tokens from `n` on."""
