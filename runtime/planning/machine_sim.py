"""A simulated machine that runs programs: the engine's batching policy and predicted times.

Between two events nothing happens: the clock jumps from the end of a pass to the next one's. Where
only decodes are left, and nobody is to come before, many passes are one jump; a prompt that is
computed beside decodes in equal parts, likewise. `exact` leaves the jumps out.

Simplified, beside the engine: pages of a text are counted, not laid out; whoever needs memory takes
it from conversations that pause, last used first, then waits; a sequence that can never fit fails.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...jit.kernels.kvcache import PAGE
from ..engine.passes.pending import SAME
from ..engine.policy.pass_policy import AGING, PassPolicy, seniority, urgency
from ..physics.costs import Part
from .clock import Clock, Timed, middle
from .programs import Program
from .tally import Tally

if TYPE_CHECKING:
    from ...traces.events import PassEnd

MAX_JUMP = 4096  # passes of one jump
_SOON = 1e-9  # seconds: when one got memory at the very beginning; 0 is never
REQUEST_S = 2e-3  # from a request to its first wait for a pass: template, tokens


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a simulated engine."""

    deadline_s: float = 0.1
    """Deadline of passes: see `PassPolicy`."""
    parallel: int = 32
    """Maximum number of concurrent requests; more of them wait."""
    share: bool = True
    """Whether a prefix cache keeps shared prefixes and the turns of paused conversations."""
    memory: float | None = None
    """Bytes for KV caches; None: no limit."""
    context: int = 32_768
    """Maximum positions of a conversation."""


@dataclass(slots=True, eq=False)
class _Cache:
    """A conversation's pages, counted."""

    pages: int = 0

    def ready(self, start: int, end: int, *, undo: bool = False) -> bool:
        """Return whether positions up to `end` have pages: see `CacheView`."""
        return end <= self.pages * PAGE


@dataclass(slots=True, eq=False)
class _Request:
    """Rows of a conversation to compute."""

    sequence: _Conversation
    start: int = 0
    ids: range = range(0)
    outputs: int = 1


@dataclass(slots=True, eq=False)
class _Conversation:
    """A conversation on the machine, and its pending request: it has one at a time."""

    program: Program
    arrived: float
    context: int
    number: int
    """Order of arrival."""
    borrowed: int
    """Pages of a shared prefix."""
    cache: _Cache = field(default_factory=_Cache)
    request: _Request = field(init=False)
    at: int = 0
    """Index of its current request."""
    n_cached: int = 0
    total: int = 0
    left: int = 0
    """Tokens of the reply."""
    decodes: bool = False
    resumes: bool = False
    """In the middle of a reply, once its tokens are recomputed."""
    work: float = 0.0
    """Seconds of the prompt's rest."""
    began: float = 0.0
    requested: float = 0.0
    first: float = 0.0
    """Time of its first token."""
    admitted: float = 0.0

    def __post_init__(self) -> None:
        self.request = _Request(self)


def _seniority(sequence: _Conversation) -> tuple[bool, float, int]:
    """Return a unique rank: many arrive at the same virtual time, and would deadlock otherwise."""
    return *seniority(sequence.admitted, sequence.requested), sequence.number


def _frees(one: _Conversation, pending: _Conversation) -> bool:
    """Return whether one has pages to release: its own, or of others' shared prefixes."""
    others = one.cache.pages > 0 and one.program.group != pending.program.group
    return one is not pending and (others or one.cache.pages > one.borrowed)


_Picked = list[tuple[_Conversation, int]]


