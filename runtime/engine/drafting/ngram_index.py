"""Prompt-lookup drafts: tokens that followed an earlier occurrence of the last ones.

An index of the runs of `WIDTH` tokens finds where the last tokens of a session occurred before. The
match with the most tokens in common is taken, and results of tools go before what the model wrote
itself. What followed there is the draft.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 3  # tokens in a row that must have stood there
PLACES = 12  # that are looked at, the latest first
LONG = 32  # tokens in common from which a place is not better for having more
SURE = 8  # tokens in common from which a tool's result goes before any other place
_BITS = 21  # of a token id in a key


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier occurrence of the last tokens."""

    at: int
    """Position of the token after it."""
    same: int
    """Number of equal tokens before both positions."""


class NgramIndex:
    """An n-gram index of a session's tokens, with n = `WIDTH`."""

    def __init__(self, tokens: list[int]) -> None:
        """tokens: the session's own list; call `truncate` before it gets shorter."""
        self.tokens = tokens
        self._latest: dict[int, int] = {}  # by the tokens before a position, the last such
        self._earlier: list[int] = [-1] * WIDTH  # by position, the one before it of that kind
        self._last = Match(0, 0)
        self._end = 0  # where `_last` was found
        self._starts: list[int] = []
        self._ends: list[int] = []

    def prefer(self, sources: Sequence[tuple[int, int]]) -> None:
        """Set the ranges (first and end, in order) whose tokens are likeliest to be repeated."""
        self._starts = [first for first, _ in sources]
        self._ends = [end for _, end in sources]

    def find(self) -> Match | None:
        """Find the best match for the last tokens, if there is any."""
        tokens = self.tokens
        end = len(tokens)
        if end <= WIDTH:
            return None
        self._read(end)
        best = self._continued(end)
        at, looked = self._latest.get(self._key(end), -1), 0
        value = -1 if best is None else self.value(best)
        while at >= 0 and looked < PLACES:
            match = Match(at, common(tokens, at, tokens, end))
            if (found := self.value(match)) > value:
                best, value = match, found
            at, looked = self._earlier[at], looked + 1
        if best is not None:
            self._last, self._end = best, end
        return best

    def draft(self, match: Match, count: int) -> list[int]:
        """Return `count` tokens that followed the match; a run that ends early is repeated."""
        found = self.tokens[match.at : match.at + count]
        period = len(found)
        while len(found) < count:
            found.append(found[len(found) - period])
        return found

    def truncate(self, n: int) -> None:
        """Remove the positions from `n` on from the index; call it before the tokens are cut."""
        for at in range(len(self._earlier) - 1, max(n, WIDTH) - 1, -1):
            earlier = self._earlier.pop()
            if earlier < 0:
                del self._latest[self._key(at)]
            else:
                self._latest[self._key(at)] = earlier
        if self._end > n:
            self._last, self._end = Match(0, 0), 0

    def _read(self, end: int) -> None:
        """Index the new positions; the end itself has nothing after it yet."""
        tokens, latest, earlier = self.tokens, self._latest, self._earlier
        start = len(earlier)
        if start >= end:
            return
        mask = (1 << _BITS * WIDTH) - 1
        key = self._key(start)
        for at in range(start, end):
            earlier.append(latest.get(key, -1))
            latest[key] = at
            key = (key << _BITS | tokens[at]) & mask

    def _key(self, at: int) -> int:
        """Pack the `WIDTH` tokens before a position into one number."""
        key = 0
        for token in self.tokens[at - WIDTH : at]:
            key = key << _BITS | token
        return key

    def _continued(self, end: int) -> Match | None:
        """Return the last match, advanced past the new tokens, if they continue it."""
        more = end - self._end
        at = self._last.at + more
        if not self._end or more > LONG or at >= end:
            return None
        if self.tokens[self._last.at : at] != self.tokens[self._end : end]:
            return None
        return Match(at, min(LONG, self._last.same + more))

    def value(self, match: Match) -> int:
        """Score a match: see `match_score`."""
        source = bisect_right(self._starts, match.at) - 1
        return match_score(match.same, source >= 0 and match.at < self._ends[source])


def match_score(same: int, inside: bool) -> int:
    """Score a match by its length, and by whether it is inside a tool's result."""
    return 2 * LONG * (2 * min(same, SURE) + inside) + same


def common(tokens: Sequence[int], at: int, others: Sequence[int], end: int) -> int:
    """Count the equal tokens before two positions, at most `LONG`; `WIDTH` are known to match."""
    most = min(LONG, at, end)
    same = WIDTH
    while same < most and tokens[at - 1 - same] == others[end - 1 - same]:
        same += 1
    return same
