"""Drafts of the model's MTP layer (`head.py`), which predicts one token further than the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..passes.sequence import Status
from .head import MOST
from .length import DraftLengthPolicy, HeadLengthPolicy
from .source import FIXED, NOTHING, Ask, DraftSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from .config import SpeculativeConfig
    from .engine_drafting import EngineDrafting


class MTPSource(DraftSource):
    """Drafts with the model's MTP layer, if it was loaded."""

    wants_hidden = True

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        super().__init__(engine, tokens)
        self._lengths = HeadLengthPolicy(engine, DraftLengthPolicy(engine, tokens))
        self._count = 0

    def begin(self, settings: SpeculativeConfig, quoted: Sequence[tuple[int, int]]) -> bool:
        """See `DraftSource`."""
        self._behind: tuple[int, np.ndarray] | None = None
        self._head = self.engine.head(settings.draft_vocabulary)
        return self._head is not None

    def observe_hidden(self, tokens: int, hidden: np.ndarray) -> None:
        """See `DraftSource`."""
        self._behind = tokens, hidden

    def offer(self, ask: Ask) -> float:
        """See `DraftSource`."""
        head, self._count = self._head, min(ask.room, MOST)
        if head is None or self._behind is None or self._behind[0] != len(self.tokens):
            return NOTHING  # a token was forced since
        if not ask.measured:
            return FIXED
        self._count = self._lengths.count(ask.known, self._count, head.draft_s, head.read_bytes)
        return self._lengths.worth

    def draft(self, ask: Ask) -> tuple[list[int], float]:
        """See `DraftSource`."""
        engine, sequence = self.engine, ask.sequence
        assert self._head is not None, "it was offered"
        assert self._behind is not None, "it was offered"
        with engine.lock:
            sequence.computing = True  # before it is looked whether it was closed: its pages stay
            try:
                if sequence.status is Status.STOPPED:
                    return [], 0.0
                return self._head.draft(sequence, self._behind[1], self._count)
            finally:
                engine.scheduler.computed(sequence)

    def compare(self, right: Sequence[bool]) -> None:
        """See `DraftSource`."""
        self._lengths.compare(right)