class SimulatedMachine(PassPolicy[_Conversation]):
    """A machine with its scheduler, simulated in virtual time."""

    def __init__(
        self,
        clock: Clock,
        policy: Policy,
        goals: tuple[float, float] = (2.0, 0.1),
        *,
        exact: bool = False,
    ) -> None:
        super().__init__()
        self.clock, self.policy, self.goals, self.exact = clock, policy, goals, exact
        self.deadline_s = policy.deadline_s
        self.now = 0.0
        """Virtual time in seconds."""
        self.tally = Tally()
        """Statistics of the machine so far."""
        self._events: list[tuple[float, int, _Conversation]] = []  # requests that are to come
        self._number = 0
        self._queue: list[_Conversation] = []  # those that have no place
        self._known: dict[int, int] = {}  # tokens of shared beginnings that were computed
        self._common: dict[int, int] = {}  # pages of them
        self._resting: OrderedDict[_Conversation, None] = OrderedDict()  # those that keep pages
        self._page_bytes = clock.forecaster.cost.kv_bytes * PAGE
        self._used = 0  # pages
        self._max_pages = math.inf
        if policy.memory is not None and self._page_bytes:
            self._max_pages = policy.memory // self._page_bytes
        self._decoding = 0
        self._rooms: dict[tuple[int, int, int, int], tuple[int, PassEnd]] = clock.rooms.setdefault(
            policy.deadline_s, {}
        )

    # --- what the policy asks

    @property
    def _timing(self) -> Clock:
        return self.clock

    @property
    def _max_rows(self) -> int:
        return self.clock.chunk + self.policy.parallel

    def _now(self) -> float:
        return self.now

    def _any_decodes(self) -> bool:
        return self._decoding > 0

    def _expecting(self, picked: _Picked) -> Callable[[Sequence[Part]], float]:
        return self.clock.expected_s

    def _finds(self, pending: _Conversation, picked: Collection[tuple[_Conversation, int]]) -> bool:
        program, at = pending.program, pending.n_cached
        if not self.policy.share or program.group < 0 or program.shared < at + SAME:
            return False
        if self._known.get(program.group, 0) >= at + SAME:
            return True
        return any(
            not other.decodes and other.program.group == program.group and other.n_cached == at
            for other, _ in picked
        )

    def _needed(
        self, pending: _Conversation, count: int, promised: int, picked: _Picked
    ) -> int | None:
        pages = -(-(pending.n_cached + count) // PAGE) - pending.cache.pages
        if pages <= 0:
            return 0
        wanted = self._used + promised + pages
        if wanted > self._max_pages:
            self._evict(wanted - self._max_pages)
            self._forget(pending, promised + pages)
            self._preempt(pending, promised + pages, picked)
        if self._used + promised + pages <= self._max_pages:
            pending.admitted = pending.admitted or max(self.now, _SOON)
            return pages
        if not picked and not any(_frees(one, pending) for one in self._waiting):
            self._fail(pending)
        return None

    def _urgency(self, pending: _Conversation) -> float:
        """Return the policy's urgency; a prompt's work is computed once."""
        return urgency(pending.work, self.now - pending.began)

    def _room(
        self, picked: _Picked, prompts: list[_Conversation], left: int
    ) -> tuple[int, PassEnd]:
        """Return the policy's room for rows, cached."""
        ones = len(picked)
        behind = sum(one.request.start for one, _ in picked)
        key = ones, middle(behind // ones) if ones else 0, middle(prompts[0].request.start), left
        if not ones:
            return super()._room(picked, prompts, left)
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = super()._room(picked, prompts, left)
        return found

    # --- memory

    def _evict(self, pages: float) -> None:
        """Evict pages of paused conversations, the least recently used first."""
        while pages > 0 and self._resting:
            sequence, _ = self._resting.popitem(last=False)
            pages -= self._let_go(sequence)
            self.tally.evicted += 1

    def _forget(self, pending: _Conversation, pages: int) -> None:
        """Evict shared prefixes that no conversation uses, where so many pages are missing."""
        if self._used + pages > self._max_pages:
            used = {one.program.group for one in self._waiting if one.cache.pages}
            for group in self._common.keys() - used - {pending.program.group}:
                self._used -= self._common.pop(group)
                del self._known[group]

    def _preempt(self, pending: _Conversation, pages: int, picked: _Picked) -> None:
        """Preempt conversations that got pages later; they recompute their tokens."""
        mine, inside = _seniority(pending), {one for one, _ in picked}
        later = [
            one
            for one in self._waiting
            if _frees(one, pending) and one not in inside and _seniority(one) > mine
        ]
        for victim in sorted(later, key=_seniority, reverse=True):
            if self._used + pages <= self._max_pages:
                return
            self._let_go(victim)
            self.tally.preempted += 1
            self._preempted.append(victim)
            self._forget(pending, pages)

    def _let_go(self, sequence: _Conversation) -> int:
        pages = sequence.cache.pages - min(sequence.cache.pages, sequence.borrowed)
        sequence.cache.pages = sequence.n_cached = 0
        self._used -= pages
        return pages

    def _take(self, sequence: _Conversation, end: int) -> None:
        """Allocate pages for so many positions; shared ones are counted once."""
        pages = -(-end // PAGE)
        if pages > sequence.cache.pages:
            new = max(pages - sequence.borrowed, 0) - max(
                sequence.cache.pages - sequence.borrowed, 0
            )
            sequence.cache.pages = pages
            self._used += new

    def _fail(self, sequence: _Conversation) -> None:
        self.tally.failed += 1
        self.tally.last_s = self.now
        sequence.at = len(sequence.program.requests)
        self._let_go(sequence)  # it is nobody's victim any more
        self._preempted.append(sequence)

    # --- requests

    def arrive(self, program: Program, at: float) -> None:
        """Add a conversation that arrives at virtual time `at`."""
        self.tally.arrived += 1
        self.tally.first_s = min(self.tally.first_s, at)
        shares = self.policy.share and program.group >= 0
        borrowed = program.shared // PAGE if shares else 0
        sequence = _Conversation(program, at, self.policy.context, self.tally.arrived, borrowed)
        if program.length >= self.policy.context:
            self.tally.failed += 1
            return
        self._later(at + program.requests[0].pause_s, sequence)

    @property
    def load(self) -> int:
        """Number of requests that wait or run."""
        return len(self._waiting) + len(self._queue)

    def _later(self, at: float, sequence: _Conversation) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, sequence))

    def _due(self) -> None:
        """Release the requests whose time has come."""
        while self._events and self._events[0][0] <= self.now:
            at, _, sequence = heapq.heappop(self._events)
            sequence.requested = at
            if len(self._waiting) < self.policy.parallel:
                self._begin(sequence)
            else:
                self._queue.append(sequence)

    def _begin(self, sequence: _Conversation) -> None:
        """Admit a request, with the cached part of its prompt."""
        self._resting.pop(sequence, None)
        program = sequence.program
        request = program.requests[sequence.at]
        if not self.policy.share and sequence.cache.pages:
            self._let_go(sequence)
        sequence.total = min(sequence.context, sequence.total + request.new)
        sequence.left = request.reply
        sequence.decodes, sequence.request.outputs, sequence.admitted = False, 1, 0.0
        self.tally.adopted += sequence.n_cached
        self._adopt(sequence)
        sequence.began = max(self.now, sequence.requested + REQUEST_S)
        self._waiting.append(sequence)

    def _adopt(self, sequence: _Conversation) -> None:
        """Adopt the cached part of a shared prefix."""
        program = sequence.program
        if self.policy.share and program.group >= 0:
            known = min(self._known.get(program.group, 0), program.shared, sequence.total - 1)
            if known > sequence.n_cached:
                self.tally.adopted += known - sequence.n_cached
                sequence.n_cached = known
                sequence.cache.pages = max(sequence.cache.pages, known // PAGE)
        self._submit(sequence)

    def _submit(self, sequence: _Conversation) -> None:
        sequence.request.start = sequence.n_cached
        sequence.request.ids = range(sequence.total - sequence.n_cached)
        left = len(sequence.request.ids)
        sequence.work = self.clock.pass_s(left, sequence.n_cached) if left else 0.0

    # --- passes

    def advance(self, until: float) -> None:
        """Run passes until the clock reaches `until`; the last one may end later."""
        while self.now < until:
            self._due()
            if not self._waiting:
                if not self._events or self._events[0][0] >= until:
                    self.now = until if math.isfinite(until) else self.now
                    return
                self.now = self._events[0][0]
                continue
            self._pass(until)

    def finish(self) -> Tally:
        """Run until all conversations have ended; return the statistics."""
        self.advance(math.inf)
        return self.tally

    def _pass(self, until: float) -> None:
        picked, changed, _ = self._pick()
        for sequence in changed:
            self._again(sequence)
        if not picked:
            if changed:
                return
            raise AssertionError(
                f"no sequence can continue: {len(self._waiting)} wait, {self._used} pages"
            )

        def timed(passes: int) -> Timed:
            """Return the mean time of so many passes: that of the middle one."""
            return self.clock.seconds([
                Part(
                    count,
                    one.request.start + (passes - 1) * count // 2,
                    one.request.outputs if count == len(one.request.ids) else 0,
                )
                for one, count in picked
            ])  # fmt: skip

        seconds, shares = timed(1)
        times = 1 if self.exact else self._jump(picked, seconds, until)
        if times > 1:
            seconds, shares = timed(times)
        host = self.clock.host_s(len(picked))
        began, each = self.now, seconds + host
        tally = self.tally
        tally.passes += times
        tally.shared += times * (len(picked) > 1)
        tally.busy_s += times * seconds
        tally.host_s += times * host
        for bound, share in shares.items():
            tally.bound_s[bound] = tally.bound_s.get(bound, 0.0) + times * seconds * share
        self.now = began + times * each
        for one, count in picked:
            self._computed(one, count * times)
        used = self._used * self._page_bytes
        tally.peak = max(tally.peak, used)
        tally.kv_s += used * times * each

    def _jump(self, picked: _Picked, seconds: float, until: float) -> int:
        """Return how many equal passes follow, this one included: no arrival, end or reorder."""
        limit = MAX_JUMP
        prompts = 0
        for one, count in picked:
            if one.decodes:
                limit = min(limit, one.left, one.cache.pages * PAGE - one.n_cached)
            else:
                prompts += 1
                # The last part, and the first behind a border of what counts as alike, by itself.
                limit = min(limit, (len(one.request.ids) - 1) // count, 32)
                if count >= self.clock.chunk or prompts > 1:
                    return 1
                if math.isfinite(self._max_pages):  # only the first pass requested memory
                    pages = one.cache.pages + self._max_pages - self._used
                    limit = min(limit, int(pages * PAGE - one.n_cached) // count)
        if prompts and len(self._waiting) > len(picked):
            limit = 1 if limit <= 1 or self._overtaken(picked, seconds) else min(limit, 4)
        if limit <= 1:
            return 1
        each = seconds + self.clock.host_s(len(picked))
        if self._events:
            until = min(until, self._events[0][0])
        if math.isfinite(until):
            limit = min(limit, max(1, math.ceil((until - self.now) / each)))
        return max(1, limit)

    def _overtaken(self, picked: _Picked, seconds: float) -> bool:
        """Return whether another prompt may become more urgent within some passes."""
        leader = next(one for one, _ in picked if not one.decodes)
        inside = {one for one, _ in picked}
        mine = self._urgency(leader)
        rest = [self._urgency(one) for one in self._waiting if one not in inside]
        return min(rest, default=math.inf) - mine < AGING * 5 * seconds

    def _again(self, sequence: _Conversation) -> None:
        """Request again what it has not found meanwhile."""
        if sequence.at >= len(sequence.program.requests):  # it failed
            self._let_go(sequence)
            self._leave(sequence)
            return
        if sequence.decodes:  # its pages were taken
            sequence.decodes, sequence.resumes = False, True
            self._decoding -= 1
        self._adopt(sequence)

    def _computed(self, sequence: _Conversation, count: int) -> None:
        """Record that a pass computed so many of its rows."""
        self._take(sequence, sequence.n_cached + count)
        sequence.n_cached += count
        if sequence.decodes:
            self.tally.written += count
            sequence.left -= count
            sequence.total += count
            sequence.request.start = sequence.n_cached
            if sequence.left <= 0:
                self._replied(sequence)
            return
        self.tally.computed += count
        program = sequence.program
        if self.policy.share and program.group >= 0:
            known = min(sequence.n_cached, program.shared)
            if known > self._known.get(program.group, 0):
                self._known[program.group] = known
                # Begun ones, too: whoever fills one up has asked for its memory when it began it.
                pages = min(-(-known // PAGE), sequence.borrowed)
                more = max(0, pages - self._common.get(program.group, 0))
                self._common[program.group] = self._common.get(program.group, 0) + more
                self._used += more
        self._submit(sequence)
        if sequence.n_cached >= sequence.total:
            self._answers(sequence)

    def _answers(self, sequence: _Conversation) -> None:
        """Start the reply: the prompt is computed and the first token known."""
        if sequence.resumes:
            sequence.resumes, sequence.decodes, sequence.request.ids = False, True, range(1)
            self._decoding += 1
            return
        sequence.first = self.now
        self.tally.ttft.append(self.now - sequence.requested)
        self.tally.written += 1
        sequence.left -= 1
        if sequence.left <= 0:
            self._decoding += 1
            self._replied(sequence)
            return
        sequence.decodes = True
        sequence.request.ids = range(1)
        self._decoding += 1

    def _replied(self, sequence: _Conversation) -> None:
        """Finish the reply."""
        request = sequence.program.requests[sequence.at]
        self._decoding -= 1
        tpot = 0.0
        if request.reply > 1:
            tpot = (self.now - sequence.first) / (request.reply - 1)
            self.tally.tpot.append(tpot)
        met = sequence.first - sequence.requested <= self.goals[0] and tpot <= self.goals[1]
        self.tally.good += met
        self.tally.last_s = self.now
        sequence.at += 1
        self._leave(sequence)
        if sequence.at >= len(sequence.program.requests):
            self.tally.done += 1
            self.tally.finished.append(self.now - sequence.arrived)
            self._let_go(sequence)
            return
        if not sequence.program.kept:  # what it wrote is tokenized anew
            sequence.total -= request.reply - 1
            sequence.n_cached = min(sequence.n_cached, sequence.total)
        else:
            sequence.total += 1  # the last token, which was not computed
        self._resting[sequence] = None
        self._later(self.now + sequence.program.requests[sequence.at].pause_s, sequence)

    def _leave(self, sequence: _Conversation) -> None:
        """Free its place for the next one."""
        self._waiting.remove(sequence)
        if self._queue:
            self._begin(self._queue.pop(0))
