"""The decode loop: one token after the other, each chosen from the logits of those before.

A token needs no pass of its own where the constraint forces it: it is taken, and computed together
with what follows. Nor does one that was guessed from the context: a pass of several tokens gives
the logits after each of them, and as many guesses are kept as are what is chosen there. A pass of a
few tokens takes little longer than one of one, while memory bounds it.

What is chosen, and in what order, is the same in either case: a row of logits has the same bits
whatever pass it came from, masks and random draws follow the tokens that were kept, and a forced
token is never drawn.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ...errors import ContextOverflowError, EngineError, PassCancelledError
from ...jit.kernels.head import count_panels, panels_of
from ..physics.costs import PassCost, decode_cost
from . import verify
from .guessing import Guesses
from .sampling import Sampler, Sampling

if TYPE_CHECKING:
    from .plan import Plan
    from .session import Session

# Share of the output head's panels up to which the wanted ones are computed alone. On Qwen3 0.6B,
# spread over all: 2.4 ms for all, 2.6 for three quarters, 2.1 for half, 0.6 for a tenth.
FEW = 0.5


class Constraint(Protocol):
    """What may come next, e.g. a grammar."""

    def mask(self) -> np.ndarray | None:
        """uint32 bits [ceil(n_vocab / 32)] of the allowed tokens; None: all."""
        ...

    def advance(self, token: int) -> None:
        """`token` was chosen."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A constraint that can tell beforehand."""

    def forced(self) -> int | None:
        """The one token that may come next, when there is only one and that is known."""
        ...

    def allows(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may come, one after the other."""
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
        self._foreseeing = constraint if isinstance(constraint, Foreseeing) else None
        self._jump = session.shortcuts.jump and self._foreseeing is not None
        if sampling.stop:
            raise EngineError(
                "a session has tokens, no text: stop texts are an agent's to look for"
            )
        self._sampler = None
        if not sampling.filled().plain:
            at = len(session.tokens)
            self._sampler = Sampler(sampling, session.engine.ranking, at, constraint)
        self._ids: list[int] = []
        self._wall = 0.0
        self._passes = self._forced = 0
        self._guesses = Guesses(session, self._escaped) if session.shortcuts.speculate else None
        self._line_end: list[int] = []
        self._cost = PassCost()
        self._steps = 0, 0  # single-token passes that are not yet in `_cost`: from, number
        self._stepped = session.decode_plan  # what they were played with
        self._spared = 0.0  # output heads that were not computed

    def run(self) -> Iterator[int]:
        """Yield the tokens; the session's `last_phase` tells of them when this has ended."""
        session = self.session
        if not session.has_logits:
            # After truncate, after another session's pass, or when the last decode's final tokens
            # are still to be computed.
            session.compute("resume", 0)
        before, ids = session.n_cached, self._ids
        with session.engine.lock:
            session.engine.pool.rouse()  # beside the choice of the first token, and forced ones
            session.engine.pool.clear_stop()
            session.accounts.reset()
        try:
            started = time.perf_counter()
            for token in self._tokens():
                session.tokens.append(token)
                ids.append(token)
                if self._sampler is not None:
                    self._sampler.accept(token)
                if self.constraint is not None:
                    self.constraint.advance(token)
                self._wall += time.perf_counter() - started
                yield token
                started = time.perf_counter()
                if token in self.stop or len(ids) >= self.max_tokens:
                    break
                self._check()
            self._wall += time.perf_counter() - started
        finally:
            self._finish(before)

    def _tokens(self) -> Iterator[int]:
        """The tokens; each is accepted by whoever asks for the next."""
        session = self.session
        yield self._first()
        while True:
            forced = self._only() if self._jump else None
            if forced is not None:
                self._forced += 1
                yield forced
                continue
            known = session.tokens[session.n_cached :]
            guesses = self._guess(len(known))
            if len(known) + len(guesses) == 1:
                yield self._next(known)
            elif len(known) <= verify.TOKENS:
                yield from self._verified(known, guesses)
            else:
                yield self._after_many(known)

    def _check(self) -> None:
        """Whether there may be another token."""
        session = self.session
        if len(session.tokens) >= session.context:
            raise ContextOverflowError(
                f"the context is full: {len(session.tokens)} tokens; load the model with a "
                f"larger context or ask for less"
            )
        if session.engine.pool.stopped:
            raise PassCancelledError("stopped; the session keeps what it has")

    # --- passes

    def _first(self) -> int:
        """The token after the logits that are there."""
        session = self.session
        forced = self._only()
        if forced is not None:
            self._forced += self._jump
            return forced
        mask = self._mask()
        # What sessions share stays under the lock until the token is out of it.
        with session.engine.lock:
            if not session.has_logits:  # another thread's session had a pass in between
                session.compute("resume", 0)
            self._set_mask(mask)
            session.choose()
            return self._chosen(session.engine.choice.logits[0])

    def _next(self, known: list[int]) -> int:
        """The token after the only one that is still to be computed."""
        session = self.session
        forced = None if self._jump else self._only()
        mask = self._mask() if forced is None else None
        with session.engine.lock:
            self._set_mask(mask)
            panels = self._panels(mask)
            at = session.n_cached
            began = time.perf_counter()
            plan = session.run_pass(session.decode_plan, known, 1, panels)
            if panels is None:
                session.engine.times.step(time.perf_counter() - began)
                session.keep_logits()
            self._passes += 1
            if plan is not self._stepped:
                self._settle()
                self._stepped = plan
            start, steps = self._steps if self._steps[1] else (at, 0)
            self._steps = start, steps + 1
            if forced is not None:
                return forced
            token = self._chosen(session.engine.choice.logits[0])
        if self._guesses is not None:
            self._guesses.chosen(token)
        return token

    def _verified(self, known: list[int], guesses: list[int]) -> Iterator[int]:
        """The tokens after those still to be computed: guesses that were right, and one more."""
        session, pass_ = self.session, self.session.verify
        mask = self._mask()
        panels = None if guesses else self._panels(mask)
        with session.engine.lock:
            began = time.perf_counter()
            self._play(pass_.plan, known + guesses, len(guesses) + 1, panels)
            seconds = time.perf_counter() - began
        if guesses and self._guesses is not None:
            self._guesses.passed(len(known), len(guesses), seconds)
        at = session.n_cached - len(guesses)
        for row in range(len(guesses) + 1):
            # Never more than what is sure, whoever looks at the session in between.
            session.n_cached = at + row
            token = self._only() if row else None
            if token is None:
                with session.engine.lock:
                    self._set_mask(self._mask() if row else mask)
                    logits = pass_.logits(row)
                    if self._sampler is None:
                        session.choose(pass_.choose)
                    token = self._chosen(logits)
            if row == len(guesses):
                yield token
                return
            right = token == guesses[row]
            if self._guesses is not None:
                self._guesses.judge(row, right)
            yield token
            if not right:
                return

    def _after_many(self, known: list[int]) -> int:
        """The token after more forced ones than `_verified` takes."""
        session, plan = self.session, self.session.prefill_plan
        mask = self._mask()
        with session.engine.lock:
            for at in range(0, len(known), plan.most_tokens):
                part = known[at : at + plan.most_tokens]
                self._play(plan, part, int(at + len(part) == len(known)))
            session.keep_logits()
            self._set_mask(mask)
            session.choose()
            return self._chosen(session.engine.choice.logits[0])

    def _play(
        self, plan: Plan, part: list[int], outputs: int, panels: np.ndarray | None = None
    ) -> None:
        """A pass of several tokens, and its accounts."""
        session = self.session
        start = session.n_cached
        played = session.run_pass(plan, part, outputs, panels)
        self._passes += 1
        self._settle()
        self._cost += session.accounts.cost(played, len(part), start, outputs)

    def _guess(self, known: int) -> list[int]:
        """What may come after the `known` tokens of a pass, if that is worth a guess."""
        session, guesses = self.session, self._guesses
        if guesses is None:
            return []
        left = self.max_tokens - len(self._ids)
        found = guesses.after(known, min(left, session.context - len(session.tokens)) - 1)
        if self._foreseeing is not None and found:
            found = found[: self._foreseeing.allows(found)]
            if not found:
                guesses.refused()
        end = next((n for n, token in enumerate(found) if token in self.stop), len(found))
        return found[: end + 1]

    def _escaped(self) -> bool:
        """Whether no line may end here, as in a JSON string: there it is written with letters."""
        if self._foreseeing is None:
            return False
        self._line_end = self._line_end or self.session.engine.tokenizer.encode("\n")[-1:]
        return not self._foreseeing.allows(self._line_end)

    # --- choices

    def _only(self) -> int | None:
        """The token that the constraint forces, if there is one."""
        return self._foreseeing.forced() if self._foreseeing is not None else None

    def _mask(self) -> np.ndarray | None:
        return self.constraint.mask() if self.constraint is not None else None

    def _set_mask(self, mask: np.ndarray | None) -> None:
        choice = self.session.engine.choice
        choice.use_mask[0] = 0 if mask is None else 1
        if mask is not None:
            choice.mask[: len(mask)] = mask

    def _panels(self, mask: np.ndarray | None) -> np.ndarray | None:
        """The output head's panels that hold what may come, if they are few; None: all."""
        if mask is None or not self._jump:
            return None
        session = self.session
        most = session.decode_plan.graph.head_panels
        rows = 2 * session.engine.target.lanes
        if count_panels(mask, rows) > FEW * most:
            return None
        found = panels_of(mask, rows)
        self._spared += 1.0 - len(found) / most
        return found

    def _chosen(self, logits: np.ndarray) -> int:
        """The token that was chosen greedily, or one drawn from a row of logits."""
        choice = self.session.engine.choice
        if self._sampler is not None:
            mask = choice.mask if choice.use_mask[0] else None
            return self._sampler.pick(logits[: choice.n_vocab], mask)
        token = int(choice.token[0])
        if token < 0:
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )
        return token

    # --- accounts

    def _settle(self) -> None:
        """Count the single-token passes so far."""
        session, (start, passes) = self.session, self._steps
        if passes:
            barriers = self._stepped.tape.barriers
            self._cost += decode_cost(session.engine.cost, start, passes, barriers)
            session.accounts.add_steps(passes)
        self._steps = 0, 0

    def _finish(self, before: int) -> None:
        session = self.session
        self._settle()
        head = session.engine.cost
        cost = replace(
            self._cost,
            linear_flops=self._cost.linear_flops - 2.0 * self._spared * head.head_weights,
            weight_bytes=self._cost.weight_bytes - self._spared * head.head_bytes,
        )
        phase = session.accounts.finish(
            "decode",
            self.purpose,
            self._ids,
            before,
            self._wall,
            session.accounts.kernel_seconds(),
            cost,
            self._passes,
            "decode",
        )
        phase.sampling = self.sampling.as_dict()
        phase.max_tokens = self.max_tokens
        phase.stop = sorted(self.stop)
        phase.constraint = type(self.constraint).__name__ if self.constraint is not None else None
        phase.forced_tokens = self._forced
        if (guesses := self._guesses) is not None:
            phase.drafted_tokens, phase.accepted_tokens = guesses.made, guesses.right
            phase.saved_s = guesses.saved_s
