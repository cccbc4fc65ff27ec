"""The batch scheduler: a pass takes rows of all waiting sequences, up to the latency deadline.

Sessions live in threads of their own. One that wants rows computed asks for them and waits; the
first one that does so leads: it runs passes for everybody who waits until its own rows are there,
and hands the lead to the next. So a session that is alone runs its passes in its own thread with
nothing in between, and many sessions share passes without a thread more.

Results are batch-invariant, bit for bit, so a schedule affects latency alone.
"""

from __future__ import annotations

import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from ...errors import ContextOverflowError
from ...interrupts import held
from .pass_policy import PassPolicy
from .speculative_config import VERIFY_TOKENS
from .tickets import SAME, Ticket, twins
from .victims import suffices, victims_for

if TYPE_CHECKING:
    from ...traces.events import PassEnd
    from ..physics.costs import Part
    from .autotune import Autotuner
    from .loaded_model import LoadedModel
    from .plan import Plans
    from .prefix_cache import PrefixCache
    from .runner import Rows, Runner
    from .sequence import TokenSequence

GATHER_S = 10e-3  # that a pass waits at most for sessions that are about to ask for their next rows
GATHER_SHARE = 0.25  # of the last pass, likewise
FEW_ROWS = 16  # with which a pass of its own makes do beside decodes
IDLE_S = 2e-3  # between looks for memory where nobody can go on


