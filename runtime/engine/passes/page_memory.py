"""KV cache memory of a pass: the bytes that its rows need, and the eviction that frees them.

Unused pages are evicted first, then those of resting sequences, then those of sequences that got
theirs later. So the first one completes, and sequences do not recompute by turns.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from ....errors import ContextOverflowError
from .eviction import frees_enough, victims_for

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ...forward.kv_memory import KVMemory
    from ..kv.prefix_cache import PrefixCache
    from .pending import PendingRequest
    from .sequence import TokenSequence


class PageMemory:
    """KV cache memory for passes: reserved, by eviction if needed. The caller has the mutex."""

    def __init__(
        self,
        memory: KVMemory,
        prefix_cache: PrefixCache,
        sequences: Collection[TokenSequence],
        active: Collection[TokenSequence],
        waiting: Sequence[PendingRequest],
        ask_again: list[PendingRequest],
    ) -> None:
        """sequences: all that there are; active: those in a phase; waiting: requests that wait for
        a pass; ask_again: receives those whose sequence was preempted, or can never fit."""
        self._memory, self._prefix_cache = memory, prefix_cache
        self._sequences, self._active = sequences, active
        self._waiting, self._ask_again = waiting, ask_again
        self.parks = True
        """Whether sequences that find no memory wait, and may be preempted for others;
        benchmarks turn it off."""
        self.preempted = 0
        """Number of preemptions."""

    def promise(self, nbytes: int) -> bool:
        """Reserve `nbytes` for the pages of a pass; return False if they do not fit."""
        memory = self._memory
        memory.promised = 0
        if memory.lacks(nbytes):
            return False
        memory.promised = nbytes
        return True

    def needed(
        self,
        pending: PendingRequest,
        count: int,
        promised: int,
        picked: Sequence[tuple[PendingRequest, int]],
    ) -> int | None:
        """Make room for a request's rows and return the bytes they need; None: it has to wait.

        Pinned prefixes are evicted before a sequence that has pages preempts others, or where no
        sequence could continue otherwise; a new one waits. `promised`: bytes for others of
        this pass, `picked`.
        """
        sequence, memory, prefixes = pending.request.sequence, self._memory, self._prefix_cache
        start, end = sequence.n_cached, sequence.n_cached + count
        undo = pending.request.outputs > 1
        claimed = {
            page
            for other, rows in picked
            for page in other.request.sequence.cache.claims(
                other.request.start, other.request.start + rows
            )
        }
        needed = sequence.cache.wants(start, end, claimed, undo=undo)
        if sequence.cache.state is not None and not undo and memory.lacks(promised + needed):
            sequence.cache.state.give_up_spare()  # it drafts no more, or not now
        if not needed or not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        prefixes.evict(memory.lacks(promised + needed), kept=bool(sequence.admitted))
        self._preempt_for(pending, promised + needed, picked)
        others = [s for s in list(self._sequences) if s.cache.held and s is not sequence]
        mine = pending.seniority
        alone = not (picked or others or any(other.seniority < mine for other in self._waiting))
        if alone or not self.parks:
            prefixes.evict(memory.lacks(promised + needed), kept=True)
            if memory.lacks(promised + needed) and (
                page := sequence.cache.page_at(sequence.n_cached)
            ):
                # It may lack room for a copy of a page that only the tree has beside it.
                prefixes.forget(page)
                needed = sequence.cache.wants(start, end, claimed, undo=undo)
                prefixes.evict(memory.lacks(promised + needed), kept=True)
        if not memory.lacks(promised + needed):
            sequence.admitted = sequence.admitted or time.monotonic()
            return needed
        if alone or not self.parks:
            self._refuse(pending, start, end)
        return None

    def _preempt_for(
        self, pending: PendingRequest, wanted: int, picked: Sequence[tuple[PendingRequest, int]]
    ) -> None:
        """Evict the pages of others until `wanted` bytes are free, if theirs are enough."""
        sequence, memory, prefixes = pending.request.sequence, self._memory, self._prefix_cache
        here = {other.request.sequence for other, _ in picked} | {sequence}
        found = victims_for(pending, self._waiting, self._sequences, self._active)
        victims = [one for one in found if one not in here] if self.parks else []
        lacks, freed_by = memory.lacks(wanted), prefixes.freed_by
        if frees_enough(victims, sequence, self._sequences, lacks, freed_by):
            for victim in victims:
                if not memory.lacks(wanted):
                    break
                self._preempt(victim)
                prefixes.evict(memory.lacks(wanted))

    def _preempt(self, sequence: TokenSequence) -> None:
        """Preempt a sequence: it computes its tokens again when it continues."""
        sequence.evict()
        self.preempted += 1
        for pending in self._waiting:
            if pending.request.sequence is sequence:
                self._ask_again.append(pending)

    def _refuse(self, pending: PendingRequest, start: int, end: int) -> None:
        """Give a request the error that there will never be room for its rows."""
        sequence, memory = pending.request.sequence, self._memory
        undo = pending.request.outputs > 1
        others = memory.used - sum(page.nbytes for page in sequence.cache.held)
        whole = sequence.cache.needs(end, undo=undo) + max(0, others)
        pending.error = ContextOverflowError(
            f"{end} tokens need {whole:,} bytes of KV cache, but there are "
            f"{memory.budget:,} for all; load the model with more kv_memory, or a smaller context"
        )
        assert memory.budget is not None, "nothing is lacking without one"
        rest, wants = memory.budget - memory.used, partial(sequence.cache.wants, undo=undo)
        more = bisect_right(range(start + 1, end), rest, key=lambda n: wants(start, n))
        pending.error.memory = end, start + more
        self._ask_again.append(pending)
