"""The drafter of one decode: proposes drafts, and learns from verified ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ....traces.records import DraftRecord
from ..passes.sequence import Status
from .config import VERIFY_ROWS, VERIFY_TOKENS
from .head import MOST
from .ngram_index import Match, NgramIndex, match_score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ..passes.sequence import TokenSequence
    from .copies import Index
    from .head import DraftHead
    from .sequence_drafting import SequenceDrafting


CHEAP_S = 300e-6  # a step that takes less than this is no dearer than finding out what to draft
COPY_S = 4e-6  # to write a token of a text as it would be copied, and to cut that into tokens


class Drafter:
    """The drafter of one decode: proposes drafts, and learns from those that passes verified.

    Attributes:
        records: drafted and accepted tokens, by source.
        saved_s: seconds that drafts have saved.
        head: the model's MTP layer, if it may draft; it needs the hidden states of `behind`.
        match: what the last proposal was copied from; None: nothing, or `head` made it.
    """

    def __init__(
        self, sequence: TokenSequence, drafting: SequenceDrafting, escaped: Callable[[], bool]
    ) -> None:
        """escaped: returns whether the next token is inside a JSON string."""
        self._sequence, self._escaped = sequence, escaped
        self._drafting, engine, config = drafting, drafting.engine, drafting.settings
        self._ngrams = drafting.ngrams
        self._length_policy, self._head_policy = drafting.lengths, drafting.head_lengths
        self._normalized = drafting.copies
        self._ngrams.prefer(drafting.sources)
        self._fresh = True
        self._began, self._ready_at = time.perf_counter(), -1.0
        self._latency = engine.latency
        self._lookup, most = config.draft_source != "mtp", config.draft_tokens
        self.head = engine.head(config.draft_vocabulary) if config.mtp else None
        self._behind: tuple[int, np.ndarray] | None = None
        self._by_head = False
        self._measured = most == "auto"
        self._most = VERIFY_ROWS - 1 if most == "auto" else most
        self.match: Match | None = None
        self._where: NgramIndex | Index = self._ngrams  # what the place is one of
        self.records = {name: DraftRecord(source=name) for name in ("lookup", "mtp")}
        self.saved_s = 0.0

    @property
    def made(self) -> int:
        """Number of drafted tokens."""
        return sum(record.drafted for record in self.records.values())

    @property
    def right(self) -> int:
        """Number of accepted drafts."""
        return sum(record.accepted for record in self.records.values())

    def behind(self, tokens: int, hidden: np.ndarray) -> None:
        """Record the hidden state of the row that chose the last of `tokens` tokens."""
        self._behind = tokens, hidden

    def propose(self, known: int, room: int) -> list[int]:
        """Propose at most `room` tokens that come next, as many as pay.

        known: tokens that the pass computes in any case.
        """
        self.match, self._by_head = None, False
        if self._measured and self._cheap:
            return []
        room = min(room, self._most, VERIFY_TOKENS - known)
        if room < 1:
            return []
        found, worth = list[int](), 1.0
        if self._lookup and (match := self._find()) is not None:
            self.match, policy = match, self._length_policy
            count = policy.count(match.same, known, room) if self._measured else room
            found, worth = self._where.draft(match, count), policy.worth
        if self.head is None or (found and not self._measured):
            return found
        return self._ask_head(self.head, known, min(room, MOST), worth if found else 1.0) or found

    @property
    def _cheap(self) -> bool:
        """Whether decode steps are too short for drafting to pay."""
        known = self._latency
        if known.steps > 4:
            return known.step_s < CHEAP_S
        return 2 * self._length_policy.times.least_s < CHEAP_S

    def _ask_head(self, head: DraftHead, known: int, room: int, worth: float) -> list[int]:
        """Draft with the model's MTP layer, if that gains more than `worth`."""
        sequence, policy = self._sequence, self._head_policy
        if self._behind is None or self._behind[0] != len(sequence.tokens):
            return []  # a token was forced since
        count = room
        if self._measured:
            count = policy.count(known, room, head.draft_s, head.read_bytes)
            if not count or policy.worth <= worth:
                return []
        engine = self._drafting.engine
        with engine.lock:
            sequence.computing = True  # before it is looked whether it was closed: its pages stay
            try:
                if sequence.status is Status.STOPPED:
                    return []
                found, seconds = head.draft(sequence, self._behind[1], count)
            finally:
                engine.scheduler.computed(sequence)
        self.saved_s -= seconds
        if found:
            self.match, self._by_head = None, True
        return found

    def _find(self) -> Match | None:
        """Find the best match for the last tokens: in the sequence, or in a converted text."""
        tokens, match = self._sequence.tokens, self._ngrams.find()
        self._where = self._ngrams
        if not self._drafting.sources:
            return match
        if self._fresh and not self._prepare(tokens):
            return match
        index = self._normalized.index(self._escaped())
        copy = index.find(tokens)
        if copy is None:
            return match
        if match is None or match_score(copy.same, True) >= self._ngrams.value(match):
            self._where, match = index, copy
        return match

    def _prepare(self, tokens: list[int]) -> bool:
        """Convert the source texts, once the decode has lasted as long as that takes."""
        if self._measured and time.perf_counter() < self._ready_at:
            return False
        texts = [tokens[first:end] for first, end in self._drafting.sources]
        if self._measured and self._ready_at < 0:
            self._ready_at = self._began + COPY_S * self._normalized.missing(texts)
            return self._prepare(tokens)
        self._normalized.of(texts)
        self._fresh = False
        return True

    def refused(self) -> None:
        """Discard a proposal that the constraint forbids, without learning from it."""
        self.match = None

    def commit(
        self, known: int, drafts: Sequence[int], chosen: Sequence[int], seconds: float | None
    ) -> None:
        """Learn from a pass of `known` tokens and the drafts behind them.

        chosen: tokens chosen after the last known token. seconds: of the pass; None: other
        sequences had rows in it.
        """
        match = self.match
        if not drafts:
            if match is not None:
                right = chosen[0] == self._where.tokens[match.at]
                self._length_policy.compare(match.same, [right])
            return
        record = self.records["mtp" if self._by_head else "lookup"]
        record.drafted += len(drafts)
        record.passes += 1
        if seconds is not None:
            self._latency.several(known + len(drafts), seconds)
            self.saved_s += self._length_policy.saved(known, 0, seconds)
        right = [token == draft for draft, token in zip(drafts, chosen, strict=False)]
        if self._by_head:
            self._head_policy.compare(right)
        elif match is not None:
            self._length_policy.compare(match.same, right)
        record.accepted += sum(right)
        self.saved_s += sum(right) * self._latency.step_s
