"""The batching policy: which requests the next pass takes rows of, and how many.

Decodes go first, and all of them. Prefill chunks fill the rest of the pass up to the deadline, with
a guaranteed share: many decodes with long contexts fill the deadline by themselves, and prompts
would starve. Of the prompts, those that can still meet their TTFT go first, then the shortest;
waiting time counts too, so that none waits forever.

Nothing here computes, waits or reads a clock: an engine's scheduler drives it with requests that
threads wait for, the planner's simulation with requests of virtual time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence, Sized
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...forward.logits import ROWS
from ...physics.costs import Part

if TYPE_CHECKING:
    from ....traces.events import PassEnd

DEADLINE_S = 0.1  # between two tokens of a session beside another one's prefill
HEADROOM = 0.85  # of the deadline, up to which a pass is filled: predictions err
SHARE = 1 / 3  # of a pass's time that prompts may take in any case, even beyond the deadline
IN_TIME_S = 2.0  # to a first token, as goodput has it
LEAD_S = 5.0  # seconds of work by which a prompt goes before others that can still be in time
AGING = 0.05  # seconds of work that a second of waiting is worth


def seniority(admitted: float, asked: float) -> tuple[bool, float]:
    """Return a sort key for KV memory: sequences that have some first, each group by time.

    Args:
        admitted: when it got memory first; 0: never.
        asked: since when it waits.
    """
    return (False, admitted) if admitted else (True, asked)


class CacheView(Protocol):
    """A sequence's KV cache."""

    def ready(self, start: int, end: int, *, undo: bool = False) -> bool:
        """Return whether these positions, on one page, are writable now.

        undo: also to roll them back, as drafts may be.
        """
        ...


class SequenceView(Protocol):
    """The sequence that requested rows."""

    @property
    def n_cached(self) -> int:
        """Number of cached positions."""
        ...

    @property
    def context(self) -> int:
        """Maximum number of positions."""
        ...

    @property
    def cache(self) -> CacheView:
        """Its KV cache."""
        ...


class RequestView(Protocol):
    """A request for rows to be computed."""

    @property
    def start(self) -> int:
        """Position of the first row."""
        ...

    @property
    def ids(self) -> Sized:
        """Token ids of the rows."""
        ...

    @property
    def outputs(self) -> int:
        """Number of last rows whose logits are wanted."""
        ...

    @property
    def sequence(self) -> SequenceView:
        """The sequence that the rows belong to."""
        ...


class PendingView(Protocol):
    """A request that waits for a pass."""

    @property
    def request(self) -> RequestView:
        """The request that waits."""
        ...

    @property
    def decodes(self) -> bool:
        """Whether all of its rows have to be in the same pass, as in a decode."""
        ...

    @property
    def began(self) -> float:
        """When its prompt began to wait."""
        ...


class Timing(Protocol):
    """Predicted pass times and prefill chunk sizes: e.g. an `Autotuner`."""

    chunk: int

    def next_chunk(self, tokens: int, limit: int) -> int:
        """Return the size of the next prefill chunk: of `tokens` left, at most `limit`."""
        ...

    def pass_s(self, tokens: int, start: int) -> float:
        """Predict the seconds of a pass of one sequence."""
        ...


def urgency(work_s: float, waited_s: float) -> float:
    """Return the sort key of prompts, the lowest first: see `PassPolicy._urgency`."""
    lead = LEAD_S if waited_s + work_s <= IN_TIME_S else 0.0
    return work_s - lead - AGING * waited_s


T = TypeVar("T", bound=PendingView)


