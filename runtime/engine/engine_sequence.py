"""A sequence on its engine: its phases, and what others may find of its tokens or change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import PassCancelledError
from .drafting.copies import NormalizedSources
from .drafting.length import DraftLengthPolicy, HeadLengthPolicy
from .drafting.ngram_index import NgramIndex
from .metrics import PhaseMetrics
from .sequence import Status, TokenSequence

if TYPE_CHECKING:
    from ..forward.kv import KVCache
    from .engine_core import EngineCore

Drafting = tuple[NgramIndex, DraftLengthPolicy, NormalizedSources, HeadLengthPolicy]


class EngineSequence(TokenSequence):
    """A sequence on its engine. `Session` is for callers; `Prefill` and `Decoding` add to it."""

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
        """What its phases did."""
        self.speculative = engine.speculative
        """How decodes need fewer passes than tokens; the engine's, if not set."""
        self.draft_sources: Sequence[tuple[int, int]] = ()
        """Ranges of positions, first and end, that are likely to be quoted."""
        self.on_progress: Callable[[int, int, float], None] | None = None
        """Called between the chunks of a prefill with (done, total, tokens/s)."""
        self._drafting: Drafting | None = None
        engine.scheduler.register(self)  # last: it is whole now

    @property
    def max_tokens(self) -> int:
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

    def warmup(self) -> None:
        """Make now the tuning decisions that the first phases would spend time on."""
        self.engine.tuning.prepare()

    # --- phases

    @contextmanager
    def phase(self, status: Status = Status.PREFILL) -> Iterator[None]:
        """Rows will be asked for again and again; a stop that came before it is forgotten."""
        self.status = status
        with self.engine.scheduler.phase(self):
            try:
                yield
            except PassCancelledError:
                raise
            except Exception as error:  # its tokens have gone in the midst of something
                if self.epoch != self.generation:
                    raise PassCancelledError("the session was closed") from error
                raise
            finally:
                self.status = Status.IDLE

    def wake(self) -> None:
        """A prefill will soon come: threads that sleep may as well wake up meanwhile."""
        # Not in the midst of another session's pass, which would lose its active threads.
        engine, me = self.engine, threading.get_ident()
        if engine.trying:
            engine.give_back()
        engine.trying.add(me)
        if engine.lock.acquire(blocking=False):
            try:
                engine.pool.wake()
            finally:
                engine.lock.release()
        engine.trying.discard(me)

    # --- tokens

    def begin(self, ids: Sequence[int], generation: int | None = None) -> None:
        """A phase begins, with these new tokens.

        generation: how often it had been closed when they were given, if that was before.

        Raises:
            PassCancelledError: it was closed since; nothing has changed.
        """
        self.epoch = self.generation if generation is None else generation
        self.changes += 1
        self.append(ids)

    def append(self, ids: Sequence[int]) -> None:
        """Append the tokens of a phase.

        Raises:
            PassCancelledError: the session was closed since the phase began; nothing has changed.
        """
        with self.engine.scheduler.mutex:  # a close empties the tokens meanwhile, or comes after
            if self.epoch != self.generation:
                raise PassCancelledError("the session was closed")
            self.tokens.extend(ids)

    def truncate(self, n: int) -> None:
        """Forget every token after the first `n`."""
        self.changes += 1
        if self._drafting is not None:
            self._drafting[0].truncate(n)
        with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
            del self.tokens[n:]
            self.rollback(n)
            self.cache.truncate(self.n_cached)
        if self.logits_at != n:
            self.logits_at = -1

    def reset(self) -> None:
        """See `TokenSequence.reset`."""
        super().reset()
        self._drafting = None

    # --- what is cached of them

    def keep_cached(self, n: int) -> None:
        """Count on no more than the first `n` positions of the KV cache."""
        with self.engine.scheduler.mutex:
            self.rollback(n)

    def count_on(self, known: int, drafted: int) -> None:
        """Of a pass that computed a draft behind `known` positions, count on so many tokens of it.

        Not where the pages were taken back since.
        """
        with self.engine.scheduler.mutex:
            if self.n_cached >= known:
                self.n_cached = self.cache.seek(known + drafted)

    def adopt_prefix(self, total: int, adopted: int = 0) -> int:
        """Take over what is known of the tokens up to `total`; the last one is computed here.

        Before many rows are asked for, each time: the scheduler sends back who could. Returns how
        many tokens were taken over in a phase in which `adopted` had been before.
        """
        if not self.shares:
            return adopted
        with self.engine.scheduler.mutex:
            if self.epoch != self.generation:  # closed since: what it had is of another text
                return adopted
            ids, before = self.tokens[: total - 1], self.n_cached
            prefixes = self.engine.prefix_cache
            self.n_cached = prefixes.adopt(self.cache, ids, before, self.namespace)
            # What was taken over and evicted since does not count twice.
            return min(adopted, before) + self.n_cached - before

    def keep_prefix(self) -> None:
        """Let others find what it has computed, if it shares."""
        if self.shares:
            with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
                if self.n_cached:
                    known = self.engine.prefix_cache
                    known.add(self.cache, self.tokens, self.n_cached, self.namespace)
