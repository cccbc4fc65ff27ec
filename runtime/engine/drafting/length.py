"""Draft lengths: how many tokens to draft, from pass times and acceptance rates.

With p the share of drafts that are right for a match with so many tokens in common, and r(n) how
much longer a pass of n tokens takes than one of one, k drafts give

    (1 + p + … + p^k) / r(1 + k)

tokens in the time of one. The k where that is largest is taken, and none if it is not above
`MARGIN`.

In a pass that others share with n rows, a row more costs what it costs behind those, and what a
draft gives is a part of what the pass gives to all, each row of theirs being a token:

    (n + 1 + p + … + p^k) / (n + 1) × r(n + 1) / r(n + 1 + k)

What makes the drafts takes time as well: each costs d in the same unit, 0 where they are copied,
and r(n) becomes r(n) + k d.

So a sequence alone drafts far, since a pass is bound by memory, and many draft only what is nearly
sure.

Both are measured while the model decodes. Drafts are compared with what was written whether they
were computed or not, so p is known also where none are, and no draft is ever made to find it out.
r(n) is the time of the passes that there were; before the first what the machine's limits say.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from .ngram_index import LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..passes.sequence import TokenSequence


SLOWER = 1.1  # r before it was measured, times what the limits say
WEIGHT = 0.1  # of the newest time among those of its kind
MOST_ROWS = 128  # of a pass, for which r is known; beyond it every row costs as much as the next
MARGIN = 1.08  # what drafting must give to be tried: looking at a draft takes its time too
MEMORY = 1 / 48  # weight of the newest comparison, once there were many
DOUBT = 6  # comparisons that what was assumed before the first is worth
PATIENCE, PATIENCE_MOST = 256, 4096  # steps until a cost that forbids drafts is tried again
FIRST = (0.2, 0.4, 0.65, 0.8, 0.9)  # p by the length in common, before any comparison
HEAD_FIRST = (0.75, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.4)  # of a layer that drafts, by its drafts


class PassLatency:
    """Measured pass times of an engine, by number of tokens.

    Attributes:
        steps: passes of one token so far; step_s: what one takes, as a running mean.
        least_s: its minimum by the machine's limits; 0: not set yet.
    """

    def __init__(self) -> None:
        self.step_s = self.least_s = 0.0
        self.steps = 0
        self._ratio: dict[int, float] = {}
        self._prior: list[float] = []

    def set_limits(self, limits: Sequence[float]) -> None:
        """Set the machine limits' minimum seconds of passes of 1 to `MOST_ROWS` tokens."""
        self._prior = [1.0, 1.0, *(SLOWER * max(1.0, time / limits[0]) for time in limits[1:])]
        self.least_s = limits[0]

    def step(self, seconds: float) -> None:
        """Record how long a pass of one token took."""
        self.steps += 1
        # One that was held up by another process must not make all others look cheap.
        seconds = min(seconds, 2 * self.step_s) if self.step_s else seconds
        self.step_s += (seconds - self.step_s) * max(WEIGHT, 1 / self.steps)

    def several(self, tokens: int, seconds: float) -> None:
        """Record how long a pass of `tokens` tokens took, of one sequence or of several."""
        if not self.step_s or tokens > MOST_ROWS:
            return
        ratio = max(1.0, min(seconds / self.step_s, 2.0 * tokens))
        known = self._ratio.get(tokens)
        self._ratio[tokens] = ratio if known is None else known + (ratio - known) * 2 * WEIGHT

    def saved(self, known: int, right: int, seconds: float) -> float:
        """Return the seconds that a pass saved, compared with passes without its drafts."""
        return (right + self.ratio(known)) * self.step_s - seconds

    def forget(self) -> None:
        """Move measured ratios halfway back to those that the machine's limits predict."""
        self._ratio = {n: (r + self._prior[n]) / 2 for n, r in self._ratio.copy().items()}

    def ratio(self, tokens: int) -> float:
        """Return r(tokens), the time of a pass over that of one token: measured, else estimated."""
        if tokens <= 1:
            return 1.0
        if tokens > MOST_ROWS:
            return self.ratio(MOST_ROWS) * tokens / MOST_ROWS
        known = self._ratio.get(tokens)
        if known is not None:
            return known
        seen = tuple(self._ratio)
        low = max((n for n in seen if n < tokens), default=1)
        high = min((n for n in seen if n > tokens), default=0)
        slower, middle = self._slower(low), (low + high) / 2
        # Kernels take tokens in tiles, so a time rises in steps. Where the step is is found by
        # bisection: up to the middle of two measured lengths it is taken to lie beyond.
        if tokens > middle and high:
            slower += (self._slower(high) - slower) * (tokens - middle) / (high - middle)
        return max(1.0, self._prior[tokens] * slower)

    def _slower(self, tokens: int) -> float:
        """Return a measured ratio over the predicted one."""
        return self._ratio.get(tokens, 1.0) / self._prior[tokens]


class Company(Protocol):
    """The part of a `Scheduler` that drafting uses: other sequences' rows in passes."""

    @property
    def beside(self) -> int:
        """Rows of other sequences in the last pass."""
        ...

    @property
    def aim_s(self) -> float:
        """Target seconds of a pass that has rows of other sequences."""
        ...

    def computed(self, sequence: TokenSequence) -> None:
        """Mark a sequence as having no rows in a pass any more."""
        ...


