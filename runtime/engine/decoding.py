"""The decode loop: tokens chosen from logits, forced by a grammar, or drafted and verified.

A token needs no pass of its own where the constraint forces it: it is taken, and computed together
with what follows. Nor does one that was drafted from the context: a pass of several tokens gives
the logits after each of them, and drafts are accepted up to the first that is not the token chosen
there. A pass of a few tokens takes little longer than one of one, while memory bounds it.

What is chosen, and in what order, is the same in either case: a row of logits has the same bits
whatever pass it came from, masks and random draws follow the tokens that were kept, and a forced
token is never drawn.

Passes that verify drafts: speculative decoding, Leviathan, Kalman and Matias, arXiv:2211.17192. A
draft is accepted only where it is the token that is chosen, so the text is that without drafts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from ...errors import ContextOverflowError, EngineError
from ...jit.kernels.lm_head import count_panels, panels_of
from ..physics.costs import PassCost, decode_cost
from .drafting.config import VERIFY_TOKENS
from .drafting.drafter import Drafter
from .passes.logits import Logits
from .passes.request import Request, StepResult
from .passes.sequence import Status
from .phases import Phases
from .prefill import Prefill
from .sampling.sampler import Sampler
from .sampling.settings import Sampling

# Share of the output head's panels up to which the wanted ones are computed alone. On Qwen3 0.6B,
# spread over all: 2.4 ms for all, 2.6 for three quarters, 2.1 for half, 0.6 for a tenth.
FEW = 0.5


class Constraint(Protocol):
    """A restriction on the next token, e.g. a grammar."""

    def mask(self) -> np.ndarray | None:
        """Return uint32 bits [ceil(n_vocab / 32)] of the allowed tokens; None: all."""
        ...

    def advance(self, token: int) -> None:
        """Advance past `token`, which was chosen."""
        ...


@runtime_checkable
class LookaheadConstraint(Protocol):
    """A constraint that can look ahead of the next token."""

    def forced(self) -> int | None:
        """Return the only allowed next token, if exactly one is allowed and it is known."""
        ...

    def allows(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest prefix of `tokens` that is allowed."""
        ...


