"""The drafter of one decode: asks the sources for drafts, and learns from verified ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....traces.records import DraftRecord
from .config import VERIFY_ROWS, VERIFY_TOKENS
from .source import NOTHING, Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ..passes.sequence import TokenSequence
    from .sequence_drafting import SequenceDrafting

CHEAP_S = 300e-6  # a step that takes less than this is no dearer than finding out what to draft


class Drafter:
    """The drafter of one decode: proposes drafts, and learns from those that passes verified.

    Attributes:
        wants_hidden: whether a source needs the hidden states of `observe_hidden`.
        records: drafted and accepted tokens, by source.
        saved_s: seconds that drafts have saved.
    """

    def __init__(
        self, sequence: TokenSequence, drafting: SequenceDrafting, escaped: Callable[[], bool]
    ) -> None:
        """escaped: returns whether the next token is inside a JSON string."""
        self._sequence, self._escaped, self._engine = sequence, escaped, drafting.engine
        most = drafting.settings.draft_tokens
        self._measured = most == "auto"
        self._most = VERIFY_ROWS - 1 if most == "auto" else most
        self._sources = drafting.begin()
        self.wants_hidden = any(one.wants_hidden for one in self._sources.values())
        self._asked, self._by = False, ""  # whether sources were asked; whose draft it is
        self.records = {name: DraftRecord(source=name) for name in self._sources}
        self.saved_s = 0.0

    @property
    def made(self) -> int:
        """Number of drafted tokens."""
        return sum(record.drafted for record in self.records.values())

    @property
    def right(self) -> int:
        """Number of accepted drafts."""
        return sum(record.accepted for record in self.records.values())

    def observe_hidden(self, tokens: int, hidden: np.ndarray) -> None:
        """Pass on the hidden state of the row that chose the last of `tokens` tokens."""
        for source in self._sources.values():
            source.observe_hidden(tokens, hidden)

    def propose(self, known: int, room: int) -> list[int]:
        """Propose at most `room` tokens that come next, as many as pay, of the best source.

        known: tokens that the pass computes in any case.
        """
        self._asked = False
        if self._measured and self._cheap:
            return []
        room = min(room, self._most, VERIFY_TOKENS - known)
        if room < 1:
            return []
        self._asked = True
        ask = Ask(self._sequence, known, room, self._measured, self._escaped)
        gains = {name: source.offer(ask) for name, source in self._sources.items()}
        for name in sorted(gains, key=gains.__getitem__, reverse=True):  # the first of equal ones
            if gains[name] <= NOTHING:
                break
            found, seconds = self._sources[name].draft(ask)
            self.saved_s -= seconds
            if found:
                self._by = name
                return found
        return []

    @property
    def _cheap(self) -> bool:
        """Whether decode steps are too short for drafting to pay."""
        known = self._engine.times(len(self._sequence.tokens))
        return (known.step_s if known.steps > 4 else 2 * known.least_s) < CHEAP_S

    def refused(self) -> None:
        """Discard a proposal that the constraint forbids, without learning from it."""
        self._asked = False

    def commit(
        self, known: int, drafts: Sequence[int], chosen: Sequence[int], seconds: float | None
    ) -> None:
        """Learn from a pass of `known` tokens and the drafts behind them.

        chosen: tokens chosen after the last known token. seconds: of the pass; None: other
        sequences had rows in it.
        """
        if not drafts:
            for source in self._sources.values() if self._asked else ():
                source.observe(chosen[0])
            return
        record, times = self.records[self._by], self._engine.times(len(self._sequence.tokens))
        record.drafted += len(drafts)
        record.passes += 1
        if seconds is not None:
            times.several(known + len(drafts), seconds)
            self.saved_s += times.saved(known, 0, seconds)
        right = [token == draft for draft, token in zip(drafts, chosen, strict=False)]
        self._sources[self._by].compare(right)
        record.accepted += sum(right)
        self.saved_s += sum(right) * times.step_s
