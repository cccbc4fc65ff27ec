"""One conversation on an engine: what callers do with its tokens and KV cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...arguments import check_whole
from ...errors import ContextOverflowError, EngineError, SettingError
from ...traces.events import PassEvent, PhaseEvent
from ..physics.costs import PassCost
from .decoding import Constraint, Decoding
from .metrics import Spent
from .sampling import GREEDY, Sampling
from .scheduled_sequence import ScheduledSequence

if TYPE_CHECKING:
    from pathlib import Path

    from .kv_snapshot import Saved

SCORE_CHUNK = 32  # tokens of one pass that keeps every token's logits


def _check_purpose(purpose: object) -> None:
    if not isinstance(purpose, str):
        raise EngineError(f"purpose must be a string, not {purpose!r}")


class Session(ScheduledSequence):
    """Tokens and their KV cache. `Engine.session` makes them.

    Attributes:
        tokens: every accepted token, in order.
        n_cached: how many of them are in the KV cache.
        restore_error: why some of the saved session could not be used; empty otherwise.
    """

    restore_error = ""

    def prefill(
        self,
        ids: Sequence[int],
        *,
        purpose: str = "prompt",
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> PhaseEvent:
        """Append `ids` and compute everything that is not yet in the cache.

        check: called before the first pass, once `stop` has an effect; an exception aborts.
        borders: positions that the session is likely to be truncated to, or that others share; by
            default the end. Recurrent models keep a checkpoint there; others ignore them.

        Raises:
            SettingError: `check` cannot be called; nothing has changed.
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: stop() was called; the tokens stay, uncached ones are computed by
                the next call.
            ModelError: the model's file was changed while in use.
        """
        self.wake()
        ids = self.engine.as_ids(ids)
        _check_purpose(purpose)
        if check is not None and not callable(check):
            raise SettingError(f"check must be a function without arguments, not {check!r}")
        total = len(self.tokens) + len(ids)
        if total > self.context:
            raise ContextOverflowError(
                f"{len(ids)} new tokens after {len(self.tokens)} make {total}, but the context "
                f"holds {self.context}; shorten the input or load the model with a larger context"
            )
        self.entered = self.closes
        self.changes += 1
        self.append(ids)
        return self.compute(purpose, check, borders)

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
            ContextOverflowError: the context is full; the tokens so far stay.
            PassCancelledError: stop() was called.
            EngineError: no token can be chosen, or the session was changed while the iterator was
                open.
        """
        closes = self.closes  # what closes the session from here on ends the decode
        if not self.tokens:
            raise EngineError("nothing to decode from: prefill some tokens first")
        check_whole(max_tokens, "max_tokens", EngineError, 1)
        listed = isinstance(stop, Collection) and not isinstance(stop, str | bytes)
        if not listed or not all(isinstance(one, int | np.integer) for one in stop):
            raise EngineError(f"stop must be token ids, not {stop!r}")
        needed = [getattr(constraint, name, None) for name in ("mask", "advance")]
        if constraint is not None and not all(map(callable, needed)):
            raise EngineError(f"constraint must be a Constraint, not {constraint!r}")
        if not isinstance(sampling, Sampling):
            raise EngineError(f"sampling must be a Sampling, not {sampling!r}")
        _check_purpose(purpose)
        return Decoding(self, max_tokens, stop, constraint, sampling, purpose).run(closes)

    def truncate(self, n: int) -> None:
        """Forget every token after the first `n`."""
        if not (isinstance(n, int) and 0 <= n <= len(self.tokens)):
            raise EngineError(f"cannot keep {n!r} tokens of {len(self.tokens)}")
        self.changes += 1
        if self._drafting is not None:
            self._drafting[0].truncate(n)
        with self.engine.scheduler.mutex:  # pages may be taken back meanwhile
            del self.tokens[n:]
            self.go_back(n)
            self.cache.truncate(self.n_cached)
        if self._logits_at != n:
            self._logits_at = -1

    def fork(self, n: int | None = None) -> Session:
        """Another session with the first `n` tokens of this one; with all, if not given.

        Nothing is recomputed: both use the same pages of the KV cache, copied on write. The two are
        independent, and continue bit for bit as if each had read everything itself.

        Raises:
            EngineError: the session has fewer tokens, or its engine is closed.
        """
        self.engine.pool.check_open()
        with self.engine.scheduler.mutex:
            n = len(self.tokens) if n is None else n
            if not (isinstance(n, int) and 0 <= n <= len(self.tokens)):
                raise EngineError(f"cannot fork at token {n!r} of {len(self.tokens)}")
            cached = min(self.n_cached, n)
            if not self.cache.goes_on(cached):
                cached = 0
            cache = self.cache.fork(cached)
            known = cache.seek(cached)
            other = Session(self.engine, cache, self.context, self.tokens[:n], known)
            other.recomputed = cached - other.n_cached
            if self.cache.state is not None and self._logits_at == n == other.n_cached:
                # To compute the last token again would need the state before it.
                assert self._logits is not None, "it has those behind this token"
                other._logits, other._logits_at = self._logits.copy(), n
            other.profile, other.speculative = self.profile, self.speculative
            other.shares, other.namespace = self.shares, self.namespace
        return other

    def save(self, folder: str | Path) -> Saved:
        """Save the tokens and their KV cache to a folder, for `Engine.load_session`.

        Only new pages are written. The folder and its files are private to this user.

        Raises:
            EngineError: they cannot be written; what was saved before is still there.
        """
        from .kv_snapshot import save

        with self.engine.scheduler.mutex:
            self.computing = True  # a close waits until its pages are written
        try:
            return save(self.engine, self, folder)
        finally:
            self.engine.scheduler.computed(self)

    def adopted_phase(self, purpose: str, wall_s: float) -> PhaseEvent:
        """A phase event for adopted tokens: all that the session has, none computed here.

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

        Other sessions on the same engine continue. A pass of this session alone stops at once; in a
        shared pass its rows are ignored; rows waiting for a pass are withdrawn.
        """
        self.stopped = True
        self.engine.scheduler.withdraw(self)
        self.engine.runner.cancel(self)

    def close(self) -> None:
        """Drop the tokens and free their pages, from any thread; the session stays usable.

        Without this, Python's garbage collection does it. A running prefill or decode ends as with
        `stop`; pages that a pass uses are freed when it ends.
        """
        self.engine.scheduler.close(self)

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: float32 [n_vocab], a copy."""
        return self.last_logits.copy().rows[-1]

    def logits_for(self, ids: Sequence[int]) -> np.ndarray:
        """Append `ids` and return the logits after each of them: float32 [len(ids), n_vocab]."""
        ids = self.engine.as_ids(ids)
        out = np.empty((len(ids), self.engine.outputs.n_vocab), np.float32)
        done = 0
        for rows in self.scores(ids):
            out[done : done + len(rows)] = rows
            done += len(rows)
        return out

    def scores(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Append `ids`, and yield the logits after them some rows at a time.

        Each piece is a copy: float32 [n, n_vocab].
        """
        ids = self.engine.as_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        self.entered = self.closes
        self.changes += 1
        if self.n_cached != len(self.tokens):
            self.compute("resume")
        with self.phase():
            for at in range(0, len(ids), SCORE_CHUNK):
                part = ids[at : at + SCORE_CHUNK]
                at = len(self.tokens)
                self.append(part)
                logits = None
                while logits is None:
                    if self.n_cached < at:  # pages were taken back
                        self.take_over(at + 1)
                    if (cached := self.n_cached) < at:
                        self.ask(cached, self.tokens[cached:at], 0)
                    else:
                        logits = self.ask(at, part, len(part)).logits
                self._logits_at = -1  # of many rows
                yield logits.copy(slice(None)).rows

    def warmup(self) -> None:
        """Make now the tuning decisions that the first phases would spend time on."""
        self.engine.tuning.prepare()
