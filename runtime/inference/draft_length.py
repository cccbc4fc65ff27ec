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
For r see `pass_latency.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jit.kernels.attention import token_tile
from ..physics.costs import pass_cost, predict
from .ngram_index import LONG
from .pass_latency import MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine_core import EngineCore
    from .pass_latency import PassLatency

MARGIN = 1.08  # what drafting must give to be tried: looking at a draft takes its time too
CHEAP_S = 300e-6  # a step that takes less than this is no dearer than finding out what to draft
MEMORY = 1 / 48  # weight of the newest comparison, once there were many
DOUBT = 6  # comparisons that what was assumed before the first is worth
PATIENCE, PATIENCE_MOST = 256, 4096  # steps until a cost that forbids drafts is tried again
FIRST = (0.2, 0.4, 0.65, 0.8, 0.9)  # p by the length in common, before any comparison


class DraftLengthPolicy:
    """How many tokens the decodes of one session draft."""

    def __init__(self, engine: EngineCore, tokens: Sequence[int]) -> None:
        """tokens: those of the sequence, which grow as it does."""
        self._engine, self._tokens = engine, tokens
        self._times = engine.pass_latency
        self._right = list(FIRST)
        self._seen = [DOUBT] * len(FIRST)
        self._waited, self._patience = 0, PATIENCE

    @property
    def cheap(self) -> bool:
        """Whether steps are too short for drafts to be thought of."""
        times = self._times
        if times.steps > 4:
            return times.step_s < CHEAP_S
        return 2 * self._known().least_s < CHEAP_S

    def _known(self) -> PassLatency:
        """What passes take, with what the limits say of those that were not measured."""
        times = self._times
        if not times.least_s:
            times.set_limits(_limits(self._engine, len(self._tokens)))
        return times

    def saved(self, known: int, right: int, seconds: float) -> float:
        """Seconds that a pass took less than if it had been made without its drafts."""
        times = self._known()
        return (right + times.ratio(known)) * times.step_s - seconds

    def compare(self, same: int, right: bool) -> None:
        """A draft at a place with `same` tokens in common was right, or was not."""
        kind = _kind(same)
        self._seen[kind] += 1
        weight = max(MEMORY, 1 / self._seen[kind])
        self._right[kind] += ((1.0 if right else 0.0) - self._right[kind]) * weight

    def count(self, same: int, known: int, most: int) -> int:
        """How many tokens to draft at a place with `same` in common, behind `known` others."""
        times = self._known()
        if not times.steps:
            return 0
        rows = self._engine.scheduler.beside
        most_s = self._engine.scheduler.aim_s  # where others wait for the pass, too
        before = times.ratio(rows + known)
        best, gain, cheap = 0, 1.0 + (MARGIN - 1.0) / (rows + 1), 0.0
        tokens = chance = 1.0
        for k in range(1, most + 1):
            chance *= self._right[_kind(same + k - 1)]
            tokens += chance
            if chance < 0.05:
                break
            cheap = max(cheap, tokens)
            if rows and times.step_s * times.ratio(rows + known + k) > most_s:
                break
            worth = (rows + tokens) / (rows + 1)
            worth *= before / times.ratio(rows + known + k)
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


def _limits(engine: EngineCore, kv_length: int) -> list[float]:
    """Seconds that the machine's limits allow passes, by their number of tokens from 1 on."""
    tile = token_tile(engine.network.config.heads.group)
    times: list[float] = []
    for tokens in range(1, MOST_ROWS + 1):
        plan = engine.plans.decode if tokens == 1 else engine.plans.prefill
        cost = pass_cost(engine.cost, tokens, kv_length, tokens, plan.tape.barriers, tile)
        times.append(predict(cost, engine.cost, engine.machine).limit_s)
    return times


def _kind(same: int) -> int:
    """Places by their length in common: from 3, 4, 8, 16 and `LONG` tokens on."""
    return min(same, LONG).bit_length() - 2
