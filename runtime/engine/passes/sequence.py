"""Token sequences and their KV caches: sessions as passes and the scheduler see them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from ....arguments import ProcessBound
from ....errors import EngineError, PassCancelledError

if TYPE_CHECKING:
    from ....jit.tape import TapeTimes
    from ....traces.events import PhaseEvent
    from ...forward.kv import KVCache
    from ..kv.prefix_cache import PrefixCache
    from ..model.plan import Plan
    from .logits import Logits

_NUMBERS = itertools.count(1)


class Status(Enum):
    """The phase of a sequence."""

    IDLE = auto()
    """In no phase."""
    PREFILL = auto()
    """In a phase that computes many rows in a pass."""
    DECODE = auto()
    """In a phase that computes one token after the other."""
    STOPPED = auto()
    """Its phase is to end: no more of its rows are computed."""


class TokenObserver(Protocol):
    """An observer of a sequence's tokens, such as an index for drafts."""

    def truncate(self, n: int) -> None:
        """Drop the tokens from `n` on, before the sequence does."""
        ...

    def reset(self, tokens: list[int]) -> None:
        """Begin anew with `tokens`, the sequence's new list."""
        ...


class TokenSequence(ProcessBound):
    """Tokens and their KV cache. `Phases` computes them on an engine."""

    def __init__(
        self,
        cache: KVCache,
        context: int,
        prefixes: PrefixCache,
        tokens: Sequence[int] = (),
        n_cached: int = 0,
    ) -> None:
        """cache: holds the first `n_cached` of `tokens`."""
        self.cache = cache
        self.prefixes = prefixes
        """The prefix cache; while its lock is held, no page is evicted."""
        self.context = context
        """Maximum tokens."""
        self.tokens = list(tokens)
        """Every accepted token, in order."""
        self.n_cached = n_cached
        """Number of tokens in the KV cache."""
        self.status = Status.IDLE
        """Phase that it is in, if any."""
        self.generation = self.epoch = 0
        """Number of closes: so far, and when the current phase began."""
        self.changes = 0
        """Number of changes of the tokens, other than by the running decode."""
        self.computing = False
        """Whether a pass has rows of it, and may write on its pages."""
        self.closing = False
        """Whether its pages are to be released when the pass has ended. Not one status with
        `computing`: each is set by a thread of its own, which then reads the other."""
        self.began = time.perf_counter()
        """When its phase began, in seconds of `time.perf_counter`."""
        self.used = time.monotonic()
        """When it last had rows computed, in seconds of `time.monotonic`."""
        self.admitted = 0.0
        """When it got the first of its current pages; 0: it has none."""
        self.recalled = 0
        """Bytes of pages that this phase has read from disk."""
        self.recomputed = 0
        """Tokens to recompute, as their pages were evicted since the last phase."""
        self.logits: Logits | None = None
        """Logits of its last pass."""
        self.logits_at = -1
        """Number of tokens that precede `logits`; -1: they belong to none of the current tokens."""
        self.measured: dict[Plan, TapeTimes] = {}
        """Times of its unshared passes, by plan."""
        self.last_phase: PhaseEvent | None = None
        """Trace event of the last prefill or decode."""
        self.observer: TokenObserver | None = None
        """Index of its tokens, notified when tokens are dropped."""

        # Set by callers.
        self.label = f"session {next(_NUMBERS)}"
        """Name in other sequences' traces of shared passes: its run's, if it has one."""
        self.shares = False
        """Whether it adds its pages to the prefix cache, and adopts those of others; see
        `prefix_cache.py`."""
        self.namespace = ""
        """Namespace in the prefix cache; pages of the empty one are visible to all."""
        self.opening = 0
        """Number of first tokens that sessions of other processes will begin with, too; written
        to disk where that pays."""
        self.profile = False
        """Whether phases record their time by layer."""

    def check_stop(self) -> None:
        """Raise PassCancelledError if `stop` or `close` was called in this phase."""
        if self.epoch != self.generation:
            raise PassCancelledError("the session was closed")
        if self.status is Status.STOPPED:
            self.status = Status.IDLE
            raise PassCancelledError("stopped; the session keeps the tokens computed so far")

    def reset(self) -> None:
        """Drop tokens and pages. The caller has the mutex, and no pass has rows of it."""
        self.closing = False
        self.tokens = []  # a new list: who is in the midst of a phase may look at the old one
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0
        self.release_logits()  # else the next pass copies them in vain
        if self.observer is not None:
            self.observer.reset(self.tokens)

    def evict(self) -> None:
        """Release all pages; the tokens stay, to be recomputed. The caller has the mutex."""
        self.recomputed += self.n_cached
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0

    def rollback(self, n: int) -> None:
        """Roll back to the first `n` positions, or fewer. The caller has the mutex.

        Fewer where no state is known there, or where windowed layers have dropped rows it needs.
        """
        at = min(self.n_cached, n)
        known = self.cache.seek(at)
        self.recomputed += at - known
        if self.n_cached > known:
            self.n_cached = known
            if not self.cache.can_resume_at(known):
                self.evict()
            self.cache.slide_back(self.n_cached)

    # --- tokens

    def begin(self, ids: Sequence[int], generation: int | None = None) -> None:
        """Begin a phase, and append its new tokens.

        generation: `self.generation` when the tokens were given, if that was earlier.

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
        with self.prefixes.lock:  # a close empties the tokens meanwhile, or comes after
            if self.epoch != self.generation:
                raise PassCancelledError("the session was closed")
            self.tokens.extend(ids)

    def truncate(self, n: int) -> None:
        """Drop all tokens after the first `n`."""
        self.changes += 1
        if self.observer is not None:
            self.observer.truncate(n)
        with self.prefixes.lock:  # pages may be evicted meanwhile
            del self.tokens[n:]
            self.rollback(n)
            self.cache.truncate(self.n_cached)
        if self.logits_at != n:
            self.logits_at = -1

    # --- what is cached of them

    def keep_cached(self, n: int) -> None:
        """Roll the KV cache back to at most the first `n` positions."""
        with self.prefixes.lock:
            self.rollback(n)

    def count_on(self, known: int, drafted: int) -> None:
        """Accept `drafted` of the drafts that a pass computed behind `known` positions.

        Not where the pages were evicted since.
        """
        with self.prefixes.lock:
            if self.n_cached >= known:
                self.n_cached = self.cache.seek(known + drafted)

    def adopt_prefix(self, total: int, adopted: int = 0) -> int:
        """Adopt the cached prefix of the tokens up to `total`; the last one is computed here.

        Call it before each request of many rows: the scheduler returns requests that could adopt
        theirs. Returns how many tokens the phase has adopted, `adopted` of them before.
        """
        if not self.shares:
            return adopted
        with self.prefixes.lock:
            if self.epoch != self.generation:  # closed since: what it had is of another text
                return adopted
            ids, before = self.tokens[: total - 1], self.n_cached
            self.n_cached = self.prefixes.adopt(self.cache, ids, before, self.namespace)
            # What was taken over and evicted since does not count twice.
            return min(adopted, before) + self.n_cached - before

    def keep_prefix(self) -> None:
        """Add the computed tokens to the prefix cache, if the sequence shares."""
        if self.shares:
            with self.prefixes.lock:  # pages may be evicted meanwhile
                if self.n_cached:
                    self.prefixes.add(self.cache, self.tokens, self.n_cached, self.namespace)

    # --- logits

    @property
    def has_logits(self) -> bool:
        """Whether there are logits after the last token."""
        return self.logits_at == len(self.tokens)

    @property
    def last_logits(self) -> Logits:
        """The logits after the last token, as the pass left them."""
        if self.logits is None or not self.has_logits:
            raise EngineError("the last token has not been computed; compute it with prefill([])")
        return self.logits

    def release_logits(self) -> None:
        """Release the logits, so that no pass copies them."""
        logits, self.logits, self.logits_at = self.logits, None, -1
        if logits is not None:
            logits.released = True
