"""One conversation on an engine: its tokens, its KV cache, and the passes that extend them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...arguments import as_list, check_whole
from ...errors import ContextOverflowError, EngineError, PassCancelledError, SettingError
from ...jit.kernels.kvcache import PAGE
from ...jit.tape import TapeTimes
from ...traces.events import PassEvent, PhaseEvent
from ..forward.graph import GraphBuilder
from ..forward.kv import KVCache
from ..forward.state import EVERY
from ..physics.costs import PassCost
from .decoding import Constraint, Decoding
from .draft_length import DraftLengthPolicy
from .draft_sources import NormalizedSources
from .metrics import PhaseMetrics, Spent
from .ngram_index import NgramIndex
from .plan import Plan
from .runner import Logits, Rows
from .sampling import GREEDY, Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from .engine import Engine
    from .kv_snapshot import Saved

SCORE_CHUNK = 32  # tokens of one pass that keeps every token's logits

G = TypeVar("G", bound=GraphBuilder)
_NUMBERS = itertools.count(1)


def _check_purpose(purpose: object) -> None:
    if not isinstance(purpose, str):
        raise EngineError(f"purpose must be a text, not {purpose!r}")


class Session:
    """Tokens and their KV cache.

    Attributes:
        tokens: every accepted token, in order.
        n_cached: how many of them are in the KV cache.
        context: most tokens that fit.
        last_phase: what the last prefill or decode did.
        label: what traces of others call it, where they share passes: its run, if it has one.
        on_progress: called between the chunks of a prefill with (done, total, tokens/s).
        profile: whether phases record their time by layer.
        lost: why not all that was kept of it on disk could be used; empty otherwise.
        measured: for each plan that it ran, what its own passes took.
        accounts: what the phases of this session did.
        speculative: how decodes need fewer passes than tokens; the engine's, if not set.
        shares: whether what it computes is kept for others that begin alike, and what they have
            computed is taken over; see `prefix_cache.py`.
        sources: ranges of positions, first and end, that are likely to be quoted.
    """

    def __init__(self, engine: Engine, cache: KVCache, context: int) -> None:
        """Use `Engine.session`."""
        self.engine = engine
        self.cache = cache
        self.context = context
        self.tokens: list[int] = []
        self.n_cached = 0
        self.last_phase: PhaseEvent | None = None
        self.on_progress: Callable[[int, int, float], None] | None = None
        self.label = f"session {next(_NUMBERS)}"
        self.profile = False
        self.restore_error = ""
        self.shares = False
        self._adopted = 0  # tokens of this phase that another session had computed
        self.decoding = False  # whether somebody waits for one token after the other
        self._logits: Logits | None = None
        self._logits_at = -1  # number of tokens whose last one they belong to
        self._stopped = False
        self.measured: dict[Plan, TapeTimes] = {}
        self.metrics = PhaseMetrics(self)
        self.used = time.monotonic()  # when it last had rows computed
        self.admitted = 0.0  # when it got its first pages, of those that it has; 0: it has none
        self.recalled = 0  # bytes of pages that this phase has read from disk
        self.recomputed = 0  # tokens whose pages were taken back, since the last phase
        self.speculative = engine.speculative
        engine.sessions.add(self)
        self.draft_sources: Sequence[tuple[int, int]] = ()
        self._drafting: tuple[NgramIndex, DraftLengthPolicy, NormalizedSources] | None = None

    # --- what callers do

    def prefill(
        self,
        ids: Sequence[int],
        *,
        purpose: str = "prompt",
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> PhaseEvent:
        """Append `ids` and compute everything that is not yet in the cache.

        check: called once `stop` is heeded, before the first pass; what it raises ends the prefill.
        borders: numbers of tokens that `truncate` is likely to keep some time, or with which others
            begin; if there are none, all tokens. A model with recurrent layers can go on from
            there; elsewhere they mean nothing.

        Raises:
            SettingError: `check` cannot be called; nothing has changed.
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: stop() was called; the tokens stay, uncached ones are computed by
                the next call.
            ModelError: the model's file was changed while in use.
        """
        self.wake()
        ids = self._ids(ids)
        _check_purpose(purpose)
        if check is not None and not callable(check):
            raise SettingError(f"check must be a function without arguments, not {check!r}")
        total = len(self.tokens) + len(ids)
        if total > self.context:
            raise ContextOverflowError(
                f"{len(ids)} new tokens after {len(self.tokens)} make {total}, but the context "
                f"holds {self.context}; shorten the input or load the model with a larger context"
            )
        self.tokens.extend(ids)
        return self.compute(purpose, len(ids), check, borders)

    def decode(
        self,
        *,
        max_tokens: int,
        stop: Collection[int] = (),
        constraint: Constraint | None = None,
        sampling: Sampling = GREEDY,
        purpose: str = "answer",
    ) -> Iterator[int]:
        """Yield sampled tokens until one of `stop` (yielded too) or `max_tokens`.

        Each is appended to `tokens`; the last one is computed by the next prefill. When the
        iterator ends or is closed, `last_phase` tells what it did.

        Raises:
            ContextOverflowError: the context is full.
            PassCancelledError: stop() was called.
            EngineError: no token can be chosen.
        """
        if not self.tokens:
            raise EngineError("nothing to decode from: prefill some tokens first")
        check_whole(max_tokens, "max_tokens", EngineError, 1)
        if not isinstance(stop, Collection) or isinstance(stop, str):
            raise EngineError(f"stop must be token ids, not {stop!r}")
        if constraint is not None and not hasattr(constraint, "mask"):
            raise EngineError(f"constraint must be a Constraint, not {constraint!r}")
        if not isinstance(sampling, Sampling):
            raise EngineError(f"sampling must be a Sampling, not {sampling!r}")
        _check_purpose(purpose)
        return Decoding(self, max_tokens, stop, constraint, sampling, purpose).run()

    def truncate(self, n: int) -> None:
        """Forget every token after the first `n`."""
        if not (isinstance(n, int) and 0 <= n <= len(self.tokens)):
            raise EngineError(f"cannot keep {n!r} tokens of {len(self.tokens)}")
        if self._drafting is not None:
            self._drafting[0].truncate(n)
        with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
            del self.tokens[n:]
            self._go_back(n)
            self.cache.truncate(self.n_cached)
        if self._logits_at != n:
            self._logits_at = -1

    def fork(self, n: int | None = None) -> Session:
        """Another session with the first `n` tokens of this one; with all, if not given.

        Nothing is computed again: both use the same pages of the KV cache, and the first to write
        on a shared one gets a copy of that. So neither sees what becomes of the other, and both go
        on bit for bit as if they had read everything themselves.

        Raises:
            EngineError: there are not so many tokens.
        """
        with self.engine.scheduler.mutex:
            n = len(self.tokens) if n is None else n
            if not (isinstance(n, int) and 0 <= n <= len(self.tokens)):
                raise EngineError(f"cannot fork at token {n!r} of {len(self.tokens)}")
            cached = min(self.n_cached, n)
            if not self.cache.goes_on(cached):
                cached = 0
            other = Session(self.engine, self.cache.fork(cached), self.context)
            other.tokens, other.n_cached = self.tokens[:n], other.cache.seek(cached)
            other.recomputed = cached - other.n_cached
            if self.cache.state is not None and self._logits_at == n == other.n_cached:
                # To compute the last token again would need the state before it.
                other._logits, other._logits_at = self.last_logits.copy(), n
            other.profile, other.speculative = self.profile, self.speculative
            other.shares = self.shares
        return other

    def save(self, folder: str | Path) -> Saved:
        """Keep the tokens and their KV cache in a folder, for `Engine.load_session`.

        Only pages that are not there yet are written: after a turn, its own. The folder and its
        files are for this user alone.

        Raises:
            EngineError: they cannot be written; what was there before still is.
        """
        from .kv_snapshot import save

        return save(self, folder)

    def adopt_tokens(self, tokens: Sequence[int]) -> None:
        """Begin with these tokens, none of them computed yet."""
        assert not self.tokens, "only a new session can"
        self.check_ids(tokens)
        self.tokens = list(tokens)

    def adopted_phase(self, purpose: str, wall_s: float) -> PhaseEvent:
        """A phase for a trace: the tokens as they are, none of them computed here.

        Args:
            purpose: where they come from, e.g. ``fork``.
            wall_s: what it took to have them.
        """
        at, nothing = self.n_cached, PassCost()
        ids = list(self.tokens)
        spent = Spent(active_threads=self.engine.pool.active)
        event = self.metrics.finish("prefill", purpose, ids, at, wall_s, spent, nothing, 0, "none")
        event.tokens, event.predicted = 0, event.observed
        return event

    def pass_events(self) -> list[PassEvent]:
        """What a trace says of the passes that the last phase shared with other sessions."""
        return self.metrics.pass_events()

    def stop(self) -> None:
        """End this session's prefill or decode, from any thread; it stays usable.

        Others on the same engine go on: a pass that nobody else waits for ends at once, one that it
        shares without its rows' being used, and rows that wait for a pass are taken back.
        """
        self._stopped = True
        self.engine.scheduler.withdraw(self)
        self.engine.runner.cancel(self)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called in this phase."""
        return self._stopped

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: float32 [n_vocab], valid until the engine's next pass."""
        return self.last_logits.rows[-1]

    @property
    def last_logits(self) -> Logits:
        """The same as the pass left them."""
        if self._logits is None or not self.has_logits:
            raise EngineError(
                "the last token has not been computed: prefill([]) computes what is left"
            )
        return self._logits

    @property
    def has_logits(self) -> bool:
        """Whether there are logits after the last token."""
        return self._logits_at == len(self.tokens)

    @property
    def most_tokens(self) -> int:
        """Tokens of a prefill's pass at most."""
        return min(self.engine.tuning.chunk, self.context)

    @property
    def drafting(self) -> tuple[NgramIndex, DraftLengthPolicy, NormalizedSources]:
        """Where tokens stood before, how many are worth a draft, and how texts are copied."""
        if self._drafting is None or self._drafting[0].tokens is not self.tokens:
            copies = NormalizedSources(self.engine.tokenizer)
            self._drafting = NgramIndex(self.tokens), DraftLengthPolicy(self), copies
        return self._drafting

    def logits_for(self, ids: Sequence[int]) -> np.ndarray:
        """Append `ids` and return the logits after each of them: float32 [len(ids), n_vocab]."""
        ids = self._ids(ids)
        out = np.empty((len(ids), self.engine.outputs.n_vocab), np.float32)
        done = 0
        for rows in self.scores(ids):
            out[done : done + len(rows)] = rows
            done += len(rows)
        return out

    def scores(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Append `ids`, and yield the logits after them some rows at a time.

        Each piece, float32 [n, n_vocab], is valid until the next one or another pass.
        """
        ids = self._ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        if self.n_cached != len(self.tokens):
            self.compute("resume", 0)
        with self.phase():
            for at in range(0, len(ids), SCORE_CHUNK):
                part = ids[at : at + SCORE_CHUNK]
                at = len(self.tokens)
                self.tokens.extend(part)
                logits = None
                while logits is None:
                    if (cached := self.n_cached) < at:  # pages were taken back
                        self.ask(cached, self.tokens[cached:at], 0)
                    else:
                        logits = self.ask(at, part, len(part)).logits
                self._logits_at = -1  # of many rows
                yield logits.rows

    def plan(self, name: str, kind: type[G]) -> Plan[G]:
        """A prefill built by another kind of graph, for `follow`."""
        return Plan(self.engine, name, self.most_tokens, kind)

    def prefill_with(self, plan: Plan[G], ids: Sequence[int]) -> Iterator[int]:
        """Append `ids` in passes of `plan`, without logits; yields each pass's number of tokens."""
        self.check_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        for at in range(0, len(ids), plan.most_tokens):
            part = ids[at : at + plan.most_tokens]
            self.tokens.extend(part)
            self.run_pass(plan, part, 0)
            yield len(part)

    def warmup(self) -> None:
        """Choose now what the first phases else would while somebody waits."""
        self.engine.tuning.prepare()

    def wake(self) -> None:
        """A prefill will soon come: threads that sleep may as well wake up meanwhile."""
        # Not in the midst of another session's pass, which would lose its active threads.
        if self.engine.lock.acquire(blocking=False):
            try:
                self.engine.pool.wake()
            finally:
                self.engine.lock.release()

    # --- passes

    def _ids(self, ids: object) -> list[int]:
        """Token ids that a caller gave.

        Raises:
            EngineError: they are none of the vocabulary.
        """
        try:
            found = [int(i) for i in as_list(ids, "token ids must be a list", EngineError)]
        except (TypeError, ValueError, OverflowError) as error:
            raise EngineError(f"a token id must be a whole number: {error}") from None
        self.check_ids(found)
        return found

    def check_ids(self, ids: Sequence[int]) -> None:
        most = self.engine.outputs.n_vocab
        bad = next((i for i in ids if not 0 <= i < most), None)
        if bad is not None:
            raise EngineError(f"token id {bad} is not in the vocabulary of {most}")

    def compute(
        self,
        purpose: str,
        new: int,
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
            if self.shares:
                self._adopt(total)
                if self.cache.state is None:  # no page is of use without a state behind it
                    self._recall(total)
            while self.n_cached < total:
                if self.shares:
                    self._adopt(total)
                at = self.n_cached
                end = self._pass_end(at, total, borders)
                rows = self.ask(at, self.tokens[at:end], int(end == total))
                if not rows.computed:
                    continue
                self._keep_state(borders or (total,))
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
        ids, adopted = self.tokens[before:total], self._adopted
        return metrics.finish(
            "prefill", purpose, ids, before, wall, spent, cost, passes, plan_name, adopted
        )

    def _pass_end(self, at: int, total: int, borders: Sequence[int]) -> int:
        """Where passes from position `at` on have to end at the latest."""
        if self.cache.state is None:
            return total
        return min((n for n in borders if at < n < total), default=total)

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

    def _adopt(self, total: int) -> None:
        """Take over what is known of the tokens that follow; the last one is computed here."""
        cache, ids = self.engine.prefix_cache, self.tokens[: total - 1]
        with self.engine.scheduler.mutex:
            known = cache.adopt(self.cache, ids, self.n_cached)
            self._adopted += known - self.n_cached
            self.n_cached = known

    def _recall(self, total: int) -> None:
        """Read back what is on disk of the tokens that follow; the last one is computed here."""
        before = self.n_cached
        self.recalled = self.engine.spill.recall(self, total - 1)
        self._adopted += self.n_cached - before

    def take_in(self, number: int, data: np.ndarray) -> bool:
        """Go on behind the page with this number, as it was read from disk, if there is room."""
        engine, memory = self.engine, self.engine.layout.memory
        with engine.scheduler.mutex:
            if lacks := memory.lacks(len(data)):
                engine.prefix_cache.evict(lacks)
            if self.n_cached // PAGE != number or memory.lacks(len(data)):
                return False
            if not self.cache.goes_on(number * PAGE):
                return False
            self.cache.clear(number)
            self.cache.append(data)
            self.n_cached = (number + 1) * PAGE
            self.admitted = self.admitted or time.monotonic()
        return True

    def close(self) -> None:
        """Forget the tokens and let go of the pages now: a dropped session waits for Python's
        garbage collection to do so."""
        with self.engine.scheduler.mutex:
            self.truncate(0)
            self.cache.clear()

    def give_back(self) -> None:
        """Let go of all pages; the tokens stay, to be computed again. The caller has the mutex."""
        self.recomputed += self.n_cached
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0

    def keep_cached(self, n: int) -> None:
        """Count on no more than the first `n` positions of the KV cache."""
        with self.engine.scheduler.mutex:
            self._go_back(n)

    def _go_back(self, n: int) -> None:
        """Go on behind the first `n` positions, or fewer.

        Fewer where a state is not known there, or where windows let go of what is seen from there.
        """
        at = min(self.n_cached, n)
        known = self.cache.seek(at)
        self.recomputed += at - known
        if self.n_cached > known:
            self.n_cached = known
            if not self.cache.goes_on(known):
                self.give_back()
            self.cache.slide_back(self.n_cached)

    @contextmanager
    def phase(self, *, decoding: bool = False) -> Iterator[None]:
        """Rows will be asked for again and again; a stop that came before it is forgotten."""
        self._stopped, self.decoding = False, decoding
        with self.engine.scheduler.phase(self):
            try:
                yield
            finally:
                self.decoding = False

    def count_on(self, known: int, drafted: int) -> None:
        """Of a pass that computed a draft behind `known` positions, count on so many tokens of it.

        Not where the pages were taken back since.
        """
        with self.engine.scheduler.mutex:
            if self.n_cached >= known:
                self.n_cached = self.cache.seek(known + drafted)

    def keep_logits(self) -> None:
        """The logits of the last pass are those after the last token."""
        self._logits_at = len(self.tokens)

    def check_stop(self) -> None:
        """Raise PassCancelledError if `stop` was called in this phase."""
        if self._stopped:
            self._stopped = False
            raise PassCancelledError("stopped; the session keeps what it has")

    def ask(
        self,
        start: int,
        ids: Sequence[int],
        outputs: int,
        masks: Sequence[np.ndarray | None] = (),
        panels: np.ndarray | None = None,
    ) -> Rows:
        """Have the next rows computed, by a pass that other sessions may share.

        ids: tokens that follow the first `start`, which are cached; of many a pass may take the
        first ones only, and of any none: see `Rows.computed`.
        """
        if self._stopped:
            self.check_stop()
        if self._logits is not None:
            self._logits.released = True
            self._logits = None
        self._logits_at = -1
        rows = Rows(self, start, ids, outputs, masks, panels)
        self.engine.scheduler.compute(rows)
        self.used = time.monotonic()
        self._logits = rows.logits
        if self._stopped:
            self.check_stop()
        return rows

    def run_pass(self, plan: Plan, part: Sequence[int], outputs: int) -> Rows:
        """One pass of `part`, which follows what is cached, on a plan of its own."""
        if self._logits is not None:
            self._logits.released = True
        self._logits, self._logits_at = None, -1
        rows = Rows(self, self.n_cached, part, outputs)
        with self.engine.lock:
            self.engine.runner.run(rows, len(part), plan)
        self.used = time.monotonic()
        self._logits = rows.logits
        return rows

    def keep_prefix(self) -> None:
        """Let others find what it has computed, if it shares."""
        if self.shares and self.n_cached:
            self.engine.prefix_cache.add(self.cache, self.tokens, self.n_cached)
