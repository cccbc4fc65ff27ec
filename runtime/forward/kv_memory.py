"""Memory for KV pages: the total in use, and spare pages made in advance."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ...jit.kernels.kvcache import PAGE
from ..memory import Arena

MANY = PAGE // 2  # rows of a pass that does not touch pages ahead
AHEAD = 1  # passes by which a page is there before it is needed
NEWCOMERS = 2  # pages for who may join sequences that share passes: a copy, and the one behind it
SOON = 32  # passes in which their pages are there, whoever needs them


@dataclass(slots=True)
class Spare:
    """Memory of a future page; `touched`: bytes that the system has already mapped."""

    arena: Arena
    touched: int = 0

    def touch(self, nbytes: int, limit: int) -> int:
        """Touch the rest of `nbytes`, `limit` bytes at most; return how many were touched."""
        count = max(0, min(nbytes - self.touched, limit))
        self.arena.touch(self.touched, self.touched + count)
        self.touched += count
        return count


@dataclass(slots=True)
class KVMemory:
    """Memory of all KV pages of an engine: its use, its budget and spare pages."""

    used: int = 0
    """Bytes of all pages and recurrent states; shared pages count once."""
    promised: int = 0
    """Bytes reserved for the pages of a pass that is about to begin."""
    budget: int | None = None
    """Maximum bytes of pages and states; None: no limit."""
    _spares: list[Spare] = field(default_factory=list)  # for the next pages, the first one first

    def take(self, nbytes: int) -> Arena:
        """Return memory for a page of `nbytes` bytes: a spare one, or a new one."""
        if self._spares and self._spares[0].arena.nbytes >= nbytes:
            return self._spares.pop(0).arena
        self._spares.clear()
        return Arena(nbytes)

    def prepare(self, nbytes: int, spans: Iterable[tuple[int, int]]) -> None:
        """Touch, after a pass, part of the pages of `nbytes` bytes that its sequences need soon.

        spans: of each sequence the position after its last row, and its rows; the next passes
        are taken to have as many.

        To get memory from the system takes time: some ms a page, and on a virtual machine whose
        host has to find it, 70 ms were seen. In one pass that is a gap between two tokens, and
        sequences with a prompt in common want their pages at about the same time. So for each of
        them one page is ahead, and `NEWCOMERS` where there are several, as far as the budget has
        room; what a page still lacks is shared out among the passes until it is needed. A pass of
        many rows fills pages at once and gets their memory by all threads.
        """
        ends = list(spans)
        if sum(rows for _, rows in ends) > MANY:
            return
        lefts = [-end % PAGE // rows for end, rows in ends]  # passes until a page is needed
        if len(lefts) > 1:
            lefts = [min(left, SOON) for left in lefts] + [SOON] * NEWCOMERS
        todo = largest = 0
        for n, left in enumerate(sorted(lefts)):
            if n == len(self._spares) and not self._add_spare(nbytes):
                break
            # The k-th page is for the k-th sequence, when those before it are whole.
            todo += nbytes - self._spares[n].touched
            largest = max(largest, -(-todo // max(1, left - AHEAD)))
        for spare in self._spares:
            largest -= spare.touch(nbytes, largest)

    def _add_spare(self, nbytes: int) -> bool:
        """Add one spare page if there is room; return whether there was."""
        if not self.lacks((len(self._spares) + 1) * nbytes):
            with suppress(OSError, MemoryError):  # who needs the page will be told
                self._spares.append(Spare(Arena(nbytes)))
                return True
        return False

    def lacks(self, nbytes: int) -> int:
        """Return the bytes to evict before `nbytes` more fit into the budget; 0: none."""
        if self.budget is None:
            return 0
        return max(0, self.used + self.promised + nbytes - self.budget)