class PassPolicy(ABC, Generic[T]):
    """The policy that chooses the rows of the next pass; subclasses provide its inputs.

    Attributes:
        deadline_s: target of the longest gap between two tokens of a decode while passes compute
            prompts, too.
    """

    def __init__(self) -> None:
        self.deadline_s = DEADLINE_S
        self._waiting: list[T] = []
        self._preempted: list[T] = []  # while passes are put together
        self._promised = 0  # bytes of pages that the last one needs

    # --- what subclasses provide

    @property
    @abstractmethod
    def _timing(self) -> Timing:
        """Predicted pass times."""

    @property
    @abstractmethod
    def _max_rows(self) -> int:
        """Maximum rows of a pass."""

    @abstractmethod
    def _now(self) -> float:
        """Return the time on the clock of `PendingView.began`."""

    @abstractmethod
    def _any_decodes(self) -> bool:
        """Return whether a sequence is in a decode, even if it has no request yet."""

    @abstractmethod
    def _needed(
        self, pending: T, count: int, promised: int, picked: list[tuple[T, int]]
    ) -> int | None:
        """Make room for a request's rows and return the bytes they need; None: it has to wait."""

    @abstractmethod
    def _expecting(self, picked: list[tuple[T, int]]) -> Callable[[Sequence[Part]], float]:
        """Return a function that predicts the seconds of a pass of these and a prompt's rows."""

    @abstractmethod
    def _finds(self, pending: T, picked: Collection[tuple[T, int]]) -> bool:
        """Return whether its next rows were computed since, or are to be in this pass."""

    # --- the policy

    @property
    def aim_s(self) -> float:
        """Target seconds of a pass that a decode waits for."""
        return HEADROOM * self.deadline_s

    def _pick(self) -> tuple[list[tuple[T, int]], list[T], PassEnd]:
        """Pick requests and their rows for the next pass, those to retry, and what ends it."""
        changed: list[T] = []
        prompts: list[T] = []
        picked: list[tuple[T, int]] = []
        outputs = taken = promised = 0
        most = self._max_rows
        why: PassEnd = "all"
        for pending in self._waiting:
            request = pending.request
            start, count, wanted = request.start, len(request.ids), request.outputs
            if pending in self._preempted:
                continue  # for one before it
            if start != request.sequence.n_cached:
                changed.append(pending)
            elif not pending.decodes:
                prompts.append(pending)
            elif outputs + wanted > ROWS or taken + count > most:
                why = "limit"
            else:
                if not request.sequence.cache.ready(start, start + count, undo=wanted > 1):
                    needed = self._needed(pending, count, promised, picked)
                    if needed is None:
                        why = "memory"
                        continue
                    promised += needed
                picked.append((pending, count))
                outputs, taken = outputs + wanted, taken + count
        prompts.sort(key=self._urgency)
        room, end = self._room(picked, prompts, most - taken) if prompts else (0, why)
        for pending in prompts:
            if pending in self._preempted:
                continue
            if self._finds(pending, picked):
                changed.append(pending)
                why = "prefix"
                continue
            count = self._part(pending.request, room)
            whole = count == len(pending.request.ids)
            wanted = pending.request.outputs if whole else 0
            if count < 1 or outputs + wanted > ROWS:
                why = end if count < 1 else "limit"
                break
            needed = self._needed(pending, count, promised, picked)
            if needed is None:
                why = "memory"
                continue
            picked.append((pending, count))
            outputs, room, promised = outputs + wanted, room - count, promised + needed
            why = why if whole else end
        changed += self._preempted
        self._preempted.clear()
        self._promised = promised
        return picked, changed, why

    def _part(self, request: RequestView, room: int) -> int:
        """Return the rows of a prompt that one pass takes: equal parts, `room` at most."""
        most = min(room, request.sequence.context)
        return self._timing.next_chunk(len(request.ids), most) if most > 0 else 0

    def _urgency(self, pending: T) -> float:
        """Return seconds of work, less a lead if it can be in time, less a part of the wait.

        Nobody waits for ever: one that is late goes before any that comes `LEAD_S / AGING` seconds
        after it, and `1 / AGING` more for each second that its work takes longer.
        """
        request, waited = pending.request, self._now() - pending.began
        return urgency(self._timing.pass_s(len(request.ids), request.sequence.n_cached), waited)

    def _room(
        self, picked: list[tuple[T, int]], prompts: list[T], left: int
    ) -> tuple[int, PassEnd]:
        """Return how many rows of prompts fit into a pass with room for `left`, and why no more.

        Beside those who decode, the most with which it is predicted to end by the deadline, or
        that leave the decodes the rest of its time but for `SHARE`: as if all were the first
        prompt's.
        """
        tuning = self._timing
        high = min(tuning.chunk, left)
        end: PassEnd = "chunk" if tuning.chunk <= left else "limit"
        if not picked and not self._any_decodes():
            return high, end
        others = [Part(n, t.request.start, t.request.outputs) for t, n in picked]
        start = prompts[0].request.start

        expect_s = self._expecting(picked)
        beside = others or [Part(1, start, 1)]  # a decode that asks for nothing at the moment
        limit_s = max(self.aim_s, expect_s(beside) / (1.0 - SHARE))

        def fits(count: int) -> bool:
            return expect_s([*others, Part(count, start, 1)]) <= limit_s

        if high < 1 or fits(high):
            return high, end
        low = 1
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle):
                low = middle
            else:
                high = middle - 1
        return low, "deadline"
