"""Tokens and their KV cache: what passes and the scheduler know of a session."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from ...arguments import ProcessBound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...jit.tape import TapeTimes
    from ...traces.events import PhaseEvent
    from ..forward.kv import KVCache
    from .plan import Plan

_NUMBERS = itertools.count(1)


class TokenSequence(ProcessBound):
    """Tokens and their KV cache. `ScheduledSequence` requests passes; `Session` is for callers.

    Attributes:
        tokens: every accepted token, in order.
        n_cached: how many of them are in the KV cache.
        context: most tokens that fit.
        label: what traces of others call it, where they share passes: its run, if it has one.
        shares: whether what it computes is kept for others that begin alike, and what they have
            computed is taken over; see `prefix_cache.py`.
        namespace: with whom it shares; "": with all that have none, and they with everybody.
        decoding: whether somebody waits for one token after the other.
        stopped: whether its phase is to end.
        computing: whether a pass has rows of it, and may write on its pages.
        closing: whether these are to be let go of when the pass has ended.
        closes: how often it was closed; entered: what that was when its phase began.
        began: when its phase did, in seconds of `time.perf_counter`.
        used: when it last had rows computed, in seconds of `time.monotonic`.
        admitted: when it got its first pages, of those that it has; 0: it has none.
        measured: for each plan that it ran, what its own passes took.
        profile: whether phases record their time by layer.
        last_phase: what the last prefill or decode did.
        recalled: bytes of pages that this phase has read from disk.
        recomputed: tokens whose pages were taken back, since the last phase.
    """

    _instead = "Session.fork copies it here, Session.save and Engine.load_session elsewhere"

    def __init__(
        self, cache: KVCache, context: int, tokens: Sequence[int] = (), n_cached: int = 0
    ) -> None:
        """cache: holds the first `n_cached` of `tokens`."""
        self.cache = cache
        self.context = context
        self.tokens, self.n_cached = list(tokens), n_cached
        self.label = f"session {next(_NUMBERS)}"
        self.namespace = ""
        self.shares = self.decoding = self.stopped = self.profile = False
        self.computing = self.closing = False
        self.closes = self.entered = 0
        self.began = time.perf_counter()
        self.used = time.monotonic()
        self.admitted = 0.0
        self.measured: dict[Plan, TapeTimes] = {}
        self.last_phase: PhaseEvent | None = None
        self.recalled = self.recomputed = 0

    def give_back(self) -> None:
        """Let go of all pages; the tokens stay, to be computed again. The caller has the mutex."""
        self.recomputed += self.n_cached
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0

    def forget(self) -> None:
        """Let go of tokens and pages. The caller has the mutex, and no pass has rows of it."""
        self.closing = False
        self.tokens = []  # a new list: who is in the midst of a phase may look at the old one
        self.cache.clear()
        self.n_cached = 0
        self.admitted = 0.0

    def go_back(self, n: int) -> None:
        """Go on behind the first `n` positions, or fewer. The caller has the mutex.

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
