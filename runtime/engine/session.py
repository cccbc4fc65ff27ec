"""Sessions: a conversation on an engine, with its tokens and KV cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...arguments import ProcessBound, check_whole
from ...errors import ContextOverflowError, EngineError, SettingError
from .decoding import Constraint, Decoding
from .passes.request import Request
from .passes.sequence import TokenSequence
from .phases import Phases
from .prefill import Prefill
from .sampling.settings import GREEDY, Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from ...traces.events import PhaseEvent
    from ..forward.kv import KVCache
    from .engine_core import EngineCore
    from .session_files import Saved

SCORE_CHUNK = 32  # tokens of one pass that keeps every token's logits


def _check_purpose(purpose: object) -> None:
    if not isinstance(purpose, str):
        raise EngineError(f"purpose must be a string, not {purpose!r}")


class Session(ProcessBound):
    """The tokens and KV cache of a conversation. `Engine.session` makes sessions."""

    __slots__ = ("__weakref__", "phases", "restore_error", "sequence")
    _instead = "Session.fork copies it here, Session.save and Engine.load_session elsewhere"

    def __init__(
        self,
        core: EngineCore,
        cache: KVCache,
        context: int,
        tokens: Sequence[int] = (),
        n_cached: int = 0,
    ) -> None:
        """cache: holds the first `n_cached` of `tokens`."""
        self.sequence = TokenSequence(cache, context, core.prefix_cache, tokens, n_cached)
        """Its tokens, KV cache and settings."""
        self.phases = Phases(core, self.sequence)
        """Its engine, drafting state and metrics."""
        self.restore_error = ""
        """Why some of the saved session could not be used; empty otherwise."""

    @property
    def tokens(self) -> list[int]:
        """Every accepted token, in order."""
        return self.sequence.tokens

    @property
    def n_cached(self) -> int:
        """Number of tokens in the KV cache."""
        return self.sequence.n_cached

    @property
    def context(self) -> int:
        """Maximum tokens."""
        return self.sequence.context

    @property
    def shares(self) -> bool:
        """Whether it adopts cached prefixes of other sessions, and shares its own."""
        return self.sequence.shares

    @shares.setter
    def shares(self, on: bool) -> None:
        self.sequence.shares = on

    @property
    def last_phase(self) -> PhaseEvent | None:
        """Trace event of the last prefill or decode."""
        return self.sequence.last_phase

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
        sequence = self.sequence
        self.phases.wake()
        ids = self.phases.core.loaded.as_ids(ids)
        _check_purpose(purpose)
        if check is not None and not callable(check):
            raise SettingError(f"check must be a function without arguments, not {check!r}")
        total = len(sequence.tokens) + len(ids)
        if total > sequence.context:
            raise ContextOverflowError(
                f"{len(ids)} new tokens after {total - len(ids)} make {total}, but the context "
                f"holds {self.context}; shorten the input or load the model with a larger context"
            )
        sequence.begin(ids)
        return Prefill(self.phases, purpose, check, borders).run()

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
        iterator ends or is closed, `last_phase` describes the decode.

        Raises:
            ContextOverflowError: the context is full; the tokens so far stay.
            PassCancelledError: stop() was called.
            EngineError: no token can be chosen, or the session was changed while the iterator was
                open.
        """
        generation = (
            self.sequence.generation
        )  # what closes the session from here on ends the decode
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
        decoding = Decoding(self.phases, max_tokens, stop, constraint, sampling, purpose)
        return decoding.run(generation)

    def truncate(self, n: int) -> None:
        """Drop all tokens after the first `n`."""
        if not (isinstance(n, int) and 0 <= n <= len(self.tokens)):
            raise EngineError(f"cannot keep {n!r} tokens of {len(self.tokens)}")
        self.sequence.truncate(n)

    def fork(self, n: int | None = None) -> Session:
        """Fork a session with the first `n` tokens of this one; with all, if not given.

        Nothing is recomputed: both use the same pages of the KV cache, copied on write. The two are
        independent, and continue bit for bit as if each had read everything itself.

        Raises:
            EngineError: the session has fewer tokens, or its engine is closed.
        """
        self.phases.core.loaded.pool.check_open()
        sequence = self.sequence
        with self.phases.core.scheduler.mutex:
            n = len(sequence.tokens) if n is None else n
            if not (isinstance(n, int) and 0 <= n <= len(sequence.tokens)):
                raise EngineError(f"cannot fork at token {n!r} of {len(sequence.tokens)}")
            cached = min(sequence.n_cached, n)
            if not sequence.cache.can_resume_at(cached):
                cached = 0
            cache = sequence.cache.fork(cached)
            known = cache.seek(cached)
            other = Session(self.phases.core, cache, sequence.context, sequence.tokens[:n], known)
            fork = other.sequence
            fork.recomputed = cached - known
            if sequence.cache.state is not None and sequence.logits_at == n == known:
                # To compute the last token again would need the state before it.
                assert sequence.logits is not None, "it has those behind this token"
                fork.logits, fork.logits_at = sequence.logits.copy(), n
            fork.profile, other.phases.drafting.settings = (
                sequence.profile,
                self.phases.drafting.settings,
            )
            fork.shares, fork.namespace = sequence.shares, sequence.namespace
        return other

    def save(self, folder: str | Path) -> Saved:
        """Save the tokens and their KV cache to a folder, for `Engine.load_session`.

        Only new pages are written. The folder and its files are private to this user.

        Raises:
            EngineError: they cannot be written; what was saved before is still there.
        """
        from .session_files import save

        with self.phases.core.scheduler.mutex:
            self.sequence.computing = True  # a close waits until its pages are written
        try:
            return save(self.phases.core.loaded, self.sequence, folder)
        finally:
            self.phases.core.scheduler.computed(self.sequence)

    def stop(self) -> None:
        """End this session's prefill or decode, from any thread; it stays usable.

        Other sessions on the same engine continue. A pass of this session alone stops at once; in a
        shared pass its rows are ignored; rows waiting for a pass are withdrawn.
        """
        self.phases.core.scheduler.stop(self.sequence)

    def close(self) -> None:
        """Drop the tokens and free their pages, from any thread; the session stays usable.

        Without this, Python's garbage collection does it. A running prefill or decode ends as with
        `stop`; pages that a pass uses are freed when it ends.
        """
        self.phases.core.scheduler.close(self.sequence)

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: float32 [n_vocab], a copy."""
        return self.sequence.last_logits.copy().rows[-1]

    def logits_for(self, ids: Sequence[int]) -> np.ndarray:
        """Append `ids` and return the logits after each of them: float32 [len(ids), n_vocab]."""
        ids = self.phases.core.loaded.as_ids(ids)
        out = np.empty((len(ids), self.phases.core.loaded.outputs.n_vocab), np.float32)
        done = 0
        for rows in self.scores(ids):
            out[done : done + len(rows)] = rows
            done += len(rows)
        return out

    def scores(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Append `ids`, and yield the logits after each of them, some rows at a time.

        Each piece is a copy: float32 [n, n_vocab].
        """
        sequence, scheduler = self.sequence, self.phases.core.scheduler
        ids = self.phases.core.loaded.as_ids(ids)
        if len(sequence.tokens) + len(ids) > sequence.context:
            raise ContextOverflowError(
                f"{len(ids)} tokens do not fit a context of {sequence.context}"
            )
        sequence.begin(())
        if sequence.n_cached != len(sequence.tokens):
            Prefill(self.phases, "resume").run()
        with scheduler.phase(sequence):
            for first in range(0, len(ids), SCORE_CHUNK):
                part = ids[first : first + SCORE_CHUNK]
                at, logits = len(sequence.tokens), None
                sequence.append(part)
                while logits is None:
                    if sequence.n_cached < at:  # pages were evicted
                        sequence.adopt_prefix(at + 1)
                    if (cached := sequence.n_cached) < at:
                        scheduler.compute(Request(sequence, cached, sequence.tokens[cached:at]))
                    else:
                        logits = scheduler.compute(Request(sequence, at, part, len(part))).logits
                sequence.logits_at = -1  # of many rows
                yield logits.copy(slice(None)).rows
