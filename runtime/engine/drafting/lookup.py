"""Drafts copied from the context: what followed an earlier occurrence of the last tokens."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .copies import NormalizedSources
from .length import DraftLengthPolicy
from .ngram_index import Match, NgramIndex, match_score
from .source import FIXED, NOTHING, Ask, DraftSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .config import SpeculativeConfig
    from .copies import Index
    from .engine_drafting import EngineDrafting

COPY_S = 4e-6  # to write a token of a text as it would be copied, and to cut that into tokens


class LookupSource(DraftSource):
    """Drafts from the sequence's own tokens, and from quoted texts in other forms.

    Attributes:
        ngrams: index of the sequence's tokens.
        copies: texts that are likely to be quoted, in the forms in which they are copied.
    """

    def __init__(self, engine: EngineDrafting, tokens: list[int]) -> None:
        super().__init__(engine, tokens)
        self.ngrams, self.copies = NgramIndex(tokens), NormalizedSources(engine.tokenizer)
        self._lengths = DraftLengthPolicy(engine, tokens)
        self._where: NgramIndex | Index = self.ngrams
        self._match: Match | None = None  # in `_where`
        self._count = 0

    def begin(self, settings: SpeculativeConfig, quoted: Sequence[tuple[int, int]]) -> bool:
        """See `DraftSource`."""
        self._texts = quoted
        self.ngrams.prefer(quoted)
        self._fresh, self._began, self._ready_at = True, time.perf_counter(), -1.0
        return True

    def offer(self, ask: Ask) -> float:
        """See `DraftSource`."""
        self._match = match = self._find(ask)
        if match is None:
            return NOTHING
        self._count = ask.room
        if not ask.measured:
            return FIXED
        self._count = self._lengths.count(match.same, ask.known, ask.room)
        return self._lengths.worth

    def draft(self, ask: Ask) -> tuple[list[int], float]:
        """See `DraftSource`."""
        assert self._match is not None, "it was offered"
        return self._where.draft(self._match, self._count), 0.0

    def compare(self, right: Sequence[bool]) -> None:
        """See `DraftSource`."""
        if self._match is not None:
            self._lengths.compare(self._match.same, right)

    def observe(self, token: int) -> None:
        """See `DraftSource`: acceptance is known also where nothing is drafted."""
        if self._match is not None:
            self.compare([token == self._where.tokens[self._match.at]])

    def truncate(self, n: int) -> None:
        """See `DraftSource`."""
        self.ngrams.truncate(n)

    def _find(self, ask: Ask) -> Match | None:
        """Find the best match for the last tokens: in the sequence, or in a converted text."""
        match = self.ngrams.find()
        self._where = self.ngrams
        if not self._texts:
            return match
        if self._fresh and not self._prepare(ask.measured):
            return match
        index = self.copies.index(ask.escaped())
        copy = index.find(self.tokens)
        if copy is None:
            return match
        if match is None or match_score(copy.same, True) >= self.ngrams.value(match):
            self._where, match = index, copy
        return match

    def _prepare(self, measured: bool) -> bool:
        """Convert the source texts, once the decode has lasted as long as that takes."""
        if measured and time.perf_counter() < self._ready_at:
            return False
        texts = [self.tokens[first:end] for first, end in self._texts]
        if measured and self._ready_at < 0:
            self._ready_at = self._began + COPY_S * self.copies.missing(texts)
            return self._prepare(measured)
        self.copies.of(texts)
        self._fresh = False
        return True
