"""Sampling filters, such as top-k and top-p: which of the ranked tokens a draw is from.

Whatever drops tokens drops them from one end of the ranking or the other. So what is left is always
a stretch of it, and no more than its two ends have to be found.

The rules are those of llama.cpp's samplers, which clients of llama-server know. Where they come
from:

- top-p: Holtzman et al. 2020, arXiv 1904.09751
- min-p: Nguyen et al. 2024, arXiv 2407.01082
- typical-p: Meister et al. 2023, arXiv 2202.00666
- top-n-sigma: Tang et al. 2024, arXiv 2411.07641
- XTC: text-generation-webui's pull request 6335
- dynamic temperature: llama.cpp's pull request 4972
- Mirostat, 1 and 2: Basu et al. 2021, arXiv 2007.14966
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .logit_ranking import LogitRanker, RankedToken, RankLevel

FORBIDDEN = 1e29  # gap from which on a token counts in no mean: a bias has forbidden it
MIROSTAT_TOKENS = 100  # by which Mirostat 1 estimates how the ranking falls off
_MOST_GAP = 3e38  # of a float32
_LEAST_TEMPERATURE = 1e-30
_NO_WEIGHT = np.float32(1e3)  # exp(-it) is 0
_NONE = np.zeros(0)


class KeptTokens:
    """The candidates that filters have left: ranks `first` + 1 to `last`; all tokens at first.

    Args:
        ranking: of the logits, after `LogitRanker.look`.
        temperature: that of this `look`.
        least: tokens that top-p, min-p, typical-p and XTC leave at least, if there are so many.

    Attributes:
        first: how many likelier tokens are dropped.
        last: rank of the least likely one that is kept.
        mass: weight of those that are kept, over that of the likeliest one of them.
    """

    __slots__ = (
        *("_gap", "_least", "_ranking", "_size", "_sums", "_temperature", "_top"),
        *("first", "last", "mass"),
    )

    def __init__(self, ranking: LogitRanker, temperature: float = 1.0, least: int = 0) -> None:
        self._ranking, self._least = ranking, least
        self._temperature = max(temperature, _LEAST_TEMPERATURE)
        everything = ranking.all
        self.first, self.last, self.mass = 0, everything.rank, everything.mass
        self._top, self._gap = 0.0, math.inf  # of the likeliest and the least likely one
        self._size = everything.rank  # those that count for the highest entropy
        # Weights up to each one, once likelier ones are dropped: they may have had nearly all.
        self._sums = _NONE

    @property
    def count(self) -> int:
        """Number of tokens that remain."""
        return self.last - self.first

    def share(self, token: int) -> float:
        """Return the probability of one of the remaining tokens."""
        if not self.first:
            return min(1.0, self._ranking.weight(token) / self.mass)
        gap = self._ranking.gap(token) - self._top
        return min(1.0, math.exp(-gap / self._temperature) / self.mass)

    def at(self, share: float) -> int:
        """Return the token at which the cumulative probability exceeds a share, 0 to 1."""
        ranking = self._ranking
        if self.first:
            place = int(np.searchsorted(self._sums, share * self.mass, "right"))
            return ranking.at_rank(self.first + min(place, self.count - 1) + 1).token
        place = ranking.at_mass(share * self.mass, past=True)
        # By rounding it may lie just past the last one that is kept.
        return place.token if place.rank <= self.last else ranking.at_rank(self.last).token

    def likeliest(self, most: int) -> list[tuple[int, float]]:
        """Return the `most` likeliest tokens at most, each with its probability."""
        ranks = range(self.first + 1, min(self.last, self.first + most) + 1)
        tokens = (self._ranking.at_rank(rank).token for rank in ranks)
        return [(token, self.share(token)) for token in tokens]

    def _end(self, last: RankedToken | RankLevel) -> None:
        """Drop the tokens after this rank."""
        if last.rank >= self.last:
            return
        self.last, self._gap, self.mass = last.rank, last.gap, last.mass
        if self.first:
            self._sums = self._sums[: self.count]
            self.mass = float(self._sums[-1])
        self._size = self.count

    def _begin(self, first: int) -> None:
        """Drop the `first` likeliest of all tokens."""
        if first > self.first:
            self._size -= first - self.first
            self.first, self._top = first, self._ranking.at_rank(first + 1).gap
            self._weigh()

    def _weigh(self) -> None:
        gaps = self._gaps().astype(np.float64)
        self._sums = np.cumsum(np.exp((self._top - gaps) / self._temperature))
        self.mass = float(self._sums[-1])

    def _end_below(self, last: RankedToken | RankLevel) -> None:
        """Drop the tokens after this rank, but leave the minimum number."""
        if last.rank - self.first < self._least:
            last = self._ranking.at_rank(min(self.first + self._least, self.last))
        self._end(last)
        self._size = self.count

    def top_k(self, k: int) -> None:
        """Keep the `k` likeliest tokens."""
        if k < self.count:
            self._end(self._ranking.at_rank(self.first + k))
        self._size = min(self._size, k)

    def top_p(self, share: float) -> None:
        """Keep the fewest likeliest tokens that have `share` of the probability."""
        if self.first:
            place = int(np.searchsorted(self._sums, share * self.mass))
            self._end_below(self._ranking.at_rank(min(self.first + place + 1, self.last)))
        else:
            self._end_below(self._ranking.at_mass(share * self.mass))

    def min_p(self, share: float) -> None:
        """Drop tokens that are less likely than `share` times the likeliest one."""
        gap = self._top - self._temperature * math.log(share)
        if gap < self._gap:
            self._end_below(self._ranking.within(gap))

    def top_n_sigma(self, deviations: float) -> None:
        """Keep tokens whose logit is at most `deviations` standard deviations below the highest."""
        gaps = self._gaps()
        gaps = gaps[gaps < FORBIDDEN]
        if not len(gaps):
            return
        gap = self._top + deviations * float(gaps.std(dtype=np.float64))
        size = self._size
        if gap < min(self._gap, FORBIDDEN):
            self._end(self._ranking.within(gap))
        self._size = size  # llama.cpp has their logits at -inf then, and still counts them

    def typ_p(self, share: float) -> None:
        """Keep the tokens whose surprise is nearest to the entropy, up to `share` of the mass."""
        gaps, entropy = np.sort(self._gaps()).astype(np.float64), self._entropy()
        weights = np.exp((self._top - gaps) / self._temperature)
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        mass = float(sums[-1])
        surprises = (gaps - self._top) / self._temperature + math.log(mass)
        # Only those that may be among them need an order: of so many ones around the entropy.
        reach, least = 0.25, min(self._least, len(gaps))
        while True:
            low, high = np.searchsorted(surprises, (entropy - reach, entropy + reach)).tolist()
            enough = sums[high] - sums[low] > share * mass and high - low >= least
            if enough or high - low == len(gaps):
                break
            reach *= 2
        at = np.arange(low, high)
        far = np.abs(surprises[low:high] - entropy)
        # Of two that are as near the likelier one; of equal ones the one that is next in rank.
        middle = int(np.searchsorted(surprises, entropy))
        order = np.lexsort((np.where(at < middle, middle - at, at), at >= middle, far))
        count = int(np.searchsorted(np.cumsum(weights[at[order]]), share * mass, "right")) + 1
        kept = at[order][: max(count, least)]
        first, until = self.first, self.first + int(kept.max()) + 1
        if until < self.last:
            self._end(self._ranking.at_rank(until))
        self._begin(first + int(kept.min()))

    def xtc(self, probability: float, threshold: float, drawn: float) -> None:
        """Drop the tokens of at least `threshold` probability, except the least likely of them.

        drawn: 0 to 1; over `probability`, all stay.
        """
        if drawn > probability or threshold > 0.5 or self.count < 2:
            return
        rank, least = self.last, threshold * self.mass
        gap = self._top - self._temperature * math.log(least) if least > 0 else math.inf
        if gap < self._top:
            return
        if gap < self._gap:
            rank = min(self._ranking.within(gap).rank, rank)
        above = rank - self.first - 1
        if above > 0 and self.count - above >= self._least:
            self._begin(self.first + above)

    def temperature(self, temperature: float, spread: float = 0.0, exponent: float = 1.0) -> None:
        """Set the temperature, and weigh the tokens with it.

        With a spread it is `temperature` - `spread` to `temperature` + `spread`, as the tokens'
        entropy is from 0 to the highest that so many could have.
        """
        if spread > 0 and self.count > 1:
            entropy = min(max(0.0, self._entropy() / math.log(self._size)), 1.0)
            low, high = max(0.0, temperature - spread), temperature + spread
            temperature = low + (high - low) * entropy**exponent
        ranking, self._temperature = self._ranking, max(temperature, _LEAST_TEMPERATURE)
        ranking.look(self._temperature)
        if self.first:
            self._weigh()
        else:
            self.mass = ranking.at_rank(self.last).mass

    def mirostat_2(self, most: float) -> None:
        """Drop tokens whose surprise is over `most` bits; the likeliest one stays."""
        gap = self._temperature * (most * math.log(2) - math.log(self.mass))
        if gap < 0:
            self._end(self._ranking.at_rank(1))
        elif gap < _MOST_GAP:
            self._end(self._ranking.within(gap))

    def mirostat_1(self, most: float, n_vocab: int) -> None:
        """Keep the k likeliest tokens, with k for a surprise of about `most` bits by Zipf's law."""
        if self.count < 2:
            return
        likely = self._ranking.at_rank(min(MIROSTAT_TOKENS, self.last))
        gaps = np.sort(self._ranking.gaps(0, likely.rank, likely.gap)).astype(np.float64)
        gaps /= self._temperature
        ranks = np.arange(1, len(gaps) + 1)
        steps = np.log(ranks[1:] / ranks[:-1])
        slope = max(float((steps * np.diff(gaps)).sum() / (steps * steps).sum()), 1e-9)
        excess, scale = slope - 1, 1 / math.log(n_vocab)
        if abs(excess) > 1e-9:
            scale = excess / -math.expm1(-excess * math.log(n_vocab))
        log_k = (math.log(scale) + most * math.log(2)) / slope
        k = int(math.exp(min(log_k, 40.0)))
        self.top_k(max(k, 1))

    def _gaps(self) -> np.ndarray:
        """Return float32 [count]: how far each logit is below the highest of all."""
        return self._ranking.gaps(self.first, self.last, self._gap)

    def _entropy(self) -> float:
        """Return the entropy in nats; sums are in numpy's order, which depends on nothing else."""
        with np.errstate(over="ignore"):
            gaps = (self._gaps() - np.float32(self._top)) / np.float32(self._temperature)
        gaps = np.minimum(gaps, _NO_WEIGHT)
        weights = np.exp(-gaps)
        mass = float(weights.sum(dtype=np.float64))
        gaps *= weights
        return math.log(mass) + float(gaps.sum(dtype=np.float64)) / mass
