"""Preemption: which sequences lose their KV pages when memory runs out."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from .pending import PendingRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ...forward.kv import Page
    from .sequence import TokenSequence

REST_S = 1.0  # after which a session that asks for nothing counts as resting: a tool takes long


def victims_for(
    pending: PendingRequest,
    waiting: Sequence[PendingRequest],
    sequences: Iterable[TokenSequence],
    active: Collection[TokenSequence],
) -> list[TokenSequence]:
    """Return the sequences that a request may preempt: resting ones, then the latest.

    Args:
        pending: request of the sequence that lacks memory.
        waiting: all that wait for a pass.
        sequences: all that there are.
        active: those in a phase.
    """
    by_sequence = {other.request.sequence: other for other in waiting}
    now, mine = time.monotonic(), pending.seniority
    resting = [
        sequence
        for sequence in list(sequences)
        if sequence.cache.held
        and sequence not in by_sequence
        and (sequence not in active or now - sequence.used > REST_S)
    ]
    # Between two of its phases a sequence is not at rest yet, unless it is all there is.
    fresh = {sequence for sequence in resting if now - sequence.used <= REST_S}
    if len(active) > 1:
        resting = [sequence for sequence in resting if sequence not in fresh]
    resting.sort(key=lambda sequence: sequence.used)
    later = [o for s, o in by_sequence.items() if s.cache.held and o.seniority > mine]
    later.sort(key=lambda other: other.seniority, reverse=True)
    return [*resting, *(other.request.sequence for other in later)]


def frees_enough(
    victims: Iterable[TokenSequence],
    sequence: TokenSequence,
    sequences: Iterable[TokenSequence],
    wanted: int,
    freed_by: Callable[[Counter[Page]], int],
) -> bool:
    """Return whether preempting these victims gives a sequence the bytes that it wants.

    Also where no sequence besides these holds pages. Otherwise it waits for the others: preempting
    these would only make them start over and over.
    """
    held = Counter(page for one in list(sequences) for page in one.cache.held)
    theirs = Counter(page for one in victims for page in one.cache.held)
    if held == theirs + Counter(sequence.cache.held):
        return True
    return wanted <= freed_by(theirs)
