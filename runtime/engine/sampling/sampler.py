"""Sampling of tokens: penalties, filters of the ranking, one draw.

    logits + bias ─► penalties, DRY ─► what `order` says ─► one draw

The draw for a token depends on the seed and on the token's position alone. So the same seed gives
the same text, whatever came between two tokens, and each token takes exactly one draw. What depends
on the tokens before (penalties, DRY, Mirostat) follows those that were accepted, one by one: drafts
that turn out wrong leave no trace in it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .candidates import KeptTokens
from .dry_penalty import Breakers, DryPenalty, breakers_of
from .fill_sampling import MOST as FILLS
from .fill_sampling import FillChooser, drawn
from .settings import MOST_BIAS, ResolvedSampling, Sampling

if TYPE_CHECKING:
    from ...tokens.tokenizer import Tokenizer
    from .logit_ranking import LogitRanker

MOST_SURPRISE = 1e6  # bits, of Mirostat's limit


def uniform(seed: int, position: int, which: int = 0) -> float:
    """Return the random number in [0, 1) for a seed and a position, by Philox 4x64.

    which: of the four that there are for a position.
    """
    bits = np.random.Philox(key=seed, counter=position).random_raw(which + 1)[which]
    return (int(bits) >> 11) * 2.0**-53


class Filter(NamedTuple):
    """A step of `Sampling.order`, which drops candidate tokens or weighs them."""

    is_on: Callable[[ResolvedSampling], bool]
    """Return whether the settings turn it on."""
    apply: Callable[[KeptTokens, ResolvedSampling, int], None]
    """Apply it to the candidates that earlier steps have left, for a position."""


FILTERS = {
    "temperature": Filter(
        lambda s: True,
        lambda kept, s, _: kept.temperature(s.temperature, s.spread, s.dynatemp_exponent),
    ),
    "top_k": Filter(lambda s: s.top_k > 0, lambda kept, s, _: kept.top_k(s.top_k)),
    "top_p": Filter(lambda s: s.top_p < 1, lambda kept, s, _: kept.top_p(s.top_p)),
    "min_p": Filter(lambda s: s.min_p > 0, lambda kept, s, _: kept.min_p(s.min_p)),
    "typ_p": Filter(lambda s: s.typical_p < 1, lambda kept, s, _: kept.typ_p(s.typical_p)),
    "top_n_sigma": Filter(
        lambda s: s.top_n_sigma > 0, lambda kept, s, _: kept.top_n_sigma(s.top_n_sigma)
    ),
    "xtc": Filter(
        lambda s: s.xtc_probability > 0,
        lambda kept, s, position: kept.xtc(
            s.xtc_probability, s.xtc_threshold, uniform(s.seed, position, 1)
        ),
    ),
}
"""Filters by their names in `Sampling.order`; `infill` is none: it chooses from what they leave."""


class Sampler:
    """The sampler of one turn of a model: picks its tokens.

    Args:
        position: of the first token to be picked, counted from the beginning of the session.
        constraint: of the turn; where its ``calling`` is true, penalties and DRY rest.
        tokenizer: of the model, for ``infill`` and DRY's sequence breakers.
        before: the tokens of the session so far, at which DRY looks.
    """

    def __init__(
        self,
        settings: Sampling,
        ranking: LogitRanker,
        position: int = 0,
        constraint: Any = None,
        tokenizer: Tokenizer | None = None,
        before: Sequence[int] = (),
    ) -> None:
        self.settings = settings.filled()
        self.position = position
        self._ranking = ranking
        self._constraint = constraint
        s = self.settings
        settings.check(ranking.n_vocab)
        self._biased = np.fromiter(s.logit_bias, np.int64)
        self._bias = np.maximum(np.fromiter(s.logit_bias.values(), np.float32), -MOST_BIAS)
        self._written: deque[int] = deque()
        self._times: Counter[int] = Counter()
        self._dry: DryPenalty | None = None
        if s.dry:
            texts = s.dry_sequence_breakers if tokenizer is not None else ()
            found = breakers_of(tokenizer, texts) if tokenizer and texts else None
            self._dry = DryPenalty(s, before, found or Breakers({}, ranking.n_vocab))
        fills = tokenizer is not None and "infill" in s.order and not s.mirostat
        self._fills = FillChooser(tokenizer) if tokenizer and fills else None
        steps = [FILTERS[name] for name in s.order if name in FILTERS and FILTERS[name].is_on(s)]
        # A fixed temperature that comes first is the one to look with.
        fixed = s.order[0] == "temperature" and not s.spread
        self._begins = s.temperature if fixed else 1.0
        self._steps = [step.apply for step in (steps[1:] if fixed else steps)]
        # Mirostat: bits of surprise that a token may have; position, token and bits of the pick.
        self._limit = 2.0 * s.mirostat_tau
        self._surprise: tuple[int, int, float] | None = None

    @property
    def _calling(self) -> bool:
        return getattr(self._constraint, "calling", False)

    def pick(self, logits: np.ndarray, mask: np.ndarray | None) -> int:
        """Pick the token for the current position. logits: float32 [n_vocab], not changed.

        Changes no lasting state: `accept` moves on to the next position.

        Args:
            logits: after the token before.
            mask: uint32 bits of the allowed tokens, or None.

        Raises:
            EngineError: no token is allowed, or the logits are not finite.
        """
        s, ranking = self.settings, self._ranking
        self._load(logits, mask)
        if s.temperature <= 0:
            ranking.look(1.0)
            return ranking.largest
        kept = self.kept()
        at = uniform(s.seed, self.position)
        if self._fills is not None:
            chances = self._fills.choose(kept.likeliest(FILLS), free=mask is None)
            return drawn(chances, at)
        token = kept.at(at)
        if s.mirostat:
            self._note(token, kept)
        return token

    def chances(
        self, logits: np.ndarray, mask: np.ndarray | None, token: int, most: int
    ) -> tuple[float, list[tuple[int, float]]]:
        """Return a token's probability in `pick`, and the likeliest tokens, `most` at most.

        token: one that `pick` may take.
        """
        ranking = self._ranking
        self._load(logits, mask)
        if self.settings.temperature <= 0:
            ranking.look(1.0)
            largest = ranking.largest
            return float(token == largest), [(largest, 1.0)][:most]
        kept = self.kept()
        if self._fills is not None:
            left = self._fills.choose(kept.likeliest(FILLS), free=mask is None)
            left.sort(key=lambda one: -one[1])
            return dict(left).get(token, 0.0), left[:most]
        if self.settings.mirostat:
            self._note(token, kept)
        return kept.share(token), kept.likeliest(most)

    def _load(self, logits: np.ndarray, mask: np.ndarray | None) -> None:
        self._ranking.load(logits, mask)
        self._change(self._ranking.logits)

    def kept(self) -> KeptTokens:
        """Filter the loaded logits by the settings; return the candidates to draw from."""
        s, ranking = self.settings, self._ranking
        if s.mirostat:
            ranking.look(s.temperature)
            kept = KeptTokens(ranking, s.temperature)
            if s.mirostat == 1:
                kept.mirostat_1(self._limit, ranking.n_vocab)
            else:
                kept.mirostat_2(self._limit)
            return kept
        ranking.look(self._begins)
        kept = KeptTokens(ranking, self._begins, s.min_keep)
        for apply in self._steps:
            apply(kept, s, self.position)
        return kept

    def _note(self, token: int, kept: KeptTokens) -> None:
        """Record how surprising a token was, for `accept`; a forced one has no surprise."""
        self._surprise = None
        if self._ranking.all.rank > 1:
            bits = -math.log2(max(kept.share(token), 1e-300))
            self._surprise = self.position, token, bits

    def accept(self, token: int) -> None:
        """Advance past `token`, whether it was picked or not."""
        s = self.settings
        if self._surprise is not None and self._surprise[:2] == (self.position, token):
            limit = self._limit - s.mirostat_eta * (self._surprise[2] - s.mirostat_tau)
            self._limit = min(max(limit, -MOST_SURPRISE), MOST_SURPRISE)
        self.position += 1
        if self._dry is not None:
            self._dry.accept(token)
        if not s.penalized or s.penalty_last == 0 or self._calling:
            return
        self._written.append(token)
        self._times[token] += 1
        if 0 < s.penalty_last < len(self._written):
            gone = self._written.popleft()
            self._times[gone] -= 1
            if not self._times[gone]:
                del self._times[gone]

    def _change(self, logits: np.ndarray) -> None:
        """Apply the bias, then the penalties for what was written."""
        s = self.settings
        if len(self._biased):
            logits[self._biased] += self._bias
        if self._times and not self._calling:
            ids = np.fromiter(self._times, np.int64)
            times = np.fromiter(self._times.values(), np.float32)
            x = logits[ids]
            x = np.where(x > 0, x / s.repeat_penalty, x * s.repeat_penalty)
            logits[ids] = x - s.presence_penalty - s.frequency_penalty * times
        if self._dry is not None and not self._calling:
            self._dry.change(logits)