class DraftingEngine(Protocol):
    """The part of an engine that draft lengths depend on."""

    @property
    def token_bytes(self) -> float:
        """Bytes of weights that a pass of one token reads."""
        ...

    @property
    def scheduler(self) -> Company:
        """Counts other sequences' rows in passes."""
        ...

    def times(self, kv_length: int) -> PassLatency:
        """Return the times of passes."""
        ...


class DraftLengthPolicy:
    """The policy of how many tokens the decodes of one session draft from the context."""

    def __init__(self, engine: DraftingEngine, tokens: Sequence[int]) -> None:
        """tokens: the sequence's own list, which grows."""
        self._engine, self._tokens = engine, tokens
        self._right = list(FIRST)
        self._seen = [DOUBT] * len(FIRST)
        self._patience = Patience()
        self.worth = 1.0  # what the last count gives

    @property
    def times(self) -> PassLatency:
        """Pass times: measured, else predicted from the machine's limits."""
        return self._engine.times(len(self._tokens))

    def compare(self, same: int, right: Sequence[bool]) -> None:
        """Record which drafts of a match with `same` tokens in common were right."""
        for number, hit in enumerate(right):
            kind = _kind(same + number)
            self._seen[kind] += 1
            weight = max(MEMORY, 1 / self._seen[kind])
            self._right[kind] += (hit - self._right[kind]) * weight

    def count(self, same: int, known: int, most: int) -> int:
        """Choose how many tokens to draft behind `known` others, for a match of `same` tokens."""
        times = self.times
        if not times.steps:
            return 0
        rows = self._engine.scheduler.beside
        chances = (self._right[_kind(same + k)] for k in range(most))
        aim_s = self._engine.scheduler.aim_s if rows else inf  # where nobody else waits
        best, self.worth, tokens = best_length(times, chances, rows, known, aim_s=aim_s)
        if best:
            self._patience.reset()
        elif tokens > 1.5 and self._patience.over():  # only the cost of a pass speaks against it
            times.forget()
        return best


def best_length(
    times: PassLatency,
    chances: Iterable[float],
    rows: int,
    known: int,
    draft: float = 0.0,
    aim_s: float = inf,
) -> tuple[int, float, float]:
    """Return the best draft length, its gain, and the tokens expected if drafts were free.

    chances: of each draft, if those before it were right. rows, known: of others in the pass, and
    of this sequence. draft: what making one costs, in passes of one token. aim_s: the longest pass
    that a draft may make.
    """
    before = times.ratio(rows + known)
    best, gain, most = 0, 1.0 + (MARGIN - 1.0) / (rows + 1), 0.0
    tokens = chance = 1.0
    for k, right in enumerate(chances, 1):
        chance *= right
        tokens += chance
        if chance < 0.05:
            break
        most = tokens
        if times.step_s * times.ratio(rows + known + k) > aim_s:
            break
        worth = (rows + tokens) / (rows + 1)
        worth *= before / (times.ratio(rows + known + k) + k * draft)
        if worth > gain:
            best, gain = k, worth
    return best, gain if best else 1.0, most


class Patience:
    """Backoff: steps without drafts until these are tried again, twice as many each time."""

    def __init__(self) -> None:
        self._waited, self._most = 0, PATIENCE

    def reset(self) -> None:
        """Restart the count of steps without drafts."""
        self._waited = 0

    def over(self) -> bool:
        """Count a step without drafts; return whether to try them again."""
        self._waited += 1
        if self._waited < self._most:
            return False
        self._waited, self._most = 0, min(2 * self._most, PATIENCE_MOST)
        return True


class HeadLengthPolicy:
    """The policy of how many tokens the decodes of one session draft with the MTP layer.

    p is measured only for drafts that were made. It begins with typical acceptance rates, and moves
    halfway back to them after some time without drafts (`Patience`), so that they are retried.
    """

    def __init__(self, engine: DraftingEngine, lookup: DraftLengthPolicy) -> None:
        self._engine, self._lookup = engine, lookup
        self._right = list(HEAD_FIRST)
        self._seen = [DOUBT] * len(HEAD_FIRST)
        self._patience = Patience()
        self.worth = 1.0

    def compare(self, right: Sequence[bool]) -> None:
        """Record which drafts of a pass were right, given that those before them were."""
        for number, hit in enumerate(right):
            self._seen[number] += 1
            weight = max(MEMORY, 1 / self._seen[number])
            self._right[number] += (hit - self._right[number]) * weight

    def count(self, known: int, most: int, draft_s: float, read_bytes: float) -> int:
        """Choose how many tokens to draft behind `known` others.

        draft_s: seconds of a draft; 0: unknown, estimated by `read_bytes` of weights.
        """
        times = self._lookup.times
        if not times.steps:
            return 0
        draft = draft_s / times.step_s if draft_s else read_bytes / self._engine.token_bytes
        rows = self._engine.scheduler.beside
        aim_s = self._engine.scheduler.aim_s if rows else inf
        best, self.worth, _ = best_length(times, self._right[:most], rows, known, draft, aim_s)
        if best:
            self._patience.reset()
        elif self._patience.over():
            pairs = zip(self._right, HEAD_FIRST, strict=True)
            self._right = [(mine + first) / 2 for mine, first in pairs]
            self._seen = [DOUBT] * len(HEAD_FIRST)
            times.forget()
        return best


def _kind(same: int) -> int:
    """Return the class of a match by its length: from 3, 4, 8, 16 and `LONG` tokens on."""
    return min(same, LONG).bit_length() - 2
