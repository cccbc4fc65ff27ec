"""Tokens and their KV cache: what passes and the scheduler know of a session."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from ...arguments import ProcessBound
from ...errors import EngineError, PassCancelledError

if TYPE_CHECKING:
    from ...jit.tape import TapeTimes
    from ...traces.events import PhaseEvent
    from ..forward.kv import KVCache
    from .logits import Logits
    from .plan import Plan

_NUMBERS = itertools.count(1)


class Status(Enum):
    """What a sequence is at."""

    IDLE = auto()
    """In no phase."""
    PREFILL = auto()
    """In a phase that asks for many rows."""
    DECODE = auto()
    """In a phase that waits for one token after the other."""
    STOPPED = auto()
    """Its phase is to end: nothing that it asks for is computed."""


class TokenSequence(ProcessBound):
    """Tokens and their KV cache. `EngineSequence` has an engine for them."""

    def __init__(
        self, cache: KVCache, context: int, tokens: Sequence[int] = (), n_cached: int = 0
    ) -> None:
        """cache: holds the first `n_cached` of `tokens`."""
        self.cache = cache
        self.context = context
        """Maximum tokens."""
        self.tokens = list(tokens)
        """Every accepted token, in order."""
        self.n_cached = n_cached
        """How many of them are in the KV cache."""
        self.status = Status.IDLE
        """Whether it is in a phase, and in which."""
        self.generation = self.epoch = 0
        """How often it was closed, and how often it had been when its phase began."""
        self.changes = 0
        """How often tokens were added or taken other than by the decode that is under way."""
        self.computing = False
        """Whether a pass has rows of it, and may write on its pages."""
        self.closing = False
        """Whether these are to be let go of when the pass has ended. Not one status with
        `computing`: each is set by a thread of its own, which then looks at the other."""
        self.began = time.perf_counter()
        """When its phase did, in seconds of `time.perf_counter`."""
        self.used = time.monotonic()
        """When it last had rows computed, in seconds of `time.monotonic`."""
        self.admitted = 0.0
        """When it got its first pages, of those that it has; 0: it has none."""
        self.recalled = 0
        """Bytes of pages that this phase has read from disk."""
        self.recomputed = 0
        """Tokens whose pages were evicted, since the last phase."""
        self.logits: Logits | None = None
        """Of the last pass."""
        self.logits_at = -1
        """Number of tokens whose last one they belong to; -1: none of those that there are."""
        self.measured: dict[Plan, TapeTimes] = {}
        """For each plan that it ran, what its own passes took."""
        self.last_phase: PhaseEvent | None = None
        """What the last prefill or decode did."""

        # Set by callers.
        self.label = f"session {next(_NUMBERS)}"
        """What traces of others call it, where they share passes: its run, if it has one."""
        self.shares = False
        """Whether what it computes is kept for others that begin alike, and what they have computed
        is taken over; see `prefix_cache.py`."""
        self.namespace = ""
        """With whom it shares; "": with all that have none, and they with everybody."""
        self.opening = 0
        """Of the first tokens, how many other processes' sessions will begin with, too; kept on
        disk where that pays."""
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
        """Let go of tokens and pages. The caller has the mutex, and no pass has rows of it."""
        self.closing = False
        self.tokens = []  # a new list: who is in the midst of a phase may look at the old one
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0
        self.release_logits()  # else the next pass copies them, for nobody

    def evict(self) -> None:
        """Let go of all pages; the tokens stay, to be computed again. The caller has the mutex."""
        self.recomputed += self.n_cached
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0

    def rollback(self, n: int) -> None:
        """Go on behind the first `n` positions, or fewer. The caller has the mutex.

        Fewer where a state is not known there, or where windows let go of what is seen from there.
        """
        at = min(self.n_cached, n)
        known = self.cache.seek(at)
        self.recomputed += at - known
        if self.n_cached > known:
            self.n_cached = known
            if not self.cache.can_resume_at(known):
                self.evict()
            self.cache.slide_back(self.n_cached)

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
        """Nobody wants them any more."""
        logits, self.logits, self.logits_at = self.logits, None, -1
        if logits is not None:
            logits.released = True