class Decoding:
    """One decode of a sequence: see `Session.decode`."""

    def __init__(
        self,
        phases: Phases,
        max_tokens: int,
        stop: Collection[int],
        constraint: Constraint | None,
        sampling: Sampling,
        purpose: str,
    ) -> None:
        self.phases, self.sequence = phases, phases.sequence
        core, sequence, drafting = phases.core, phases.sequence, phases.drafting
        self.max_tokens = max_tokens
        self.stop = stop
        self.constraint = constraint
        self.sampling = sampling
        self.purpose = purpose
        self._lookahead = constraint if isinstance(constraint, LookaheadConstraint) else None
        self._jump = drafting.settings.jump_forward and self._lookahead is not None
        if sampling.stop:
            raise EngineError("a session has tokens and no text; only an agent can use stop texts")
        self._sampler = None
        if not sampling.filled().plain:
            at = len(sequence.tokens)
            loaded = core.loaded
            self._sampler = Sampler(
                sampling, loaded.logit_ranker, at, constraint, loaded.tokenizer, sequence.tokens
            )
        self._ids: list[int] = []
        self._wall = 0.0
        self._passes = self._forced = 0
        self._drafter = (
            Drafter(sequence, drafting, self._escaped) if drafting.settings.draft_tokens else None
        )
        self._line_end: list[int] = []
        self._cost = PassCost()
        self._steps = 0, 0  # single-token passes that are not yet in `_cost`: from, number
        self._stepped = core.plans.decode  # what they ran on
        self._head_panels = self._stepped.graph.head_panels
        self._spared = 0.0  # output heads that were not computed
        self._changes = 0  # of the sequence, when it began

    def run(self, generation: int | None = None) -> Iterator[int]:
        """Yield the decoded tokens; `sequence.last_phase` describes the decode once it has ended.

        generation: `sequence.generation` when the caller read its tokens, if that was earlier; a
            sequence that was closed since has none, and the decode ends.
        """
        sequence = self.sequence
        sequence.begin((), generation)
        self._changes = sequence.changes
        if not sequence.has_logits:
            # After truncate, after another sequence's pass, or when the last decode's final tokens
            # are still to be computed.
            self._check_room(len(sequence.tokens) - 1)
            Prefill(self.phases, "resume").run()
        before, ids = sequence.n_cached, self._ids
        self.phases.wake()  # beside the choice of the first token, and forced ones
        with self.phases.core.scheduler.phase(sequence, Status.DECODE):
            self.phases.metrics.reset()
            try:
                started = time.perf_counter()
                for token in self._tokens():
                    sequence.append((token,))
                    ids.append(token)
                    self._wall += time.perf_counter() - started
                    yield token
                    started = time.perf_counter()
                    self._check_unchanged()
                    if token in self.stop or len(ids) >= self.max_tokens:
                        break
                    self._check()
                self._wall += time.perf_counter() - started
            finally:
                if sequence.changes == self._changes:
                    self._finish(before)
                # It refers back: a matcher's memory would wait for the garbage collector, which
                # counts objects, and not what they take.
                self._drafter = None

    def _tokens(self) -> Iterator[int]:
        """Yield the tokens; the caller appends them to the sequence."""
        sequence = self.sequence
        yield self._accepted(self._first())
        while True:
            forced = self._only() if self._jump else None
            if forced is not None:
                self._forced += 1
                yield self._accepted(forced)
                continue
            at = sequence.n_cached
            known = sequence.tokens[at:]
            drafts = self._draft(len(known))
            if len(known) + len(drafts) == 1:
                token = self._next(at, known)
                if token is not None:
                    yield token
            elif len(known) <= VERIFY_TOKENS:
                yield from self._verified(at, known, drafts)
            else:
                yield self._after_many(at, known)

    def _accepted(self, token: int) -> int:
        """Advance the sampler and the constraint past this token, and return it."""
        if self._sampler is not None:
            self._sampler.accept(token)
        if self.constraint is not None:
            self.constraint.advance(token)
        return token

    def _check(self) -> None:
        """Raise an error if the context is full or the decode was stopped."""
        sequence = self.sequence
        self._check_room(len(sequence.tokens))
        if sequence.status is Status.STOPPED or sequence.epoch != sequence.generation:
            sequence.check_stop()

    def _check_unchanged(self) -> None:
        """Raise EngineError if the sequence was changed by anything but this decode."""
        if self.sequence.changes != self._changes:
            raise EngineError(
                "the session was changed while a decode was open; end its iterator, or close it, "
                "first"
            )

    def _check_room(self, position: int) -> None:
        """Raise ContextOverflowError if the position is outside the context."""
        if position >= self.sequence.context:
            raise ContextOverflowError(
                f"the context is full: {self.sequence.context} tokens; load the model with a "
                f"larger context or ask for less"
            )

    # --- passes

    def _first(self) -> int:
        """Choose the token after the logits that are already computed."""
        sequence = self.sequence
        forced = self._only()
        if forced is not None:
            self._forced += self._jump
            return forced
        self._remember(sequence.last_logits, 0, 1)
        return self._choose(sequence.last_logits, 0, self._mask())

    def _remember(self, logits: Logits, row: int, more: int) -> None:
        """Give the drafter the hidden state of the row that chose the last of `more` tokens."""
        if self._drafter is not None and self._drafter.wants_hidden:
            hidden = self.phases.core.runner.hidden(logits, row)
            self._drafter.observe_hidden(len(self.sequence.tokens) + more, hidden)

    def _next(self, at: int, known: list[int]) -> int | None:
        """Compute the only uncached token, and choose the one after it.

        Returns None if its pages were evicted, here and below: all has to be computed again.
        """
        sequence = self.sequence
        forced = None if self._jump else self._only()
        mask = self._mask() if forced is None else None
        panels = self._panels(mask)
        began = time.perf_counter()
        pick = self._picker(mask) if forced is None else None
        # A constraint without lookahead may read the logits.
        greedy = pick is None and panels is None and forced is None
        greedy = greedy and (self.constraint is None or self._jump)
        masks = self._masks(mask)
        request = Request(sequence, at, known, 1, masks, panels, pick, greedy_only=greedy)
        result = self.phases.core.scheduler.compute(request)
        if (logits := result.logits) is None:
            return None
        self._passes += 1
        self._spare(result, panels)
        if result.shared is not None:
            self._settle()
            self._cost += self.phases.metrics.cost(result, at)
        else:
            self._step(result, at, time.perf_counter() - began if panels is None else 0.0)
        token = forced
        self._remember(logits, 0, 1)
        if token is None:
            token = self._choose(logits, 0, mask)
            if self._drafter is not None:
                self._drafter.commit(1, (), (token,), None)
        if result.head_share is not None:
            logits.released = True
        elif panels is None:
            self._keep(logits)
        return self._accepted(token)

    def _step(self, result: StepResult, at: int, seconds: float) -> None:
        """Count a pass of one token; `seconds`: its time, 0 to leave it out of the statistics."""
        if seconds:
            self.phases.core.drafting.latency.step(seconds)
        if result.plan is not self._stepped:
            self._settle()
            assert result.plan is not None, "a pass has computed them"
            self._stepped = result.plan
        start, steps = self._steps if self._steps[1] else (at, 0)
        self._steps = start, steps + 1

    def _verified(self, at: int, known: list[int], drafts: list[int]) -> Iterator[int]:
        """Yield the tokens after the uncached ones: the drafts that were right, and one more.

        All are chosen at once: another sequence's pass may follow before the next is consumed.
        """
        sequence, mask = self.sequence, self._mask()
        panels = None if drafts else self._panels(mask)
        # Without a grammar all rows are alike; with one, each mask follows from the token before.
        masks = self._masks(mask)
        if masks and self.constraint is None:
            masks = masks * (len(drafts) + 1)
        began = time.perf_counter()
        pick = self._picker(mask)
        ids, outputs = known + drafts, len(drafts) + 1
        result = self._compute(Request(sequence, at, ids, outputs, masks, panels, pick))
        if (logits := result.logits) is None:  # not all of them were computed
            return
        seconds = time.perf_counter() - began if result.shared is None else None
        chosen = list[int]()
        for row in range(len(drafts) + 1):
            token = self._only() if row else None
            if token is None:
                token = self._choose(logits, row, self._mask() if row else mask)
            if not drafts and panels is None:
                self._keep(logits)
            chosen.append(self._accepted(token))
            if row == len(drafts) or token != drafts[row] or token in self.stop:
                break
        if drafts and self._drafter is not None:
            self._drafter.commit(len(known), drafts, chosen, seconds)
        self._remember(logits, len(chosen) - 1, len(chosen))
        logits.released = bool(drafts)
        if sequence.cache.state is not None:  # all of the pass counts, or nothing of it
            sequence.count_on(at + len(known), len(chosen) - 1)
        for row, token in enumerate(chosen):
            # Never more than what is sure, whoever looks at the sequence in between.
            if sequence.cache.state is None:
                sequence.count_on(at + len(known), row)
            yield token

    def _after_many(self, at: int, known: list[int]) -> int:
        """Choose the token after more forced tokens than `_verified` takes."""
        sequence, mask = self.sequence, self._mask()
        masks, pick = self._masks(mask), self._picker(mask)
        request = Request(sequence, at, known, 1, masks, None, pick)
        while (logits := self._compute(request).logits) is None:
            sequence.adopt_prefix(len(sequence.tokens))
            at = sequence.n_cached
            request = replace(request, start=at, ids=sequence.tokens[at:])
        token = self._choose(logits, 0, mask)
        self._keep(logits)
        return self._accepted(token)

    def _compute(self, request: Request) -> StepResult:
        """Run a pass of several tokens, and add it to the decode's cost."""
        result = self.phases.core.scheduler.compute(request)
        if result.computed:
            self._passes += 1
            self._spare(result, request.panels)
            self._settle()
            self._cost += self.phases.metrics.cost(result, request.start)
        return result

    def _keep(self, logits: Logits) -> None:
        """Mark the logits of the last pass as those after the last token.

        The tokens chosen there are dropped: another choice may be made in another way.
        """
        self.sequence.logits_at, logits.tokens = len(self.sequence.tokens), []

    def _draft(self, known: int) -> list[int]:
        """Propose drafts to follow the `known` tokens of a pass, if they are worth their cost."""
        sequence, drafts = self.sequence, self._drafter
        if drafts is None or not self._may_undo():
            return []
        left = self.max_tokens - len(self._ids)
        found = drafts.propose(known, min(left, sequence.context - len(sequence.tokens)) - 1)
        if self._lookahead is not None and found:
            found = found[: self._lookahead.allows(found)]
            if not found:
                drafts.refused()
        end = next((n for n, token in enumerate(found) if token in self.stop), len(found))
        return found[: end + 1]

    def _may_undo(self) -> bool:
        """Return whether drafts can be undone in free memory; no sequence is preempted for it."""
        cache = self.sequence.cache
        if cache.state is None:
            return True
        if not cache.can_undo(len(self.sequence.tokens) + VERIFY_TOKENS):
            return False
        lacks = cache.state.wants(undo=True)
        return not lacks or self.phases.core.prefix_cache.make_room(lacks)

    def _escaped(self) -> bool:
        """Return whether the constraint forbids a line end here, as in a JSON string."""
        if self._lookahead is None:
            return False
        self._line_end = self._line_end or self.phases.core.loaded.tokenizer.encode("\n")[-1:]
        return not self._lookahead.allows(self._line_end)

    # --- choices

    def _only(self) -> int | None:
        """Return the token that the constraint forces, if there is one."""
        return self._lookahead.forced() if self._lookahead is not None else None

    def _mask(self) -> np.ndarray | None:
        mask = self.constraint.mask() if self.constraint is not None else None
        if mask is not None:
            words = -(-self.phases.core.loaded.outputs.n_vocab // 32)
            kind = getattr(mask, "dtype", None)
            if kind not in (np.uint32, np.int32) or mask.shape != (words,):
                raise EngineError(  # here, and not in a pass that others share
                    f"a constraint's mask must be {words} words of 32 bits, one bit for each token "
                    f"of the vocabulary, not {mask!r:.100}"
                )
        return mask

    def _masks(self, mask: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
        """Return the masks for greedy choices within the pass; empty when sampling."""
        return () if self._sampler is not None else (mask,)

    def _picker(self, mask: np.ndarray | None) -> Callable[[np.ndarray], int] | None:
        """Return the function that samples from the pass's first row; None when greedy."""
        sampler = self._sampler
        return None if sampler is None else lambda logits: sampler.pick(logits, mask)

    def _panels(self, mask: np.ndarray | None) -> np.ndarray | None:
        """Return the output head's panels that hold allowed tokens, if they are few; None: all."""
        if mask is None or not self._jump:
            return None
        most, rows = self._head_panels, 2 * self.phases.core.loaded.target.lanes
        if count_panels(mask, rows) > FEW * most:
            return None
        found = panels_of(mask, rows)
        return found[found < most]  # a constraint's last word may have bits behind the vocabulary

    def _spare(self, result: StepResult, panels: np.ndarray | None) -> None:
        """Count what a pass left out of the output head; shared passes compute all of it."""
        if result.head_share is not None:
            self._spared += 1.0 - result.head_share
        elif panels is not None and result.shared is None:
            self._spared += 1.0 - len(panels) / self._head_panels

    def _choose(self, logits: Logits, row: int, mask: np.ndarray | None) -> int:
        """Choose a token from a row of logits, greedily or by sampling."""
        core = self.phases.core
        if row < len(logits.tokens):
            token = logits.tokens[row]
        elif self._sampler is not None:
            with core.loaded.lock:
                return self._sampler.pick(logits.rows[row], mask)
        else:
            token = core.runner.choose(logits, row, mask)
        if token < 0:
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )
        return token

    # --- accounts

    def _settle(self) -> None:
        """Count the single-token passes so far."""
        start, passes = self._steps
        if passes:
            barriers = self._stepped.tape.barriers
            self._cost += decode_cost(self.phases.core.loaded.cost, start, passes, barriers)
            self.phases.metrics.add_steps(passes)
        self._steps = 0, 0

    def _finish(self, before: int) -> None:
        sequence = self.sequence
        sequence.keep_cached(len(sequence.tokens))  # of drafts that were not consumed
        sequence.keep_prefix()
        self._settle()
        head = self.phases.core.loaded.cost
        cost = replace(
            self._cost,
            linear_flops=self._cost.linear_flops - 2.0 * self._spared * head.head_weights,
            weight_bytes=self._cost.weight_bytes - self._spared * head.head_bytes,
        )
        phase = self.phases.metrics.finish(
            "decode",
            self.purpose,
            self._ids,
            before,
            self._wall,
            self.phases.metrics.spent(),
            cost,
            self._passes,
            "decode",
        )
        phase.sampling = self.sampling.as_dict()
        phase.max_tokens = self.max_tokens
        phase.stop = sorted(self.stop)
        phase.constraint = type(self.constraint).__name__ if self.constraint is not None else None
        phase.forced_tokens = self._forced
        if (drafts := self._drafter) is not None:
            phase.drafted_tokens, phase.accepted_tokens = drafts.made, drafts.right
            phase.drafts = [one for one in drafts.records.values() if one.passes]
            phase.saved_s = drafts.saved_s
