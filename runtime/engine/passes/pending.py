"""Pending requests of the scheduler: their seniority, and which of them share a prefix."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ..policy.pass_policy import seniority
from .request import WHOLE_ROWS, StepResult

if TYPE_CHECKING:
    from .request import Request

SAME = 64  # tokens in common from which on a prompt waits for another one's pass


class PendingRequest:
    """A request that waits for a pass, or that a pass has taken."""

    __slots__ = (
        "began", "decodes", "done", "error", "flag", "leads", "request", "result", "since", "taken",
        "thread",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request, self.result = request, StepResult()
        # Whether it goes whole into the next pass: a token, or a draft. A short result, the end of
        # a prompt and what a grammar forces may take several, of which the deadline says how many.
        self.decodes = len(request.ids) == 1 or request.outputs > 1
        self.error: Exception | None = None
        self.done = self.leads = False
        self.taken = False  # by the pass that runs
        self.since = time.perf_counter()
        self.began = request.sequence.began  # a prompt's next part waits for as long as its first
        self.thread = threading.get_ident()  # which waits for them
        self.flag = threading.Lock()
        self.flag.acquire()

    @property
    def seniority(self) -> tuple[bool, float]:
        """The sort key for memory: see `pass_policy.seniority`."""
        return seniority(self.request.sequence.admitted, self.since)


def same_prefix(request: Request, other: Request) -> bool:
    """Return whether two sequences that share prefixes are about to compute the same rows."""
    one, two = request.sequence, other.sequence
    return (
        one.shares
        and two.shares
        and one.namespace == two.namespace
        and len(other.ids) > WHOLE_ROWS
        and one.n_cached == two.n_cached
        and request.ids[:SAME] == other.ids[:SAME]
        and one.tokens[: one.n_cached] == two.tokens[: two.n_cached]
    )
