"""Who is in the next pass: rows of every sequence that waits, as many as the deadline allows.

Sessions live in threads of their own. One that wants rows computed asks for them and waits; the
first one that does so leads: it runs passes for everybody who waits until its own rows are there,
and hands the lead to the next. So a session that is alone runs its passes in its own thread with
nothing in between, and many sessions share passes without a thread more.

What a row gets does not depend on its company, bit for bit; so a schedule changes times only.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import ContextOverflowError
from ..forward.logits import ROWS
from ..physics.costs import Part
from .speculative_config import VERIFY_TOKENS
from .tickets import SAME, Ticket, seniority, twins

if TYPE_CHECKING:
    from ...traces.events import PassEnd
    from .loaded_model import LoadedModel
    from .plan import Plans
    from .prefix_cache import PrefixCache
    from .runner import Rows, Runner
    from .sequence import TokenSequence

DEADLINE_S = 0.1  # between two tokens of a session beside another one's prefill
HEADROOM = 0.8  # of the deadline, up to which a pass is filled: predictions err
GATHER_S = 10e-3  # that a pass waits at most for sessions that are about to ask for their next rows
GATHER_SHARE = 0.25  # of the last pass, likewise
REST_S = 1.0  # after which a session that asks for nothing counts as resting: a tool takes long
IDLE_S = 2e-3  # between looks for memory where nobody can go on
AGING = 0.5  # seconds of work that a second of waiting is worth against shorter prompts


class Scheduler:
    """Puts rows into passes.

    Attributes:
        deadline_s: the longest gap between two tokens of a sequence that passes aim at while they
            compute prompts beside it.
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
        self._loaded, self._plans, self._runner = loaded, plans, runner
        self._prefix_cache = prefix_cache
        self.sequences: weakref.WeakSet[TokenSequence] = weakref.WeakSet()
        self.deadline_s = DEADLINE_S
        self.parks = True
        self.passes = self.shared = self.preempted = 0
        self._preempted: list[Ticket] = []  # while passes are put together
        # Reentrant: `stop` may be called by a signal handler, in the midst of anything.
        self.mutex = threading.RLock()
        self._arrived = threading.Condition(self.mutex)
        self._waiting: list[Ticket] = []
        self._leading = False
        self._active: dict[TokenSequence, float] = {}  # in a phase: seconds between rows
        self._left: dict[TokenSequence, float] = {}  # when it got its last rows
        self._last_s = 0.0  # of the last pass
        self._last = 1, 1  # its sequences and rows

    def register(self, sequence: TokenSequence) -> None:
        """From now on its pages may be taken back for others."""
        with self.mutex:  # not while somebody looks through them all
            self.sequences.add(sequence)

    @contextmanager
    def phase(self, sequence: TokenSequence) -> Iterator[None]:
        """The sequence asks for rows again and again: passes may wait a moment for it."""
        with self.mutex:
            self._active[sequence] = 0.0
        try:
            yield
        finally:
            with self.mutex:
                self._active.pop(sequence, None)
                self._left.pop(sequence, None)

    def compute(self, rows: Rows) -> None:
        """Have rows computed: all of them, or the first ones of a prompt; `rows` tells what came.

        None are where another sequence has just computed the same: they can be taken over.

        Raises:
            PassCancelledError: the sequence was stopped.
            ModelError: the model's file was changed while in use.
        """
        with self.mutex:
            alone = not self._leading and len(self._active) < 2
            if alone:
                self._leading = True
        if alone:
            try:
                if self._run_alone(rows):
                    return
            finally:
                self._hand_over()
        self._compute(rows)

    def _run_alone(self, rows: Rows) -> bool:
        """Run rows of the only sequence that wants any; False: it needs others' memory."""
        loaded, sequence, count = self._loaded, rows.sequence, len(rows.ids)
        if count > VERIFY_TOKENS:
            count = self._part(rows, loaded.tuning.chunk)
        with loaded.lock:
            start, cache = rows.start, sequence.cache
            if start != sequence.n_cached:
                return True
            if not cache.ready(start, start + count):
                if loaded.layout.memory.lacks(cache.wants(start, start + count)):
                    return False
                sequence.admitted = sequence.admitted or time.monotonic()
            self.passes += 1
            self._last = 1, count
            self._runner.run(rows, count)
        return True

    @property
    def aim_s(self) -> float:
        """Seconds up to which a pass is filled where somebody waits for the token after it."""
        return HEADROOM * self.deadline_s

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

    def _compute(self, rows: Rows) -> None:
        ticket = Ticket(rows)
        with self.mutex:
            if rows.sequence.stopped:  # since it asked
                return
            self._arrive(ticket)
            if self._leading:
                self._arrived.notify_all()
                lead = False
            else:
                lead = self._leading = True
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
                self._leading = False
                return
            following = self._waiting[0]
            following.leads = True
            following.flag.release()

    # --- a pass

    def step(self) -> None:
        """One pass, for those who wait."""
        self._gather()
        picked: list[tuple[Ticket, int]] = []
        changed: list[Ticket] = []
        why: PassEnd = "all"
        began, error = time.perf_counter(), None
        try:
            with self._loaded.lock:
                with self.mutex:
                    picked, changed, why = self._pick()
                    for ticket, _ in picked:
                        ticket.taken = True
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
                    self._arrived.wait(IDLE_S)
                for ticket, _ in picked:
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
                    if max(self._active[sequence], now - since) < limit
                )
                left = until - now
                if next(soon, None) is None or left <= 0:
                    return
                self._arrived.wait(left)

    def _pick(self) -> tuple[list[tuple[Ticket, int]], list[Ticket], PassEnd]:
        """Who is in the next pass, with how many rows; who has to ask again; why no more rows."""
        changed: list[Ticket] = []
        prompts: list[Ticket] = []
        picked: list[tuple[Ticket, int]] = []
        outputs = taken = promised = 0
        most = self._plans.prefill.most_tokens
        why: PassEnd = "all"
        for ticket in self._waiting:
            rows = ticket.rows
            start, count, wanted = rows.start, len(rows.ids), rows.outputs
            if ticket in self._preempted:
                continue  # for one before it
            if start != rows.sequence.n_cached:
                changed.append(ticket)
            elif not ticket.decodes:
                prompts.append(ticket)
            elif outputs + wanted > ROWS or taken + count > most:
                why = "limit"
            else:
                if not rows.sequence.cache.ready(start, start + count):
                    needed = self._needed(ticket, count, promised, picked)
                    if needed is None:
                        why = "memory"
                        continue
                    promised += needed
                picked.append((ticket, count))
                outputs, taken = outputs + wanted, taken + count
        prompts.sort(key=self._urgency)
        room, end = self._room(picked, prompts, most - taken) if prompts else (0, why)
        for ticket in prompts:
            if ticket in self._preempted:
                continue
            known = self._known(ticket.rows)
            if self._prefix_cache.running:
                known = known or any(twins(ticket.rows, t.rows) for t, _ in picked)
            if known:
                changed.append(ticket)
                why = "prefix"
                continue
            count = self._part(ticket.rows, room)
            whole = count == len(ticket.rows.ids)
            wanted = ticket.rows.outputs if whole else 0
            if count < 1 or outputs + wanted > ROWS:
                why = end if count < 1 else "limit"
                break
            needed = self._needed(ticket, count, promised, picked)
            if needed is None:
                why = "memory"
                continue
            picked.append((ticket, count))
            outputs, room, promised = outputs + wanted, room - count, promised + needed
            why = why if whole else end
        changed += self._preempted
        self._preempted = []
        return picked, changed, why

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
        needed = sequence.cache.wants(sequence.n_cached, sequence.n_cached + count)
        memory = self._loaded.layout.memory
        if not needed or not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        kept = bool(sequence.admitted)
        self._prefix_cache.evict(memory.lacks(promised + needed), kept=kept)
        here = {other.rows.sequence for other, _ in picked} | {sequence}
        victims = [v for v in self._victims(ticket) if v not in here] if self.parks else []
        if self._suffices(victims, sequence, memory.lacks(promised + needed)):
            for victim in victims:
                if not memory.lacks(promised + needed):
                    break
                self._take_back(victim)
                self._prefix_cache.evict(memory.lacks(promised + needed))
        others = [s for s in list(self.sequences) if s.cache.held and s is not sequence]
        mine = seniority(ticket)
        alone = not (picked or others or any(seniority(other) < mine for other in self._waiting))
        if alone or not self.parks:
            self._prefix_cache.evict(memory.lacks(promised + needed), kept=True)
        if not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        if not alone and self.parks:
            return None
        whole = sequence.cache.wants(0, sequence.n_cached + count) + memory.used
        ticket.error = ContextOverflowError(
            f"{sequence.n_cached + count} tokens need {whole:,} bytes of KV cache, but there are "
            f"{memory.budget:,} for all; load the model with more kv_memory, or a smaller context"
        )
        self._preempted.append(ticket)
        return None

    def _victims(self, ticket: Ticket) -> list[TokenSequence]:
        """Whose pages may be taken back for a ticket: who rests first, then who came last."""
        waiting = {other.rows.sequence: other for other in self._waiting}
        now, mine = time.monotonic(), seniority(ticket)
        resting = [
            sequence
            for sequence in list(self.sequences)
            if sequence.cache.held
            and sequence not in waiting
            and (sequence not in self._active or now - sequence.used > REST_S)
        ]
        # Between two of its phases a sequence is not at rest yet, unless it is all there is.
        fresh = {sequence for sequence in resting if now - sequence.used <= REST_S}
        if len(self._active) > 1:
            resting = [sequence for sequence in resting if sequence not in fresh]
        resting.sort(key=lambda sequence: sequence.used)
        later = [o for s, o in waiting.items() if s.cache.held and seniority(o) > mine]
        later.sort(key=seniority, reverse=True)
        return [*resting, *(other.rows.sequence for other in later)]

    def _suffices(self, victims: list[TokenSequence], sequence: TokenSequence, wanted: int) -> bool:
        """Whether the pages of these may be taken back: that gives a sequence what it wants.

        Or they are all there are. Else it waits for the others; who were to start over and over
        meanwhile would only be in their way.
        """
        held = Counter(page for one in list(self.sequences) for page in one.cache.held)
        theirs = Counter(page for one in victims for page in one.cache.held)
        if held == theirs + Counter(sequence.cache.held):
            return True
        return wanted <= sum(page.nbytes for page, n in theirs.items() if n == held[page])

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

    def _part(self, rows: Rows, room: int) -> int:
        """Rows of a prompt that one pass takes: equal parts of what is left, `room` at most."""
        most = min(room, rows.sequence.context)
        return self._loaded.tuning.next_chunk(len(rows.ids), most) if most > 0 else 0

    def _urgency(self, ticket: Ticket) -> float:
        """Short prompts first, but nobody for ever: seconds of work, less those of waiting."""
        rows = ticket.rows
        work = self._loaded.tuning.pass_s(len(rows.ids), rows.sequence.n_cached)
        return work - AGING * (time.perf_counter() - ticket.since)

    def _room(
        self, picked: list[tuple[Ticket, int]], prompts: list[Ticket], left: int
    ) -> tuple[int, PassEnd]:
        """Rows of prompts that fit into a pass that has room for `left`, and what ends them.

        Beside those who decode, the most with which it is predicted to end by the deadline: as if
        all were the first prompt's.
        """
        tuning = self._loaded.tuning
        high = min(tuning.chunk, left)
        end: PassEnd = "chunk" if tuning.chunk <= left else "limit"
        if not picked and not any(sequence.decoding for sequence in self._active):
            return high, end
        others = [Part(n, t.rows.start, t.rows.outputs) for t, n in picked]
        start = prompts[0].rows.start

        def fits(count: int) -> bool:
            seconds = tuning.expect_mixed([*others, Part(count, start, 1)])[1]
            return seconds <= self.aim_s

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
