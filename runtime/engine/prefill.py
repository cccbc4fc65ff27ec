"""The prefill loop: computes the uncached tokens of a sequence in chunks.

Before anything is computed, the cached prefix of other sequences is adopted, and pages on disk are
read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...jit.kernels.kvcache import PAGE
from ..forward.state import EVERY
from ..physics.costs import PassCost
from .passes.request import Request

if TYPE_CHECKING:
    import numpy as np

    from ...traces.events import PhaseEvent
    from .phases import Phases


class Prefill:
    """One prefill of a sequence: see `Session.prefill`."""

    def __init__(
        self,
        phases: Phases,
        purpose: str,
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> None:
        self.phases, self.sequence = phases, phases.sequence
        self.purpose = purpose
        self.check = check
        self.borders = borders
        self._adopted = 0  # tokens of this phase that another sequence had computed

    def run(self) -> PhaseEvent:
        """Compute tokens[n_cached:] in chunks, logits for the last one."""
        sequence, core = self.sequence, self.phases.core
        metrics, scheduler = self.phases.metrics, core.scheduler
        cost, passes, plan_name = PassCost(), 0, "prefill"
        total = len(sequence.tokens)
        if total and not sequence.has_logits:
            # They come with the last token: it is computed again where all is cached.
            sequence.keep_cached(total - 1)
        before = sequence.n_cached
        with scheduler.phase(sequence):
            if self.check is not None:
                self.check()
            metrics.reset()
            started = time.perf_counter()
            self._adopted = sequence.adopt_prefix(total)
            if sequence.shares and sequence.cache.state is None:  # no page is of use without one
                self._recall(total)
            first, adopted = sequence.n_cached // PAGE, self._adopted
            opening = self._opening_to_keep(total)
            while sequence.n_cached < total:
                self._adopted = sequence.adopt_prefix(total, self._adopted)
                at = sequence.n_cached
                end = self._pass_end(at, total, opening)
                ids = sequence.tokens[at:end]
                result = scheduler.compute(Request(sequence, at, ids, int(end == total)))
                if not result.computed:
                    continue
                self._keep_state(self.borders or (total,))
                if opening and sequence.n_cached == opening:
                    self._keep_opening(opening, first, adopted)
                cost += metrics.cost(result, at)
                if passes == 0 and result.plan is not None:
                    # One token is not worth its own plan name unless it is all there was.
                    plan_name = result.plan.name
                passes += 1
                if self.phases.on_progress and sequence.n_cached < total:
                    done = sequence.n_cached - before
                    rate = done / (time.perf_counter() - started)
                    self.phases.on_progress(done, total - before, rate)
            wall = time.perf_counter() - started
            sequence.logits_at = total or -1
            spent = metrics.spent()
        ids, adopted = sequence.tokens[before:total], min(self._adopted, total - before)
        return metrics.finish(
            "prefill", self.purpose, ids, before, wall, spent, cost, passes, plan_name, adopted
        )

    def _pass_end(self, at: int, total: int, opening: int) -> int:
        """Return where passes from position `at` on have to end at the latest."""
        ends = (opening,) if self.sequence.cache.state is None else self.borders
        return min((n for n in ends if at < n < total), default=total)

    def _keep_state(self, borders: Sequence[int]) -> None:
        """Checkpoint the state where later texts are likely to resume."""
        sequence, state = self.sequence, self.sequence.cache.state
        if state is None:
            return
        at = sequence.n_cached
        last = state.checkpoints[-1].position if state.checkpoints else 0
        if at not in borders and at - last < EVERY:
            return
        with self.phases.core.loaded.lock:
            if state.position == at:  # pages may be evicted meanwhile
                state.keep()
                sequence.keep_prefix()

    # --- what others have computed

    def _recall(self, total: int) -> None:
        """Read back what is on disk of the tokens that follow; the last one is computed here."""
        sequence = self.sequence
        before, sequence.recalled = sequence.n_cached, 0
        opening = sequence.opening if before < sequence.opening < total else 0
        if total <= (before // PAGE + 1) * PAGE and not opening:  # no page of them is whole
            return
        spill, ids = self.phases.core.spill, sequence.tokens[: total - 1]
        for number, end, data in spill.recall(ids, before // PAGE, sequence.namespace, opening):
            if not self._load_page(number, end, data):
                break
            sequence.recalled += len(data)
        self._adopted += sequence.n_cached - before

    def _load_page(self, number: int, end: int, data: np.ndarray) -> bool:
        """Append a page that was read from disk, if it follows the cache and there is room.

        end: how many tokens it ends behind.
        """
        sequence, core = self.sequence, self.phases.core
        with core.scheduler.mutex:
            if sequence.epoch != sequence.generation:
                return False
            if sequence.n_cached // PAGE != number or sequence.n_cached >= end:
                return False
            if not core.prefix_cache.make_room(len(data)):
                return False
            if not sequence.cache.can_resume_at(number * PAGE):
                return False
            sequence.cache.clear(number)
            sequence.cache.append(data)
            sequence.n_cached = end
            sequence.admitted = sequence.admitted or time.monotonic()
        return True

    # --- what other processes' sessions begin with

    def _opening_to_keep(self, total: int) -> int:
        """Return where the opening ends, if its uncached pages will all be new; else 0."""
        sequence = self.sequence
        at, end = sequence.n_cached, sequence.opening
        new = at % PAGE == 0 and at == len(sequence.cache.held) * PAGE
        shared = sequence.shares and sequence.cache.state is None
        wanted = shared and new and at < end < total and self.phases.core.spill.wants(end, at)
        return end if wanted else 0

    def _keep_opening(self, end: int, first: int, adopted: int) -> None:
        """Write the opening's pages to disk, unless they hold rows of other sessions.

        first: the first page that was computed here; adopted: what `_adopted` was then.
        """
        sequence, core = self.sequence, self.phases.core
        with core.scheduler.mutex:  # pages may be evicted meanwhile
            pages = sequence.cache.held[first : -(-end // PAGE)]
            whole = all(page.whole for page in pages)
            if sequence.n_cached != end or self._adopted != adopted or not whole:
                return
            copies = [page.data.copy() for page in pages]
        core.spill.keep(sequence.tokens[:end], first, copies, sequence.namespace)
