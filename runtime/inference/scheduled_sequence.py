"""A sequence that requests passes: prompts in chunks, and the rows of a decode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import EngineError, PassCancelledError
from ...jit.kernels.kvcache import PAGE
from ..forward.state import EVERY
from ..physics.costs import PassCost
from .draft_length import DraftLengthPolicy, HeadLengthPolicy
from .draft_sources import NormalizedSources
from .metrics import PhaseMetrics
from .ngram_index import NgramIndex
from .runner import Logits, Rows
from .sequence import TokenSequence

if TYPE_CHECKING:
    import numpy as np

    from ...traces.events import PhaseEvent
    from ..forward.kv import KVCache
    from .engine_core import EngineCore
    from .plan import Plan

Drafting = tuple[NgramIndex, DraftLengthPolicy, NormalizedSources, HeadLengthPolicy]


class ScheduledSequence(TokenSequence):
    """A sequence that requests passes from the scheduler.

    Attributes:
        on_progress: called between the chunks of a prefill with (done, total, tokens/s).
        metrics: what its phases did.
        speculative: how decodes need fewer passes than tokens; the engine's, if not set.
        changes: how often tokens were added or taken other than by the decode that is under way.
        draft_sources: ranges of positions, first and end, that are likely to be quoted.
        opening: of the first tokens, how many other processes' sessions will begin with, too; kept
            on disk where that pays.
    """

    def __init__(
        self,
        engine: EngineCore,
        cache: KVCache,
        context: int,
        tokens: Sequence[int] = (),
        n_cached: int = 0,
    ) -> None:
        """cache: holds the first `n_cached` of `tokens`."""
        super().__init__(cache, context, tokens, n_cached)
        self.engine = engine
        self.metrics = PhaseMetrics(engine, self)
        self.on_progress: Callable[[int, int, float], None] | None = None
        self.speculative = engine.speculative
        self.changes = 0
        self.draft_sources: Sequence[tuple[int, int]] = ()
        self.opening = 0
        self._drafting: Drafting | None = None
        self._adopted = 0  # tokens of this phase that another sequence had computed
        self._logits: Logits | None = None
        self._logits_at = -1  # number of tokens whose last one they belong to
        engine.scheduler.register(self)  # last: it is whole now

    @property
    def most_tokens(self) -> int:
        """Tokens of a prefill's pass at most."""
        return min(self.engine.tuning.chunk, self.context)

    @property
    def drafting(self) -> Drafting:
        """Where tokens stood before, how many are worth a draft, how texts are copied, and how many
        the model's own layer is to draft."""
        if self._drafting is None or self._drafting[0].tokens is not self.tokens:
            policy = DraftLengthPolicy(self.engine, self.tokens)
            copies = NormalizedSources(self.engine.tokenizer)
            own = HeadLengthPolicy(self.engine, policy)
            self._drafting = NgramIndex(self.tokens), policy, copies, own
        return self._drafting

    def wake(self) -> None:
        """A prefill will soon come: threads that sleep may as well wake up meanwhile."""
        # Not in the midst of another session's pass, which would lose its active threads.
        engine, me = self.engine, threading.get_ident()
        engine.give_back()
        engine.trying.add(me)
        if engine.lock.acquire(blocking=False):
            try:
                engine.pool.wake()
            finally:
                engine.lock.release()
        engine.trying.discard(me)

    # --- logits

    @property
    def last_logits(self) -> Logits:
        """The same as the pass left them."""
        if self._logits is None or not self.has_logits:
            raise EngineError("the last token has not been computed; compute it with prefill([])")
        return self._logits

    @property
    def has_logits(self) -> bool:
        """Whether there are logits after the last token."""
        return self._logits_at == len(self.tokens)

    def keep_logits(self) -> None:
        """The logits of the last pass are those after the last token.

        What was chosen there is forgotten: who chooses again may do so in another way.
        """
        self._logits_at = len(self.tokens)
        if self._logits is not None:
            self._logits.tokens = []

    def _release_logits(self) -> None:
        """Nobody wants them any more."""
        logits, self._logits, self._logits_at = self._logits, None, -1
        if logits is not None:
            logits.released = True

    # --- phases

    @contextmanager
    def phase(self, *, decoding: bool = False) -> Iterator[None]:
        """Rows will be asked for again and again; a stop that came before it is forgotten."""
        self.stopped, self.decoding = False, decoding
        with self.engine.scheduler.phase(self):
            try:
                yield
            except PassCancelledError:
                raise
            except Exception as error:  # its tokens have gone in the midst of something
                if self.entered != self.closes:
                    raise PassCancelledError("the session was closed") from error
                raise
            finally:
                self.decoding = False

    def check_stop(self) -> None:
        """Raise PassCancelledError if `stop` or `close` was called in this phase."""
        if self.entered != self.closes:
            raise PassCancelledError("the session was closed")
        if self.stopped:
            self.stopped = False
            raise PassCancelledError("stopped; the session keeps the tokens computed so far")

    def append(self, ids: Sequence[int]) -> None:
        """Append the tokens of a phase.

        Raises:
            PassCancelledError: the session was closed since the phase began; nothing has changed.
        """
        with self.engine.scheduler.mutex:  # a close empties the tokens meanwhile, or comes after
            if self.entered != self.closes:
                raise PassCancelledError("the session was closed")
            self.tokens.extend(ids)

    def forget(self) -> None:
        """See `TokenSequence.forget`."""
        super().forget()
        self._drafting = None
        self._release_logits()  # else the next pass copies them, for nobody

    def compute(
        self,
        purpose: str,
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> PhaseEvent:
        """Prefill tokens[n_cached:] in chunks, logits for the last one."""
        engine, metrics = self.engine, self.metrics
        cost, passes, plan_name = PassCost(), 0, engine.plans.prefill.name
        if self.tokens and not self.has_logits:
            # They come with the last token: it is computed again where all is cached.
            self.keep_cached(len(self.tokens) - 1)
        before, total = self.n_cached, len(self.tokens)
        with self.phase():
            if check is not None:
                check()
            metrics.reset()
            started = time.perf_counter()
            self._adopted = 0
            self.take_over(total)
            if self.shares and self.cache.state is None:  # no page is of use without a state
                self._recall(total)
            first, adopted = self.n_cached // PAGE, self._adopted
            opening = self._opening_to_keep(total)
            while self.n_cached < total:
                self.take_over(total)
                at = self.n_cached
                end = self._pass_end(at, total, borders, opening)
                rows = self.ask(at, self.tokens[at:end], int(end == total))
                if not rows.computed:
                    continue
                self._keep_state(borders or (total,))
                if opening and self.n_cached == opening:
                    self._keep_opening(opening, first, adopted)
                cost += metrics.cost(rows, at)
                if passes == 0 and rows.plan is not None:
                    # One token is not worth its own plan name unless it is all there was.
                    plan_name = rows.plan.name
                passes += 1
                if self.on_progress and self.n_cached < total:
                    done = self.n_cached - before
                    rate = done / (time.perf_counter() - started)
                    self.on_progress(done, total - before, rate)
            wall = time.perf_counter() - started
            self._logits_at = total or -1
            spent = metrics.spent()
        ids, adopted = self.tokens[before:total], min(self._adopted, total - before)
        return metrics.finish(
            "prefill", purpose, ids, before, wall, spent, cost, passes, plan_name, adopted
        )

    def _pass_end(self, at: int, total: int, borders: Sequence[int], opening: int) -> int:
        """Where passes from position `at` on have to end at the latest."""
        ends = (opening,) if self.cache.state is None else borders
        return min((n for n in ends if at < n < total), default=total)

    def _keep_state(self, borders: Sequence[int]) -> None:
        """Keep a copy of the state where a text is likely to be gone on from."""
        state, at = self.cache.state, self.n_cached
        if state is None:
            return
        last = state.checkpoints[-1].position if state.checkpoints else 0
        if at not in borders and at - last < EVERY:
            return
        with self.engine.lock:
            if state.position == at:  # pages may be taken back meanwhile
                state.keep()
                self.keep_prefix()

    def take_over(self, total: int) -> None:
        """Take over what is known of the tokens that follow; the last one is computed here.

        Before many rows are asked for, each time: the scheduler sends back who could.
        """
        if not self.shares:
            return
        cache = self.engine.prefix_cache
        with self.engine.scheduler.mutex:
            if self.entered != self.closes:  # closed since: what it had is of another text
                return
            ids = self.tokens[: total - 1]
            known = cache.adopt(self.cache, ids, self.n_cached, self.namespace)
            # What was taken over and taken back since does not count twice.
            self._adopted = min(self._adopted, self.n_cached) + known - self.n_cached
            self.n_cached = known

    def _recall(self, total: int) -> None:
        """Read back what is on disk of the tokens that follow; the last one is computed here."""
        before, self.recalled = self.n_cached, 0
        opening = self.opening if before < self.opening < total else 0
        if total <= (before // PAGE + 1) * PAGE and not opening:  # no page of them is whole
            return
        spill, ids = self.engine.spill, self.tokens[: total - 1]
        for number, end, data in spill.recall(ids, before // PAGE, self.namespace, opening):
            if not self._take_in(number, end, data):
                break
            self.recalled += len(data)
        self._adopted += self.n_cached - before

    def _opening_to_keep(self, total: int) -> int:
        """Where the opening ends, if all pages behind what is cached of it will be new; else 0."""
        at, end = self.n_cached, self.opening
        new = at % PAGE == 0 and at == len(self.cache.held) * PAGE
        shared = self.shares and self.cache.state is None
        wanted = shared and new and at < end < total and self.engine.spill.wants(end, at)
        return end if wanted else 0

    def _keep_opening(self, end: int, first: int, adopted: int) -> None:
        """Have the opening's pages written, unless something of other sessions' is on them.

        first: the first page that was computed here; adopted: what `_adopted` was then.
        """
        with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
            pages = self.cache.held[first : -(-end // PAGE)]
            if self.n_cached != end or self._adopted != adopted or not all(p.whole for p in pages):
                return
            copies = [page.data.copy() for page in pages]
        self.engine.spill.keep(self.tokens[:end], first, copies, self.namespace)

    def _take_in(self, number: int, end: int, data: np.ndarray) -> bool:
        """Go on behind the page with this number, as it was read from disk, if there is room.

        end: how many tokens it ends behind.
        """
        engine = self.engine
        with engine.scheduler.mutex:
            if self.entered != self.closes:
                return False
            if self.n_cached // PAGE != number or self.n_cached >= end:
                return False
            if not engine.prefix_cache.make_room(len(data)):
                return False
            if not self.cache.goes_on(number * PAGE):
                return False
            self.cache.clear(number)
            self.cache.append(data)
            self.n_cached = end
            self.admitted = self.admitted or time.monotonic()
        return True

    def keep_cached(self, n: int) -> None:
        """Count on no more than the first `n` positions of the KV cache."""
        with self.engine.scheduler.mutex:
            self.go_back(n)

    def count_on(self, known: int, drafted: int) -> None:
        """Of a pass that computed a draft behind `known` positions, count on so many tokens of it.

        Not where the pages were taken back since.
        """
        with self.engine.scheduler.mutex:
            if self.n_cached >= known:
                self.n_cached = self.cache.seek(known + drafted)

    def keep_prefix(self) -> None:
        """Let others find what it has computed, if it shares."""
        if self.shares:
            with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
                if self.n_cached:
                    known = self.engine.prefix_cache
                    known.add(self.cache, self.tokens, self.n_cached, self.namespace)

    # --- passes

    def ask(
        self,
        start: int,
        ids: Sequence[int],
        outputs: int,
        masks: Sequence[np.ndarray | None] = (),
        panels: np.ndarray | None = None,
        pick: Callable[[np.ndarray], int] | None = None,
    ) -> Rows:
        """Have the next rows computed, by a pass that other sequences may share.

        ids: tokens that follow the first `start`, which are cached; of many a pass may take the
        first ones only, and of any none: see `Rows.computed`.
        """
        if self.stopped or self.entered != self.closes:
            self.check_stop()
        self._release_logits()
        rows = Rows(self, start, ids, outputs, masks, panels, pick)
        self.engine.scheduler.compute(rows)
        self.used = time.monotonic()
        self._logits = rows.logits
        if self.stopped:
            self.check_stop()
        return rows

    def run_pass(self, plan: Plan, part: Sequence[int], outputs: int) -> Rows:
        """One pass of `part`, which follows what is cached, on a plan of its own."""
        self._release_logits()
        with self.engine.lock:
            self.computing = True
            try:
                rows = Rows(self, self.n_cached, part, outputs)
                self.engine.runner.run(rows, len(part), plan)
            finally:
                self.engine.scheduler.computed(self)
        self.used = time.monotonic()
        self._logits = rows.logits
        return rows
