"""A pass of a few tokens that keeps the logits after the last of them, and the choice among them.

Its logits are the session's own, so that they can be looked at one row after the other while other
sessions have passes in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...jit.pool import aligned
from ...jit.tape import NativeTape, Tape
from ..forward.choice import choose_ops
from ..forward.graph import Graph
from .plan import Plan

if TYPE_CHECKING:
    from .session import Session

TOKENS = 32  # of a pass: what was forced before, and what is guessed
ROWS = 17  # of logits that it keeps: after the last known token, and after each guess


class Verify:
    """See above.

    Attributes:
        plan: the pass.
    """

    def __init__(self, session: Session) -> None:
        engine = session.engine
        choice = engine.choice
        self._choice = choice
        self._logits = aligned((ROWS, choice.logits.shape[1]), np.float32)
        self.plan = Plan(session, "verify", TOKENS, self._logits, Graph)
        self._row = aligned(8, np.int64)
        tape = Tape("choose", engine.threads)
        choose_ops(tape, self.plan.graph.state, choice, self._logits, self._row[:1])
        self.choose: NativeTape = tape.finish(engine.library, engine.pool)
        """Plays the greedy choice in the row that `logits` was last asked for."""

    def logits(self, row: int) -> np.ndarray:
        """float32 [n_vocab], valid until the next pass."""
        self._row[0] = row
        return self._logits[row, : self._choice.n_vocab]
