"""Probabilities of the tokens that were chosen, and of the likeliest ones beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..inference.decoding import Constraint
    from ..inference.session import Session


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, and what the model gave for it before any sampling setting or grammar."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens, the first one first."""


class LogprobRecorder:
    """A decode's constraint that notes the logits from which each token was chosen.

    It has no lookahead, so every token is decoded by a pass of its own; the session must not draft.
    """

    def __init__(self, session: Session, constraint: Constraint | None, top: int) -> None:
        self._session, self._constraint, self._top = session, constraint, top
        self._noted: list[TokenLogprob] = []

    @property
    def calling(self) -> bool:
        """See `TurnConstraint.calling`."""
        return getattr(self._constraint, "calling", False)

    def mask(self) -> np.ndarray | None:
        """See `Constraint.mask`."""
        return self._constraint.mask() if self._constraint is not None else None

    def advance(self, token: int) -> None:
        """See `Constraint.advance`; the logits that it came from are still there."""
        if self._session.has_logits:
            with self._session.engine.lock:
                logits = np.array(self._session.logits, np.float64)
            self._noted.append(self._of(logits, token))
        if self._constraint is not None:
            self._constraint.advance(token)

    def take(self) -> list[TokenLogprob]:
        """What was noted since the last time."""
        noted, self._noted = self._noted, []
        return noted

    def _of(self, logits: np.ndarray, token: int) -> TokenLogprob:
        largest = logits.max()
        logits -= largest + np.log(np.exp(logits - largest).sum())
        top: tuple[tuple[int, float], ...] = ()
        if self._top:
            best = np.argpartition(-logits, min(self._top, len(logits) - 1))[: self._top]
            best = sorted(best.tolist(), key=lambda t: (-logits[t], t))
            top = tuple((t, float(logits[t])) for t in best)
        return TokenLogprob(token, float(logits[token]), top)
