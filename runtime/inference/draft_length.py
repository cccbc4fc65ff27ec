"""How many tokens a pass should draft, from what passes cost and how many drafts were right.

With p the share of drafts that are right at a place with so many tokens in common, and r(n) how
much longer a pass of n tokens takes than one of one, k drafts give

    (1 + p + … + p^k) / r(1 + k)

tokens in the time of one. The k where that is largest is taken, and none if it is not above
`MARGIN`.

In a pass that others share with n rows, a row more costs what it costs behind those, and what a
draft gives is a part of what the pass gives to all, each row of theirs being a token:

    (n + 1 + p + … + p^k) / (n + 1) × r(n + 1) / r(n + 1 + k)

So a sequence alone drafts far, since a pass is bound by memory, and many draft only what is nearly
sure.

Both are measured while the model decodes. Drafts are compared with what was written whether they
were computed or not, so p is known also where none are, and no draft is ever made to find it out.
r is the time of the passes that there were, by their number of tokens; before the first it is what
the machine's limits say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jit.kernels.attention import token_tile
from ..physics.costs import pass_cost, predict
from .ngram_index import LONG

if TYPE_CHECKING:
    from .session import Session

MARGIN = 1.08  # what drafting must give to be tried: looking at a draft takes its time too
CHEAP_S = 300e-6  # a step that takes less than this is no dearer than finding out what to draft
SLOWER = 1.1  # r before it was measured, times what the limits say
WEIGHT = 0.1  # of the newest time among those of its kind
MEMORY = 1 / 48  # weight of the newest comparison, once there were many
DOUBT = 6  # comparisons that what was assumed before the first is worth
PATIENCE, PATIENCE_MOST = 256, 4096  # steps until a cost that forbids drafts is tried again
MOST_ROWS = 128  # of a pass, for which r is known; beyond it every row costs as much as the next
FIRST = (0.2, 0.4, 0.65, 0.8, 0.9)  # p by the length in common, before any comparison


class PassLatency:
    """What passes of an engine take, by their number of tokens."""

    def __init__(self) -> None:
        self.step_s = 0.0  # a pass of one token, as a running mean
        self.steps = 0
        self.least_s = 0.0
        """What the limits allow a pass of one token, once somebody has asked for a ratio."""
        self._ratio: dict[int, float] = {}
        self._prior: list[float] = []

    def step(self, seconds: float) -> None:
        """A pass of one token took so long."""
        self.steps += 1
        # One that was held up by another process must not make all others look cheap.
        seconds = min(seconds, 2 * self.step_s) if self.step_s else seconds
        self.step_s += (seconds - self.step_s) * max(WEIGHT, 1 / self.steps)

    def several(self, tokens: int, seconds: float) -> None:
        """A pass of `tokens` tokens did, of one sequence or of several."""
        if not self.step_s or tokens > MOST_ROWS:
            return
        ratio = max(1.0, min(seconds / self.step_s, 2.0 * tokens))
        known = self._ratio.get(tokens)
        self._ratio[tokens] = ratio if known is None else known + (ratio - known) * 2 * WEIGHT

    def forget(self) -> None:
        """Believe half of what was measured, and half of what the limits say."""
        self._ratio = {n: (r + self._prior[n]) / 2 for n, r in self._ratio.items()}

    def ratio(self, session: Session, tokens: int) -> float:
        """r(tokens): as measured, else from the nearest that was, else from the limits."""
        if not self._prior:
            self._prior = _prior(session)
        if tokens <= 1:
            return 1.0
        if tokens > MOST_ROWS:
            return self.ratio(session, MOST_ROWS) * tokens / MOST_ROWS
        known = self._ratio.get(tokens)
        if known is not None:
            return known
        prior = self._prior[tokens]
        if not self._ratio:
            return prior
        near = min(self._ratio, key=lambda n: abs(n - tokens))
        return max(1.0, prior * self._ratio[near] / self._prior[near])


def _prior(session: Session) -> list[float]:
    """r by number of tokens, from the machine's limits."""
    engine = session.engine
    tile = token_tile(engine.network.config.heads.group)
    times = []
    for tokens in range(1, MOST_ROWS + 1):
        plan = engine.plans.decode if tokens == 1 else engine.plans.prefill
        barriers = plan.tape.barriers
        cost = pass_cost(engine.cost, tokens, len(session.tokens), tokens, barriers, tile)
        bound = predict(cost, engine.cost, engine.machine)
        times.append(bound.limit_s)
    session.engine.pass_latency.least_s = times[0]
    return [1.0, 1.0, *(SLOWER * max(1.0, time / times[0]) for time in times[1:])]


class DraftLengthPolicy:
    """How many tokens the decodes of one session draft."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._times = session.engine.pass_latency
        self._right = list(FIRST)
        self._seen = [DOUBT] * len(FIRST)
        self._waited, self._patience = 0, PATIENCE

    @property
    def cheap(self) -> bool:
        """Whether steps are too short for drafts to be thought of."""
        times = self._times
        if times.steps > 4:
            return times.step_s < CHEAP_S
        times.ratio(self._session, 1)
        return 2 * times.least_s < CHEAP_S

    def saved(self, known: int, right: int, seconds: float) -> float:
        """Seconds that a pass took less than if it had been made without its drafts."""
        times = self._times
        return (right + times.ratio(self._session, known)) * times.step_s - seconds

    def compare(self, same: int, right: bool) -> None:
        """A draft at a place with `same` tokens in common was right, or was not."""
        kind = _kind(same)
        self._seen[kind] += 1
        weight = max(MEMORY, 1 / self._seen[kind])
        self._right[kind] += ((1.0 if right else 0.0) - self._right[kind]) * weight

    def count(self, same: int, known: int, most: int) -> int:
        """How many tokens to draft at a place with `same` in common, behind `known` others."""
        times, session = self._times, self._session
        if not times.steps:
            return 0
        rows = session.engine.scheduler.beside
        before = times.ratio(session, rows + known)
        best, gain, cheap = 0, 1.0 + (MARGIN - 1.0) / (rows + 1), 0.0
        tokens = chance = 1.0
        for k in range(1, most + 1):
            chance *= self._right[_kind(same + k - 1)]
            tokens += chance
            if chance < 0.05:
                break
            cheap = max(cheap, tokens)
            worth = (rows + tokens) / (rows + 1)
            worth *= before / times.ratio(session, rows + known + k)
            if worth > gain:
                best, gain = k, worth
        if best:
            self._waited = 0
        elif cheap > 1.5:  # only the cost of a pass speaks against it
            self._wait()
        return best

    def _wait(self) -> None:
        self._waited += 1
        if self._waited >= self._patience:
            self._waited, self._patience = 0, min(2 * self._patience, PATIENCE_MOST)
            self._times.forget()


def _kind(same: int) -> int:
    """Places by their length in common: from 3, 4, 8, 16 and `LONG` tokens on."""
    return min(same, LONG).bit_length() - 2
