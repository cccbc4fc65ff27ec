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
    """The sequence that the rows belong to."""
    start: int
    """Position of the first row: the cached tokens at the time of the request."""
    ids: Sequence[int]
    """Token ids of the rows."""
    outputs: int = 0
    """Number of last rows whose logits are wanted; if several, some are drafts, and may be rolled
    back."""
    masks: Sequence[np.ndarray | None] = ()
    """Tokens allowed in a greedy choice, for the first rows with logits: uint32 bits, or None for
    all; empty: the pass makes no greedy choice."""
    panels: np.ndarray | None = None
    """Panels of the output head to compute; None: all. Only for passes of this sequence alone:
    shared passes compute all."""
    pick: Callable[[np.ndarray], int] | None = None
    """Samples a token from the first row's logits, float32 [n_vocab], where nothing is greedy.
    Called within the pass: a call after it would wait for the next pass."""
    greedy_only: bool = False
    """Whether only the greedy choice of the first row is wanted, and no logits."""


@dataclass(eq=False, frozen=True, slots=True)
class Batch:
    """The rows of one pass. The scheduler makes it; the runner reads nothing else of requests."""

    parts: tuple[tuple[Request, int], ...]
    """Requests of different sequences, each with the number of its first rows to compute."""
    why: PassEnd = "all"
    """Why the pass has no more rows: see `PassEvent.why`."""

    @classmethod
    def whole(cls, *requests: Request) -> Batch:
        """Build a batch of all rows of these requests."""
        return cls(tuple((one, len(one.ids)) for one in requests))


@dataclass(eq=False, slots=True)
class StepResult:
    """The result of a pass for one request."""

    computed: int = 0
    """Rows computed; 0 if the sequence's KV cache changed since the request: pages were adopted, or
    evicted."""
    logits: Logits | None = None
    """Logits of the last rows, if all rows were computed."""
    plan: Plan | None = None
    """The plan that ran."""
    head_share: float | None = None
    """Share of the output head's bytes that were read for a greedy choice; None: logits are whole,
    or those of the request's panels."""
    experts: list[int] = field(default_factory=list)
    """Distinct experts that each layer of a mixture used, in a pass of several rows."""
    shared: SharedPass | None = None
    """The pass, if other sequences had rows in it."""
    place: int = 0
    """Index of the request in the shared pass."""
