"""DRY ("don't repeat yourself"): penalizes tokens that would continue a repetition.

    penalty = multiplier * base ^ (length of what is repeated - allowed length)

By p-e-w, text-generation-webui's pull request 5677; what counts as repeated, and as a sequence
breaker, is as in llama.cpp (9702). No repetition extends over a breaker, so that the form of a
text, such as the names in a conversation, may come again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    from ...tokens.tokenizer import Tokenizer
    from .settings import ResolvedSampling

MAX_BYTES = 40  # of a breaker that count
MAX_TAIL = 20  # tokens after the one that a breaker begins in
LONGEST = 1024  # tokens that count of a repetition, beyond the allowed ones
MOST_PENALTY = 1e30  # as good as infinite
_KEPT = 16  # sets of breakers that are remembered for a vocabulary
_MOST = 88.7228391  # logarithm of the largest float32: no penalty is larger


class Breakers:
    """The sequence breakers of DRY, by the tokens that they begin with.

    Args:
        tails: by token, what has to follow for the breaker to be whole: nothing, where it is all
            in the token.
        n_vocab: size of the vocabulary.
    """

    def __init__(self, tails: dict[int, set[tuple[int, ...]]], n_vocab: int) -> None:
        self.tails = tails
        self.whole = {token for token, found in tails.items() if () in found}
        self._heads = np.zeros(n_vocab, bool)
        self._heads[list(tails)] = True

    def since(self, tokens: np.ndarray) -> int:
        """Count the tokens at the end since the last breaker."""
        for at in np.flatnonzero(self._heads[tokens])[::-1].tolist():
            rest = tuple(tokens[at + 1 : at + 1 + MAX_TAIL].tolist())
            lengths = [len(t) for t in self.tails[int(tokens[at])] if rest[: len(t)] == t]
            if lengths:
                return len(tokens) - at - 1 - max(lengths)
        return len(tokens)


class _VocabularyBytes:
    """All tokens' bytes in a row, to be searched at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
        self.ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        self.starts = self.ends - [len(text) for text in texts]
        self.array = np.frombuffer(b"".join(texts), np.uint8)
        self.known: OrderedDict[tuple[str, ...], Breakers] = OrderedDict()

    def containing(self, text: bytes) -> set[int]:
        """Return the tokens that contain a text."""
        fit = np.ones(max(0, len(self.array) - len(text) + 1), bool)
        for at, byte in enumerate(text):
            fit &= self.array[at : at + len(fit)] == byte
        begins = np.flatnonzero(fit)
        tokens = np.searchsorted(self.ends, begins, "right")
        return set(tokens[begins + len(text) <= self.ends[tokens]].tolist())

    def ending(self, text: bytes) -> set[int]:
        """Return the tokens that end with a text."""
        fit = self.ends - self.starts >= len(text)
        for back, byte in enumerate(reversed(text), 1):
            fit[fit] = self.array[self.ends[fit] - back] == byte
        return set(np.flatnonzero(fit).tolist())


_vocabularies: WeakKeyDictionary[Tokenizer, _VocabularyBytes] = WeakKeyDictionary()
_lock = Lock()


def breakers_of(tokenizer: Tokenizer, texts: Sequence[str]) -> Breakers:
    """Find the tokens that each of `texts` may begin in, and those that have to follow."""
    key = tuple(texts)
    with _lock:
        if tokenizer not in _vocabularies:
            _vocabularies[tokenizer] = _VocabularyBytes(tokenizer)
        vocabulary = _vocabularies[tokenizer]
        if key in vocabulary.known:
            vocabulary.known.move_to_end(key)
            return vocabulary.known[key]
        tails: dict[int, set[tuple[int, ...]]] = {}
        for text in texts:
            raw = text.encode("utf-8", "replace")[:MAX_BYTES]
            whole = vocabulary.containing(raw)
            for token in whole:
                tails.setdefault(token, set()).add(())
            for cut in range(1, len(raw)):
                rest = raw[cut:].decode("utf-8", "ignore")
                if rest.encode() != raw[cut:]:
                    continue  # within a character
                tail = tuple(tokenizer.encode(rest)[:MAX_TAIL])
                for token in vocabulary.ending(raw[:cut]) - whole:
                    tails.setdefault(token, set()).add(tail)
        found = vocabulary.known[key] = Breakers(tails, tokenizer.n_vocab)
        if len(vocabulary.known) > _KEPT:
            vocabulary.known.popitem(last=False)
    return found


class DryPenalty:
    """The DRY penalties for the next token, from the tokens so far.

    Args:
        before: the tokens so far.
        breakers: where a repetition ends.
    """

    def __init__(
        self, settings: ResolvedSampling, before: Sequence[int], breakers: Breakers
    ) -> None:
        self._multiplier, self._base = settings.dry_multiplier, settings.dry_base
        self._allowed, self._last = settings.dry_allowed_length, settings.dry_penalty_last_n
        self._breakers = breakers
        given = before if self._last < 0 else before[-self._last :]
        self._tokens = np.empty(len(given) + 1024, np.int64)
        self._tokens[: len(given)] = given
        self._count = len(given)
        # A longer repetition costs no more: what a float32 holds is the most in any case.
        most = int(_MOST / math.log(self._base)) if self._base > 1 else LONGEST
        self._longest = self._allowed + min(most or LONGEST, LONGEST)

    def accept(self, token: int) -> None:
        """Record the next token."""
        if self._count == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.empty(self._count, np.int64)])
        self._tokens[self._count] = token
        self._count += 1

    def lengths(self) -> dict[int, int]:
        """Return the length of the longest repetition that each token would continue, by token."""
        begin = 0 if self._last < 0 else max(0, self._count - self._last)
        tokens = self._tokens[begin : self._count]
        count, allowed = len(tokens), self._allowed
        if count <= allowed:
            return {}
        limit = self._breakers.since(tokens)
        if limit < allowed:
            return {}
        limit = min(limit, self._longest)
        # Ends of what may be a repetition, of which fewer are left for each token further back.
        found: dict[int, int] = dict.fromkeys(tokens[1:].tolist(), 0) if not allowed else {}
        ends, length = np.arange(count - 1), 0
        while length < limit:
            ends = ends[ends >= length]
            ends = ends[tokens[ends - length] == tokens[count - 1 - length]]
            if not len(ends):
                break
            length += 1
            if length >= allowed:
                found.update(dict.fromkeys(tokens[ends + 1].tolist(), length))
        return {token: n for token, n in found.items() if token not in self._breakers.whole}

    def change(self, logits: np.ndarray) -> None:
        """Subtract the penalties from the logits: float32 [n_vocab]."""
        if found := self.lengths():
            ids = np.fromiter(found, np.int64)
            over = np.fromiter(found.values(), np.float64) - self._allowed
            with np.errstate(over="ignore"):
                penalties = self._multiplier * self._base**over
            logits[ids] -= np.minimum(penalties, MOST_PENALTY).astype(np.float32)
