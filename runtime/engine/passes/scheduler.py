"""The batch scheduler: a pass takes rows of all waiting sequences, up to the latency deadline.

Sessions live in threads of their own. One that wants rows computed adds a request and waits; the
first one to do so leads: it runs passes for all waiting requests until its own rows are computed,
and hands the lead to the next. So a session that is alone runs its passes in its own thread with
nothing in between, and many sessions share passes without a thread more.

Results are batch-invariant, bit for bit, so a schedule affects latency alone.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....errors import PassCancelledError
from ....interrupts import held
from ....jit.kernels.kvcache import PAGE
from ..policy.pass_policy import PassPolicy
from .page_memory import PageMemory
from .pending import SAME, PendingRequest, same_prefix
from .request import WHOLE_ROWS, Batch, StepResult
from .sequence import Status

if TYPE_CHECKING:
    from ...physics.costs import Part
    from ..kv.prefix_cache import PrefixCache
    from ..model.loaded_model import LoadedModel
    from ..model.plan import Plan, Plans
    from ..policy.autotune import Autotuner
    from .request import Request
    from .runner import Runner
    from .sequence import TokenSequence

GATHER_S = 10e-3  # that a pass waits at most for sessions that are about to ask for their next rows
GATHER_SHARE = 0.25  # of the last pass, likewise
FEW_ROWS = 16  # with which a pass of its own makes do beside decodes
IDLE_S = 2e-3  # between looks for memory where no sequence can continue


class Scheduler(PassPolicy[PendingRequest]):
    """The batch scheduler: puts rows of waiting sequences into passes, and runs these.

    Attributes:
        passes, shared: passes that were run, and those of them with rows of several sequences.
        sequences: all that are registered.
        pages: the memory of their KV caches.
        beside: rows of others in the last pass, as if all sequences in it had as many of them. So
            the next pass is likely to be.
        mutex: while a thread has it, no pages are evicted. Never held during a pass.
    """

    def __init__(
        self, loaded: LoadedModel, plans: Plans, runner: Runner, prefix_cache: PrefixCache
    ) -> None:
        super().__init__()
        self._loaded, self._plans, self._runner = loaded, plans, runner
        self._prefix_cache = prefix_cache
        self.sequences: weakref.WeakSet[TokenSequence] = weakref.WeakSet()
        self.passes = self.shared = 0
        # Reentrant: `stop` may be called by a signal handler, in the midst of anything. One lock
        # for the prefixes too: the collector may close a decode in whatever thread has either.
        self.mutex = prefix_cache.lock
        self._arrived = threading.Condition(self.mutex)
        self._leading = 0  # the thread that runs passes
        self._active: dict[TokenSequence, float] = {}  # in a phase: seconds between rows
        self._left: dict[TokenSequence, float] = {}  # when it got its last rows
        self._last_s = 0.0  # of the last pass
        self._picked: list[PendingRequest] = []  # those that the pass that runs has rows of
        self.beside = 0
        self.pages = PageMemory(
            loaded.layout.memory,
            prefix_cache,
            self.sequences,
            self._active,
            self._waiting,
            self._preempted,
        )

    def abandoned(self) -> bool:
        """Return whether, after a fork, a missing thread holds a lock or the lead for ever."""
        free = [lock for lock in (self.mutex, self._loaded.lock) if lock.acquire(blocking=False)]
        for lock in free:
            lock.release()
        return len(free) < 2 or self._leading not in (0, threading.get_ident())

    def register(self, sequence: TokenSequence) -> None:
        """Register a sequence: from now on its pages may be evicted for others."""
        with self.mutex:  # not while another thread iterates over them
            self.sequences.add(sequence)

    @contextmanager
    def phase(self, sequence: TokenSequence, status: Status = Status.PREFILL) -> Iterator[None]:
        """Mark a sequence as active, so that passes may wait a moment for its rows.

        An earlier stop has no effect on the phase.
        """
        sequence.status, sequence.began = status, time.perf_counter()
        with self.mutex:
            self._active[sequence] = 0.0
        try:
            yield
        except PassCancelledError:
            raise
        except Exception as error:  # its tokens have gone in the midst of something
            if sequence.epoch != sequence.generation:
                raise PassCancelledError("the session was closed") from error
            raise
        finally:
            with self.mutex:
                self._left.pop(sequence, None)
                self._active.pop(sequence, None)
            sequence.status = Status.IDLE

    def compute(self, request: Request) -> StepResult:
        """Compute rows of a request: all of them, or the first ones of a prompt.

        Computes none where another sequence has just computed the same: they can be adopted.

        Raises:
            PassCancelledError: the sequence was stopped, or closed since its phase began.
            ModelError: the model's file was changed while in use.
            EngineError: the engine is closed, or was loaded before this process was forked.
        """
        sequence = request.sequence
        if sequence.status is Status.STOPPED or sequence.epoch != sequence.generation:
            sequence.check_stop()
        # Before any lock: a thread of the process that this one was forked from may have it. Why
        # an engine of this process is closed, as when its file was changed, the pass says better.
        if self._loaded.pool.forked:
            self._loaded.pool.check_open()
        logits, sequence.logits, sequence.logits_at = sequence.logits, None, -1
        if logits is not None:
            logits.released = True
        me = threading.get_ident()
        try:
            with self.mutex:
                self._recover(me)
                if not self._leading and len(self._active) < 2:
                    self._leading = me
            result = self._run_alone(request) if self._leading == me else None
        finally:
            if self._leading == me:
                self._hand_over()
        if result is None:
            result = self._wait_for(request, me)
        sequence.used, sequence.logits = time.monotonic(), result.logits
        if sequence.status is Status.STOPPED:
            sequence.check_stop()
        return result

    def _recover(self, me: int) -> None:
        """Undo what Ctrl-C left of this thread while it led or waited."""
        if self._waiting:
            for one in [one for one in self._waiting if one.thread == me and not one.taken]:
                self._waiting.remove(one)
        if self._leading == me:
            self._hand_over()
        if self._loaded.trying:
            self._loaded.give_back()

    def _run_alone(self, request: Request) -> StepResult | None:
        """Run rows of the only active sequence; None: it needs others' memory."""
        loaded, sequence, count = self._loaded, request.sequence, len(request.ids)
        if count > WHOLE_ROWS:
            count = self._part(request, loaded.tuning.chunk)
        with loaded.lock:
            start, end, cache = request.start, request.start + count, sequence.cache
            undo = request.outputs > 1
            sequence.computing = True  # before it is looked whether it was closed: see `close`
            try:
                if start != sequence.n_cached or sequence.status is Status.STOPPED:
                    return StepResult()
                ready = cache.ready(start, end, undo=undo)
                if not ready:
                    with self.mutex:
                        if not self.pages.promise(cache.wants(start, end, undo=undo)):
                            return None
                    sequence.admitted = sequence.admitted or time.monotonic()
                self.passes += 1
                self.beside = 0
                return self.run(Batch(((request, count),)), writable=ready)[0]
            finally:
                self.computed(sequence)

    def run_on(self, plan: Plan, request: Request) -> StepResult:
        """Run all rows of a request in a pass of their own, on a given plan."""
        sequence = request.sequence
        sequence.release_logits()
        with self._loaded.lock:
            sequence.computing = True
            try:
                result = self.run(Batch.whole(request), plan)[0]
            finally:
                self.computed(sequence)
        sequence.used, sequence.logits = time.monotonic(), result.logits
        return result

    def run(
        self,
        batch: Batch,
        plan: Plan | None = None,
        *,
        writable: bool = False,
        results: list[StepResult] | None = None,
    ) -> list[StepResult]:
        """Run a batch and commit it; the caller has the engine's lock.

        plan: another one than usual. writable: its pages are known to be its own. results: where
            they go before anything is committed, as Ctrl-C may come right after that.

        Raises:
            PassCancelledError: all of its sequences were stopped; nothing was computed.
            ModelError: the model's file was changed while in use.
        """
        try:
            for request, count in batch.parts:
                start, cache = request.start, request.sequence.cache
                assert start == request.sequence.n_cached, "it asked behind what is cached"
                assert 0 < count <= len(request.ids), "a pass has rows of each"
                if not writable or cache.state is not None:
                    cache.make_writable(start, start + count, undo=request.outputs > 1)
            self._loaded.layout.memory.promised = 0
            found = self._runner.run(batch, plan)
            if results is not None:
                results += found
            for request, count in batch.parts:
                self._commit(request.sequence, request.start + count, count)
            return found
        except BaseException:
            # Of KV caches nothing has to be undone; states go back to where they are known.
            if self._loaded.layout.states is not None:
                for request, _ in batch.parts:
                    sequence = request.sequence
                    sequence.n_cached = sequence.cache.seek(sequence.n_cached)
            raise

    def _commit(self, sequence: TokenSequence, end: int, count: int) -> None:
        """Commit a pass: `count` more rows of a sequence are cached, up to position `end`."""
        # In this order: Ctrl-C in between costs that the rows are computed again.
        if sequence.cache.state is not None:
            sequence.cache.computed(end)
        sequence.n_cached = end
        # A full page is added to the tree before its windowed layers are released.
        known = self._prefix_cache
        if sequence.shares and known.running and (count > 1 or end % PAGE == 0):
            known.add(sequence.cache, sequence.tokens, end, sequence.namespace)
        if self._loaded.layout.window:
            sequence.cache.slide(end)

    def computed(self, sequence: TokenSequence) -> None:
        """Mark a sequence as having no rows in a pass any more; finish a close that waited."""
        sequence.computing = False
        if sequence.closing:
            with self.mutex:
                if sequence.closing:
                    sequence.reset()

    def close(self, sequence: TokenSequence) -> None:
        """Drop a sequence's tokens and pages, from any thread: now, or when its pass has ended.

        Its rows are in no later pass: a request for more finds it closed.
        """
        with self.mutex:
            sequence.generation += 1
            sequence.status, sequence.closing = Status.STOPPED, True
            self.withdraw(sequence)
            if not sequence.computing and sequence.closing:
                sequence.reset()
        self._runner.cancel(sequence)

    def stop(self, sequence: TokenSequence) -> None:
        """End a sequence's phase, from any thread."""
        sequence.status = Status.STOPPED
        self.withdraw(sequence)
        self._runner.cancel(sequence)

    def withdraw(self, sequence: TokenSequence) -> None:
        """Withdraw the waiting rows of a stopped sequence, from any thread."""
        with self.mutex:
            for pending in self._waiting:
                if pending.request.sequence is sequence and not pending.taken:
                    self._done(pending)
                    return

    def _wait_for(self, request: Request, me: int) -> StepResult:
        """Wait until a pass has taken the request, or lead passes until then."""
        pending = PendingRequest(request)
        with self.mutex:
            if request.sequence.status is Status.STOPPED:  # since it asked
                return pending.result
            self._arrive(pending)
            if self._leading:
                self._arrived.notify_all()
                lead = False
            else:
                lead, self._leading = True, me
        if not lead:
            self._wait(pending)
        if lead or pending.leads:  # also where it is done: it has to hand on the lead
            self._lead(pending)
        if pending.error is not None:
            raise pending.error
        return pending.result

    # --- waiting and leading

    def _arrive(self, pending: PendingRequest) -> None:
        sequence = pending.request.sequence
        left = self._left.pop(sequence, None)
        if left is not None and sequence in self._active:
            thought = pending.since - left
            self._active[sequence] += 0.3 * (thought - self._active[sequence])
        self._waiting.append(pending)

    def _wait(self, pending: PendingRequest) -> None:
        """Wait until its rows are computed, or it has to lead."""
        try:
            pending.flag.acquire()
        except BaseException:  # Ctrl-C: its rows are withdrawn, once no pass has them
            with self.mutex:
                if pending in self._waiting and not pending.taken:
                    self._waiting.remove(pending)
                leads, taken = pending.leads, pending.taken
            if leads:
                self._hand_over()
            elif taken:
                pending.flag.acquire()
            raise

    def _lead(self, mine: PendingRequest) -> None:
        """Run passes until the thread's own rows are computed."""
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
        """Run one pass for the waiting requests: gather, schedule, run and commit, wake."""
        self._gather()
        batch, changed, error = None, list[PendingRequest](), None
        results: list[StepResult] = []
        began = time.perf_counter()
        try:
            with self._loaded.lock:
                batch, changed = self._schedule()
                if batch is not None:
                    self.run(batch, results=results)
        except Exception as raised:
            if batch is None:
                raise
            error = raised
        finally:
            self._finish(batch, results, changed, error, began)

    def _schedule(self) -> tuple[Batch | None, list[PendingRequest]]:
        """Pick the next pass and the requests to retry; reserve the memory that it needs."""
        memory = self._loaded.layout.memory
        with self.mutex:
            memory.promised = 0
            picked, changed, why = self._pick()
            memory.promised = self._promised
            self._picked = [pending for pending, _ in picked]
            for pending in self._picked:
                pending.taken = pending.request.sequence.computing = True
        parts = tuple((pending.request, count) for pending, count in picked)
        return (Batch(parts, why) if parts else None), changed

    def _finish(
        self,
        batch: Batch | None,
        results: list[StepResult],
        changed: list[PendingRequest],
        error: Exception | None,
        began: float,
    ) -> None:
        """Give the requests of a pass their results, and wake the threads that wait for them."""
        ended = time.perf_counter()
        with self.mutex:
            picked, self._picked = self._picked, []
            if batch is not None:
                sequences, rows = len(picked), sum(count for _, count in batch.parts)
                self._last_s = ended - began
                self.beside = rows - rows // sequences
                self.passes += 1
                self.shared += sequences > 1
            elif not changed:
                with held():
                    self._arrived.wait(IDLE_S)
            for n, pending in enumerate(picked):
                if results:
                    pending.result = results[n]
                self.computed(pending.request.sequence)
                self._served(pending, error, ended)
            for pending in changed:
                self._served(pending, pending.error, ended, again=True)

    def _served(
        self, pending: PendingRequest, error: Exception | None, now: float, *, again: bool = False
    ) -> None:
        """Complete a request whose pass is over, unless another pass has to take it."""
        pending.taken = False
        if pending.done:  # withdrawn meanwhile
            return
        if not pending.result.computed and error is None and not again:
            return  # Ctrl-C in the thread that led: another pass will take it
        pending.error = error
        if pending.request.sequence in self._active:
            self._left[pending.request.sequence] = now
        self._done(pending)

    def _done(self, pending: PendingRequest) -> None:
        """Complete a request and wake its thread."""
        pending.done = True
        self._waiting.remove(pending)
        if not pending.leads:
            pending.flag.release()

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
    def _max_rows(self) -> int:
        return self._plans.prefill.max_tokens

    def _now(self) -> float:
        return time.perf_counter()

    def _any_decodes(self) -> bool:
        return any(sequence.status is Status.DECODE for sequence in self._active)

    def _expecting(
        self, picked: list[tuple[PendingRequest, int]]
    ) -> Callable[[Sequence[Part]], float]:
        tuning = self._loaded.tuning
        reading = self._runner.reading([(pending.request, n) for pending, n in picked])
        return lambda parts: tuning.expect_mixed(parts, reading)[1]

    def _finds(
        self, pending: PendingRequest, picked: Collection[tuple[PendingRequest, int]]
    ) -> bool:
        if self._is_prefix_cached(pending.request):
            return True
        running = self._prefix_cache.running
        return running and any(same_prefix(pending.request, other.request) for other, _ in picked)

    def _needed(
        self,
        pending: PendingRequest,
        count: int,
        promised: int,
        picked: list[tuple[PendingRequest, int]],
    ) -> int | None:
        return self.pages.needed(pending, count, promised, picked)

    def admit(self, request: Request) -> bool:
        """Make room in the KV cache for a pass that has rows of this one sequence.

        The caller holds the engine's lock until the pass. Returns False if there is no room yet.

        Raises:
            ContextOverflowError: there never will be.
        """
        with self.mutex:
            pending = PendingRequest(request)
            self._loaded.layout.memory.promised = 0
            needed = self._needed(pending, len(request.ids), 0, [])
            if pending.error is not None:
                self._preempted.remove(pending)
                raise pending.error
            return needed is not None and self.pages.promise(needed)

    def rows_aside(self, most: int, start: int) -> int:
        """Return the rows of an unshared pass: `most`, or fewer while others decode."""
        with self.mutex:
            if not self._any_decodes():
                return most
        rows = most
        while rows > FEW_ROWS and self._timing.pass_s(rows, start) > self.aim_s:
            rows //= 2
        return rows

    def _is_prefix_cached(self, request: Request) -> bool:
        """Return whether another sequence has computed the next rows since the request."""
        sequence, least = request.sequence, request.sequence.n_cached + SAME
        ids = sequence.tokens[:-1]  # as `adopt_prefix` looks: who is sent back has to find it
        return (
            sequence.shares
            and len(ids) >= least
            and self._prefix_cache.knows(sequence.cache, ids, least, sequence.namespace)
        )
