"""The decode loop: one token after the other, each from the logits of the one before."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...errors import ContextOverflowError, EngineError, PassCancelledError
from ..physics.costs import decode_cost
from .sampling import Sampler, Sampling

if TYPE_CHECKING:
    from .session import Session


class Constraint(Protocol):
    """What may come next, e.g. a grammar."""

    def mask(self) -> np.ndarray | None:
        """uint32 bits [ceil(n_vocab / 32)] of the allowed tokens; None: all."""
        ...

    def advance(self, token: int) -> None:
        """`token` was chosen."""
        ...


class Decoding:
    """One decode of a session: see `Session.decode`."""

    def __init__(
        self,
        session: Session,
        max_tokens: int,
        stop: Collection[int],
        constraint: Constraint | None,
        sampling: Sampling,
        purpose: str,
    ) -> None:
        self.session = session
        self.max_tokens = max_tokens
        self.stop = stop
        self.constraint = constraint
        self.sampling = sampling
        self.purpose = purpose
        self._sampler = None if sampling.greedy else Sampler(sampling)
        self._ids: list[int] = []
        self._passes = 0
        self._wall = 0.0

    def run(self) -> Iterator[int]:
        """Yield the tokens; the session's `last_phase` tells of them when this has ended."""
        session = self.session
        if not session.has_logits:
            # After truncate, after another session's pass, or when the last decode's final token
            # is still to be computed.
            session.compute("resume", 0)
        before, ids = session.n_cached, self._ids
        with session.engine.lock:
            session.engine.pool.clear_stop()
            session.accounts.reset()
        try:
            started = time.perf_counter()
            token = self._first()
            while True:
                session.tokens.append(token)
                ids.append(token)
                if self.constraint is not None:
                    self.constraint.advance(token)
                self._wall += time.perf_counter() - started
                yield token
                started = time.perf_counter()
                if token in self.stop or len(ids) >= self.max_tokens:
                    break
                self._check()
                token = self._next(token)
            self._wall += time.perf_counter() - started
        finally:
            self._finish(before)

    def _check(self) -> None:
        """Whether there may be another pass."""
        session = self.session
        if len(session.tokens) >= session.context:
            raise ContextOverflowError(
                f"the context is full: {len(session.tokens)} tokens; load the model with a "
                f"larger context or ask for less"
            )
        if session.engine.pool.stopped:
            raise PassCancelledError("stopped; the session keeps what it has")

    def _first(self) -> int:
        """The token after the logits that are there."""
        session = self.session
        mask = self._mask()
        # What sessions share stays under the lock until the token is out of it.
        with session.engine.lock:
            if not session.has_logits:  # another thread's session had a pass in between
                session.compute("resume", 0)
            self._set_mask(mask)
            session.choose()
            return self._chosen()

    def _next(self, token: int) -> int:
        """The token after `token`, which is computed."""
        session = self.session
        mask = self._mask()
        with session.engine.lock:
            self._set_mask(mask)
            session.run_pass(session.decode_plan, [token], 1)
            self._passes += 1
            session.keep_logits()
            return self._chosen()

    def _mask(self) -> np.ndarray | None:
        return self.constraint.mask() if self.constraint is not None else None

    def _set_mask(self, mask: np.ndarray | None) -> None:
        choice = self.session.engine.choice
        choice.use_mask[0] = 0 if mask is None else 1
        if mask is not None:
            choice.mask[: len(mask)] = mask

    def _chosen(self) -> int:
        choice = self.session.engine.choice
        if self._sampler is not None:
            mask = choice.mask if choice.use_mask[0] else None
            return self._sampler.pick(choice.logits[0, : choice.n_vocab], mask)
        token = int(choice.token[0])
        if token < 0:
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )
        return token

    def _finish(self, before: int) -> None:
        session, passes = self.session, self._passes
        barriers = session.decode_plan.tape.barriers
        cost = decode_cost(session.engine.cost, before, passes, barriers)
        kernel = session.accounts.kernel_seconds()
        phase = session.accounts.finish(
            "decode", self.purpose, self._ids, before, self._wall, kernel, cost, passes, "decode"
        )
        phase.sampling = self.sampling.as_dict()
        phase.max_tokens = self.max_tokens
        phase.stop = sorted(self.stop)
        phase.constraint = type(self.constraint).__name__ if self.constraint is not None else None