class Scheduler(PassPolicy[Ticket]):
    """Puts rows into passes.

    Attributes:
        passes, shared: passes that were run, and those of them with rows of several sequences.
        sequences: those that there are.
        preempted: how often a sequence's pages were taken back.
        parks: whether sequences that find no memory wait, and may have it taken back for others; a
            benchmark turns it off to see what that gives.
        mutex: while a sequence has it, its pages are not taken back. Never held during a pass.
    """

    def __init__(
        self, loaded: LoadedModel, plans: Plans, runner: Runner, prefix_cache: PrefixCache
    ) -> None:
        super().__init__()
        self._loaded, self._plans, self._runner = loaded, plans, runner
        self._prefix_cache = prefix_cache
        self.sequences: weakref.WeakSet[TokenSequence] = weakref.WeakSet()
        self.parks = True
        self.passes = self.shared = self.preempted = 0
        # Reentrant: `stop` may be called by a signal handler, in the midst of anything. One lock
        # for the prefixes too: the collector may close a decode in whatever thread has either.
        self.mutex = prefix_cache.lock
        self._arrived = threading.Condition(self.mutex)
        self._leading = 0  # the thread that runs passes
        self._active: dict[TokenSequence, float] = {}  # in a phase: seconds between rows
        self._left: dict[TokenSequence, float] = {}  # when it got its last rows
        self._last_s = 0.0  # of the last pass
        self._last = 1, 1  # its sequences and rows

    def abandoned(self) -> bool:
        """After a fork: whether a thread that is not here has a lock, or leads, for ever."""
        free = [lock for lock in (self.mutex, self._loaded.lock) if lock.acquire(blocking=False)]
        for lock in free:
            lock.release()
        return len(free) < 2 or self._leading not in (0, threading.get_ident())

    def register(self, sequence: TokenSequence) -> None:
        """From now on its pages may be taken back for others."""
        with self.mutex:  # not while somebody looks through them all
            self.sequences.add(sequence)

    @contextmanager
    def phase(self, sequence: TokenSequence) -> Iterator[None]:
        """The sequence asks for rows again and again: passes may wait a moment for it."""
        sequence.began = time.perf_counter()
        with self.mutex:
            self._active[sequence] = 0.0
        try:
            yield
        finally:
            with self.mutex:
                self._left.pop(sequence, None)
                self._active.pop(sequence, None)

    def compute(self, rows: Rows) -> None:
        """Have rows computed: all of them, or the first ones of a prompt; `rows` tells what came.

        None are where another sequence has just computed the same: they can be taken over.

        Raises:
            PassCancelledError: the sequence was stopped.
            ModelError: the model's file was changed while in use.
            EngineError: the engine is closed, or was loaded before this process was forked.
        """
        # Before any lock: a thread of the process that this one was forked from may have it. Why
        # an engine of this process is closed, as when its file was changed, the pass says better.
        if self._loaded.pool.forked:
            self._loaded.pool.check_open()
        me = threading.get_ident()
        try:
            with self.mutex:
                self._recover(me)
                if not self._leading and len(self._active) < 2:
                    self._leading = me
            if self._leading == me and self._run_alone(rows):
                return
        finally:
            if self._leading == me:
                self._hand_over()
        self._compute(rows, me)

    def _recover(self, me: int) -> None:
        """Take back what Ctrl-C left of this thread in the midst of leading, or of waiting."""
        if self._waiting:
            for ticket in [one for one in self._waiting if one.thread == me and not one.taken]:
                self._waiting.remove(ticket)
        if self._leading == me:
            self._hand_over()
        if self._loaded.trying:
            self._loaded.give_back()

    def _run_alone(self, rows: Rows) -> bool:
        """Run rows of the only sequence that wants any; False: it needs others' memory."""
        loaded, sequence, count = self._loaded, rows.sequence, len(rows.ids)
        if count > VERIFY_TOKENS:
            count = self._part(rows, loaded.tuning.chunk)
        with loaded.lock:
            start, cache = rows.start, sequence.cache
            sequence.computing = True  # before it is looked whether it was closed: see `close`
            try:
                if start != sequence.n_cached or sequence.stopped:
                    return True
                if not cache.ready(start, start + count, undo=rows.undo):
                    with self.mutex:
                        if not self._promise(cache.wants(start, start + count, undo=rows.undo)):
                            return False
                    sequence.admitted = sequence.admitted or time.monotonic()
                self.passes += 1
                self._last = 1, count
                self._runner.run(rows, count)
            finally:
                self.computed(sequence)
        return True

    def _promise(self, nbytes: int) -> bool:
        """Whether there is room for the pages of a pass, which nobody else may take any more."""
        memory = self._loaded.layout.memory
        memory.promised = 0
        if memory.lacks(nbytes):
            return False
        memory.promised = nbytes
        return True

    def computed(self, sequence: TokenSequence) -> None:
        """No pass has rows of a sequence any more."""
        sequence.computing = False
        if sequence.closing:
            with self.mutex:
                if sequence.closing:
                    sequence.forget()

    def close(self, sequence: TokenSequence) -> None:
        """Let go of what a sequence has, from any thread: at once, or when its pass has ended.

        Its rows are in no later pass: whoever asks for some finds it closed.
        """
        with self.mutex:
            sequence.closes += 1
            sequence.stopped = sequence.closing = True
            self.withdraw(sequence)
            if not sequence.computing and sequence.closing:
                sequence.forget()
        self._runner.cancel(sequence)

    @property
    def draft_aim_s(self) -> float:
        """Seconds up to which a pass is filled with drafts: no limit where nobody else waits."""
        return self.aim_s if self.beside else inf

    @property
    def beside(self) -> int:
        """Rows of others in the last pass, as if all sequences in it had as many of them.

        So the next pass is likely to be.
        """
        sequences, rows = self._last
        return rows - rows // sequences

    def withdraw(self, sequence: TokenSequence) -> None:
        """Take back the rows of a stopped sequence that wait for a pass, from any thread."""
        with self.mutex:
            for ticket in self._waiting:
                if ticket.rows.sequence is sequence and not ticket.taken:
                    self._done(ticket)
                    return

    def _compute(self, rows: Rows, me: int) -> None:
        ticket = Ticket(rows)
        with self.mutex:
            if rows.sequence.stopped:  # since it asked
                return
            self._arrive(ticket)
            if self._leading:
                self._arrived.notify_all()
                lead = False
            else:
                lead, self._leading = True, me
        if not lead:
            self._wait(ticket)
        if lead or ticket.leads:  # also where it is done: somebody has to hand on the lead
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error

    # --- waiting and leading

    def _arrive(self, ticket: Ticket) -> None:
        sequence = ticket.rows.sequence
        left = self._left.pop(sequence, None)
        if left is not None and sequence in self._active:
            thought = ticket.since - left
            self._active[sequence] += 0.3 * (thought - self._active[sequence])
        self._waiting.append(ticket)

    def _wait(self, ticket: Ticket) -> None:
        """Until its rows are there, or it is to lead."""
        try:
            ticket.flag.acquire()
        except BaseException:  # Ctrl-C: its rows are taken back, once no pass has them
            with self.mutex:
                if ticket in self._waiting and not ticket.taken:
                    self._waiting.remove(ticket)
                leads, taken = ticket.leads, ticket.taken
            if leads:
                self._hand_over()
            elif taken:
                ticket.flag.acquire()
            raise

    def _lead(self, mine: Ticket) -> None:
        """Run passes until its own rows are there."""
        try:
            while not mine.done:
                self.step()
        finally:
            with self.mutex:
                if mine in self._waiting:
                    self._waiting.remove(mine)
            self._hand_over()

    def _hand_over(self) -> None:
        with self.mutex:
            if not self._waiting:
                self._leading = 0
                return
            following = self._waiting[0]
            following.leads, self._leading = True, following.thread
            following.flag.release()

    # --- a pass

    def step(self) -> None:
        """One pass, for those who wait."""
        self._gather()
        picked: list[tuple[Ticket, int]] = []
        changed: list[Ticket] = []
        why: PassEnd = "all"
        began, error = time.perf_counter(), None
        memory = self._loaded.layout.memory
        try:
            with self._loaded.lock:
                with self.mutex:
                    memory.promised = 0
                    picked, changed, why = self._pick()
                    memory.promised = self._promised
                    for ticket, _ in picked:
                        ticket.taken = ticket.rows.sequence.computing = True
                if len(picked) == 1:
                    self._runner.run(picked[0][0].rows, picked[0][1])
                elif picked:
                    self._runner.run_shared([(t.rows, n) for t, n in picked], why)
        except Exception as raised:
            if not picked:
                raise
            error = raised
        finally:
            ended = time.perf_counter()
            with self.mutex:
                if picked:
                    self._last_s = ended - began
                    self._last = len(picked), sum(count for _, count in picked)
                    self.passes += 1
                    self.shared += len(picked) > 1
                elif not changed:
                    with held():
                        self._arrived.wait(IDLE_S)
                for ticket, _ in picked:
                    self.computed(ticket.rows.sequence)
                    self._served(ticket, error, ended)
                for ticket in changed:
                    self._served(ticket, ticket.error, ended, again=True)

    def _served(
        self, ticket: Ticket, error: Exception | None, now: float, *, again: bool = False
    ) -> None:
        """Its pass is over: wake who waits for it."""
        ticket.taken = False
        if ticket.done:  # withdrawn meanwhile
            return
        if not ticket.rows.computed and error is None and not again:
            return  # Ctrl-C in the thread that led: another pass will take it
        ticket.error = error
        if ticket.rows.sequence in self._active:
            self._left[ticket.rows.sequence] = now
        self._done(ticket)

    def _done(self, ticket: Ticket) -> None:
        """It waits no longer."""
        ticket.done = True
        self._waiting.remove(ticket)
        if not ticket.leads:
            ticket.flag.release()

    def _gather(self) -> None:
        """Wait a moment for sequences that are about to ask for their next rows."""
        if len(self._active) < 2:
            return
        limit = min(GATHER_S, GATHER_SHARE * self._last_s)
        until = time.perf_counter() + limit
        with self.mutex:
            while self._left:
                now = time.perf_counter()
                soon = (  # of those that have not asked since
                    sequence
                    for sequence, since in self._left.items()
                    if max(self._active.get(sequence, limit), now - since) < limit
                )
                left = until - now
                if next(soon, None) is None or left <= 0:
                    return
                with held():
                    self._arrived.wait(left)

    @property
    def _timing(self) -> Autotuner:
        return self._loaded.tuning

    @property
    def _most_rows(self) -> int:
        return self._plans.prefill.most_tokens

    def _now(self) -> float:
        return time.perf_counter()

    def _somebody_decodes(self) -> bool:
        return any(sequence.decoding for sequence in self._active)

    def _expecting(self, picked: list[tuple[Ticket, int]]) -> Callable[[Sequence[Part]], float]:
        tuning = self._loaded.tuning
        reading = self._runner.reading([(ticket.rows, n) for ticket, n in picked])
        return lambda parts: tuning.expect_mixed(parts, reading)[1]

    def _finds(self, ticket: Ticket, picked: Collection[tuple[Ticket, int]]) -> bool:
        if self._known(ticket.rows):
            return True
        running = self._prefix_cache.running
        return running and any(twins(ticket.rows, other.rows) for other, _ in picked)

    def _needed(
        self, ticket: Ticket, count: int, promised: int, picked: list[tuple[Ticket, int]]
    ) -> int | None:
        """Bytes of pages that a ticket's rows need, once there is room; None: it has to wait.

        Room is made of what nobody has, then of sequences that rest, then of those that got theirs
        later. What is kept until a time is let go of before a sequence that has pages takes those
        of others, or where nobody could go on else; a new one waits. So who was first goes on to
        its end, and nobody computes again by turns. `promised`: bytes for others of this pass.
        """
        sequence = ticket.rows.sequence
        start, end, undo = sequence.n_cached, sequence.n_cached + count, ticket.rows.undo
        claimed = {
            page
            for other, rows in picked
            for page in other.rows.sequence.cache.claims(other.rows.start, other.rows.start + rows)
        }
        needed = sequence.cache.wants(start, end, claimed, undo=undo)
        memory = self._loaded.layout.memory
        if sequence.cache.state is not None and not undo and memory.lacks(promised + needed):
            sequence.cache.state.give_up_spare()  # it drafts no more, or not now
        if not needed or not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        kept = bool(sequence.admitted)
        self._prefix_cache.evict(memory.lacks(promised + needed), kept=kept)
        here = {other.rows.sequence for other, _ in picked} | {sequence}
        found = victims_for(ticket, self._waiting, self.sequences, self._active)
        victims = [one for one in found if one not in here] if self.parks else []
        lacks, freed_by = memory.lacks(promised + needed), self._prefix_cache.freed_by
        if suffices(victims, sequence, self.sequences, lacks, freed_by):
            for victim in victims:
                if not memory.lacks(promised + needed):
                    break
                self._take_back(victim)
                self._prefix_cache.evict(memory.lacks(promised + needed))
        others = [s for s in list(self.sequences) if s.cache.held and s is not sequence]
        mine = ticket.seniority
        alone = not (picked or others or any(other.seniority < mine for other in self._waiting))
        if alone or not self.parks:
            self._prefix_cache.evict(memory.lacks(promised + needed), kept=True)
            if memory.lacks(promised + needed) and (
                page := sequence.cache.page_at(sequence.n_cached)
            ):
                # It may lack room for a copy of a page that only the tree has beside it.
                self._prefix_cache.forget(page)
                needed = sequence.cache.wants(start, end, claimed, undo=undo)
                self._prefix_cache.evict(memory.lacks(promised + needed), kept=True)
        if not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        if not alone and self.parks:
            return None
        others = memory.used - sum(page.nbytes for page in sequence.cache.held)
        whole = sequence.cache.needs(end, undo=undo) + max(0, others)
        ticket.error = ContextOverflowError(
            f"{end} tokens need {whole:,} bytes of KV cache, but there are "
            f"{memory.budget:,} for all; load the model with more kv_memory, or a smaller context"
        )
        assert memory.budget is not None, "nothing is lacking without one"
        rest, wants = memory.budget - memory.used, partial(sequence.cache.wants, undo=undo)
        more = bisect_right(range(start + 1, end), rest, key=lambda n: wants(start, n))
        ticket.error.memory = end, start + more
        self._preempted.append(ticket)
        return None

    def admit(self, rows: Rows) -> bool:
        """Make room for rows that their sequence has computed by a plan of its own.

        As for those that wait for a pass; the caller has the engine's lock until then. False: there
        is none yet.

        Raises:
            ContextOverflowError: there never will be.
        """
        with self.mutex:
            ticket = Ticket(rows)
            self._loaded.layout.memory.promised = 0
            needed = self._needed(ticket, len(rows.ids), 0, [])
            if ticket.error is not None:
                self._preempted.remove(ticket)
                raise ticket.error
            return needed is not None and self._promise(needed)

    def rows_aside(self, most: int, start: int) -> int:
        """Rows of a pass that nobody shares: beside decodes, as few as the deadline asks for."""
        with self.mutex:
            if not self._somebody_decodes():
                return most
        rows = most
        while rows > FEW_ROWS and self._timing.pass_s(rows, start) > self.aim_s:
            rows //= 2
        return rows

    def _take_back(self, sequence: TokenSequence) -> None:
        """Preempt a sequence: it computes its tokens again when it goes on."""
        sequence.give_back()
        self.preempted += 1
        for ticket in self._waiting:
            if ticket.rows.sequence is sequence:
                self._preempted.append(ticket)

    def _known(self, rows: Rows) -> bool:
        """Whether another sequence has computed the next rows since they were asked for."""
        sequence, least = rows.sequence, rows.sequence.n_cached + SAME
        ids = sequence.tokens[:-1]  # as `take_over` looks: who is sent back has to find it
        return (
            sequence.shares
            and len(ids) >= least
            and self._prefix_cache.knows(sequence.cache, ids, least, sequence.namespace)
        )
