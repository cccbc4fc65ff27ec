"""Pending requests of the scheduler: their seniority, and which of them share a prefix."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from .pass_policy import seniority
from .speculative_config import VERIFY_TOKENS

if TYPE_CHECKING:
    from .runner import Rows

SAME = 64  # tokens in common from which on a prompt waits for another one's pass


class Ticket:
    """Rows that wait, or are being computed."""

    __slots__ = (
        "began", "decodes", "done", "error", "flag", "leads", "rows", "since", "taken", "thread"
    )  # fmt: skip

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        # Whether it goes whole into the next pass: a token, or a draft. A short result, the end of
        # a prompt and what a grammar forces may take several, of which the deadline says how many.
        self.decodes = len(rows.ids) == 1 or rows.outputs > 1
        self.error: Exception | None = None
        self.done = self.leads = False
        self.taken = False  # by the pass that runs
        self.since = time.perf_counter()
        self.began = rows.sequence.began  # a prompt's next part waits for as long as its first
        self.thread = threading.get_ident()  # which waits for them
        self.flag = threading.Lock()
        self.flag.acquire()

    @property
    def seniority(self) -> tuple[bool, float]:
        """When it may have memory; see `pass_policy.seniority`."""
        return seniority(self.rows.sequence.admitted, self.since)


def twins(rows: Rows, other: Rows) -> bool:
    """Whether two sequences that share prefixes are about to compute the same."""
    one, two = rows.sequence, other.sequence
    return (
        one.shares
        and two.shares
        and one.namespace == two.namespace
        and len(other.ids) > VERIFY_TOKENS
        and one.n_cached == two.n_cached
        and rows.ids[:SAME] == other.ids[:SAME]
        and one.tokens[: one.n_cached] == two.tokens[: two.n_cached]
    )
