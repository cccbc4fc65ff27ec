"""The `infill` sampler of llama.cpp: which of a few likely tokens may fill a gap.

Short fills are wanted, and none of them in doubt: where the end of the text is about as likely as
anything else it ends, tokens that begin alike count as one, and unlikely ones are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...tokens.tokenizer import Tokenizer

MOST = 256  # tokens that it may be asked about
END_FACTOR = 3.0  # for each token that is asked about
LEAST = 0.2  # probability of a token

Chances = list[tuple[int, float]]
"""Tokens and their probabilities."""


class FillChooser:
    """A filter of candidates for fill-in-the-middle, as llama.cpp's `infill` sampler."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes, self._hidden = tokenizer.token_bytes, tokenizer.vocabulary.hidden
        self._ends = tokenizer.stop_ids | tokenizer.fill_ends
        self._end = tokenizer.eot if tokenizer.eot is not None else tokenizer.eos

    def choose(self, given: Sequence[tuple[int, float]], *, free: bool = True) -> Chances:
        """Filter likely tokens, given in order of likelihood.

        free: whether the end token may be chosen though it is not among them.
        """
        ends = [(token, p) for token, p in given if token in self._ends]
        ending = sum(p for _, p in ends)
        if END_FACTOR * ending * len(given) > sum(p for _, p in given) - ending:
            return _shared(ends)
        kept = [one for one in self._merged(given) if one[0] in self._ends or one[1] >= LEAST]
        texts = sum(token not in self._ends for token, _ in kept)
        if not texts:
            end = [(self._end, 1.0)] if free and self._end is not None else []
            return end or _shared(ends or given[:1])
        least, own = 1.0 / (texts + 1), dict(given)
        left = [t for t, p in _shared(kept) if t in self._ends or p >= least]
        return _shared([(token, own[token]) for token in left])  # what was added decides no draw

    def _merged(self, given: Sequence[tuple[int, float]]) -> Chances:
        """Merge tokens of which one begins with the other, and add up their probabilities."""
        texts = [b"" if t in self._hidden else self._bytes(t) for t, _ in given]
        chances = [p for _, p in given]
        gone = [False] * len(given)
        for one, text in enumerate(texts):
            for other, longer in enumerate(texts):
                if gone[one]:
                    break
                if one == other or gone[other] or not text or not longer.startswith(text):
                    continue
                keeps, goes = (other, one) if chances[other] > chances[one] else (one, other)
                chances[keeps] += chances[goes]
                gone[goes] = True
        return [(t, chances[n]) for n, (t, _) in enumerate(given) if not gone[n]]


def _shared(given: Sequence[tuple[int, float]]) -> Chances:
    total = sum(p for _, p in given)
    return [(token, p / total) for token, p in given]


def drawn(chances: Chances, at: float) -> int:
    """Return the token at which the cumulative probability exceeds `at`, 0 to 1."""
    for token, p in chances:
        at -= p
        if at < 0:
            return token
    return chances[-1][0]
