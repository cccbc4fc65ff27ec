"""The data between scheduler and runner: a request, a batch for one pass, a result.

Request ── scheduler ──► Batch ── runner ──► StepResult ──► the sequence that asked
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ....traces.events import PassEnd
    from ..model.plan import Plan
    from .logits import Logits
    from .sequence import TokenSequence
    from .shared_pass import SharedPass


WHOLE_ROWS = 32  # of a request that one pass takes; of more a pass may take the first ones


@dataclass(eq=False, frozen=True, slots=True)
class Request:
    """Rows that a sequence wants computed next."""

    sequence: TokenSequence
    """Whose rows they are."""
    start: int
    """Tokens that it had in its KV cache when it asked."""
    ids: Sequence[int]
    """The tokens that follow."""
    outputs: int = 0
    """Of how many of the last ones logits are wanted. Of several: some are drafts, and may be taken
    back."""
    masks: Sequence[np.ndarray | None] = ()
    """For the first of these, the tokens that a greedy choice may take, as uint32 bits, or None for
    all; empty where nothing is to be chosen."""
    panels: np.ndarray | None = None
    """Of the output head, those that are wanted; None: all. For passes of this sequence alone:
    others get every row's logits whole."""
    pick: Callable[[np.ndarray], int] | None = None
    """Draws the first of these by its logits, float32 [n_vocab], where nothing is greedy. The pass
    does so itself: who drew from outside would wait for the pass after it."""


@dataclass(eq=False, frozen=True, slots=True)
class Batch:
    """The rows of one pass. The scheduler makes it; the runner reads nothing else of requests."""

    parts: tuple[tuple[Request, int], ...]
    """Requests of different sequences, and how many of their rows, the first ones, are taken."""
    why: PassEnd = "all"
    """Why it has no more rows: see `PassEvent.why`."""

    @classmethod
    def whole(cls, *requests: Request) -> Batch:
        """Build a batch of all rows of these requests."""
        return cls(tuple((one, len(one.ids)) for one in requests))


@dataclass(eq=False, slots=True)
class StepResult:
    """What a pass did for one request."""

    computed: int = 0
    """Rows that it took; 0 where the KV cache is not as it was when they were asked for: pages were
    taken over, or evicted."""
    logits: Logits | None = None
    """Of the last rows, if it took all."""
    plan: Plan | None = None
    """What ran."""
    experts: list[int] = field(default_factory=list)
    """Distinct ones that each layer of a mixture took, in a pass of several rows."""
    shared: SharedPass | None = None
    """The pass, if other sequences had rows in it."""
    place: int = 0
    """This request's place in it."""
