"""The drafts of one decode: what they are, and what became of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .ngram_index import Match, NgramIndex, match_score
from .speculative_config import VERIFY_ROWS, VERIFY_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .draft_sources import Index
    from .scheduled_sequence import ScheduledSequence


COPY_S = 4e-6  # to write a token of a text as it would be copied, and to cut that into tokens


class Drafter:
    """What a decode drafts before its passes.

    Attributes:
        made, right: tokens that were drafted, and those of them that were chosen then.
        saved_s: seconds that this spared.
    """

    def __init__(self, sequence: ScheduledSequence, escaped: Callable[[], bool]) -> None:
        """`escaped` tells whether what comes next is a part of a JSON string."""
        self._sequence, self._escaped = sequence, escaped
        self._ngrams, self._length_policy, self._normalized = sequence.drafting
        self._ngrams.prefer(sequence.draft_sources)
        self._fresh = True
        self._began, self._ready_at = time.perf_counter(), -1.0
        most = sequence.speculative.draft_tokens
        self._measured = most == "auto"
        self._most = VERIFY_ROWS - 1 if most == "auto" else most
        self._match: Match | None = None
        self._where: NgramIndex | Index = self._ngrams  # what the place is one of
        self.made = self.right = 0
        self.saved_s = 0.0

    def after(self, known: int, room: int) -> list[int]:
        """What comes next, as far as it is worth a draft: `room` tokens at most.

        known: tokens that the pass computes in any case.
        """
        self._match = None
        if self._measured and self._length_policy.cheap:
            return []
        room = min(room, self._most, VERIFY_TOKENS - known)
        if room < 1:
            return []
        self._match = match = self._find()
        if match is None:
            return []
        count = self._length_policy.count(match.same, known, room) if self._measured else room
        return self._where.draft(match, count)

    def _find(self) -> Match | None:
        """The best place for what comes next: in the sequence, or in a copy of one of its texts."""
        tokens, match = self._sequence.tokens, self._ngrams.find()
        self._where = self._ngrams
        if not self._sequence.draft_sources:
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
        """Write the texts as they would be copied, once the decode has lasted as long as that."""
        if self._measured and time.perf_counter() < self._ready_at:
            return False
        texts = [tokens[first:end] for first, end in self._sequence.draft_sources]
        if self._measured and self._ready_at < 0:
            self._ready_at = self._began + COPY_S * self._normalized.missing(texts)
            return self._prepare(tokens)
        self._normalized.of(texts)
        self._fresh = False
        return True

    def refused(self) -> None:
        """What was drafted cannot come, so nothing is to be learned from it."""
        self._match = None

    def passed(self, known: int, drafts: int, seconds: float | None) -> None:
        """A pass has computed so many drafts behind `known` tokens.

        seconds: what it took; None: others had rows in it, so that says nothing.
        """
        self.made += drafts
        if seconds is None:
            return
        self._sequence.engine.pass_latency.several(known + drafts, seconds)
        self.saved_s += self._length_policy.saved(known, 0, seconds)

    def judge(self, number: int, right: bool) -> None:
        """Draft `number` of a pass was what is chosen, or was not."""
        if self._match is not None:
            self._length_policy.compare(self._match.same + number, right)
        if right:
            self.right += 1
            self.saved_s += self._sequence.engine.pass_latency.step_s

    def chosen(self, token: int) -> None:
        """This came where nothing had been drafted."""
        if self._match is not None:
            self._length_policy.compare(
                self._match.same, token == self._where.tokens[self._match.at]
            )
