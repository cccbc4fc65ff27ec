"""The guesses of one decode: what they are, and what became of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .lookup import Lookup, Place, worth
from .shortcuts import VERIFY_ROWS, VERIFY_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .copies import Index
    from .session import Session


COPY_S = 4e-6  # to write a token of a text as it would be copied, and to cut that into tokens


class Guesses:
    """What a decode guesses before its passes.

    Attributes:
        made, right: tokens that were guessed, and those of them that were chosen then.
        saved_s: seconds that this spared.
    """

    def __init__(self, session: Session, escaped: Callable[[], bool]) -> None:
        """`escaped` tells whether what comes next is a part of a JSON string."""
        self._session, self._escaped = session, escaped
        self._lookup, self._pace, self._copies = session.guessing
        self._lookup.prefer(session.sources)
        self._fresh = True
        self._began, self._ready_at = time.perf_counter(), -1.0
        most = session.shortcuts.speculate
        self._measured = most == "auto"
        self._most = VERIFY_ROWS - 1 if most == "auto" else most
        self._place: Place | None = None
        self._where: Lookup | Index = self._lookup  # what the place is one of
        self.made = self.right = 0
        self.saved_s = 0.0

    def after(self, known: int, room: int) -> list[int]:
        """What comes next, as far as it is worth a guess: `room` tokens at most.

        known: tokens that the pass computes in any case.
        """
        self._place = None
        if self._measured and self._pace.cheap:
            return []
        room = min(room, self._most, VERIFY_TOKENS - known)
        if room < 1:
            return []
        self._place = place = self._find()
        if place is None:
            return []
        count = self._pace.count(place.same, known, room) if self._measured else room
        return self._where.guess(place, count)

    def _find(self) -> Place | None:
        """The best place for what comes next: in the session, or in a copy of one of its texts."""
        tokens, place = self._session.tokens, self._lookup.find()
        self._where = self._lookup
        if not self._session.sources:
            return place
        if self._fresh and not self._prepare(tokens):
            return place
        index = self._copies.index(self._escaped())
        copy = index.find(tokens)
        if copy is None:
            return place
        if place is None or worth(copy.same, True) >= self._lookup.value(place):
            self._where, place = index, copy
        return place

    def _prepare(self, tokens: list[int]) -> bool:
        """Write the texts as they would be copied, once the decode has lasted as long as that."""
        if self._measured and time.perf_counter() < self._ready_at:
            return False
        texts = [tokens[first:end] for first, end in self._session.sources]
        if self._measured and self._ready_at < 0:
            self._ready_at = self._began + COPY_S * self._copies.missing(texts)
            return self._prepare(tokens)
        self._copies.of(texts)
        self._fresh = False
        return True

    def refused(self) -> None:
        """What was guessed cannot come, so nothing is to be learnt from it."""
        self._place = None

    def passed(self, known: int, guesses: int, seconds: float | None) -> None:
        """A pass has computed so many guesses behind `known` tokens.

        seconds: what it took; None: others had rows in it, so that says nothing.
        """
        self.made += guesses
        if seconds is None:
            return
        self._session.engine.times.several(known + guesses, seconds)
        self.saved_s += self._pace.saved(known, 0, seconds)

    def judge(self, number: int, right: bool) -> None:
        """Guess `number` of a pass was what is chosen, or was not."""
        if self._place is not None:
            self._pace.compare(self._place.same + number, right)
        if right:
            self.right += 1
            self.saved_s += self._session.engine.times.step_s

    def chosen(self, token: int) -> None:
        """This came where nothing had been guessed."""
        if self._place is not None:
            self._pace.compare(self._place.same, token == self._where.tokens[self._place.at])
