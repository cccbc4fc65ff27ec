"""Log-probabilities of the sampled tokens and of their most likely alternatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..engine.around import Around
from ..engine.sampling.sampler import Sampler
from ..engine.sampling.settings import Sampling

if TYPE_CHECKING:
    from ..engine.decoding import Constraint
    from ..engine.session import Session


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its log-probability.

    Computed before sampling settings and grammar, unless `TurnRequest.sampled_probs` is set.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    """The most likely tokens and their log-probabilities, in descending order."""


class LogprobRecorder(Around):
    """Wraps a constraint and records the log-probability of each sampled token.

    It has no lookahead, so every token is decoded by a pass of its own; the session must not draft.

    Args:
        session: the one that decodes.
        constraint: of the decode, if there is one.
        top: number of most likely tokens to record at each position.
        sampling: settings of the decode, to record probabilities after them and `constraint`;
            None: record the model's own.
    """

    def __init__(
        self,
        session: Session,
        constraint: Constraint | None,
        top: int,
        sampling: Sampling | None = None,
    ) -> None:
        super().__init__(constraint)
        self._session, self._top = session, top
        self._sampler: Sampler | None = None
        if sampling is not None:
            loaded = session.phases.core.loaded
            at = len(session.tokens)
            self._sampler = Sampler(
                sampling,
                loaded.logit_ranker,
                at,
                constraint,
                loaded.tokenizer,
                session.tokens,
            )
        self._noted: list[TokenLogprob] = []

    def advance(self, token: int) -> None:
        """Record the sampled token from the logits that it was drawn from, then advance."""
        if self._session.sequence.has_logits:
            self._noted.append(self._after(token) if self._sampler else self._before(token))
        super().advance(token)

    def take(self) -> list[TokenLogprob]:
        """Return the log-probabilities recorded since the last call."""
        noted, self._noted = self._noted, []
        return noted

    def _after(self, token: int) -> TokenLogprob:
        """Return a token's log-probabilities after all sampling settings and the constraint."""
        assert self._sampler is not None
        with self._session.phases.core.loaded.lock:
            mask = self.mask()
            chance, top = self._sampler.chances(self._session.logits, mask, token, self._top)
        self._sampler.accept(token)
        likeliest = [(one, _log(each)) for one, each in top]
        return TokenLogprob(token, _log(chance), tuple(likeliest))

    def _before(self, token: int) -> TokenLogprob:
        """Return a token's log-probabilities in the model's own distribution."""
        with self._session.phases.core.loaded.lock:
            logits = np.array(self._session.logits, np.float64)
        largest = logits.max()
        logits -= largest + np.log(np.exp(logits - largest).sum())
        top: tuple[tuple[int, float], ...] = ()
        if self._top:
            best = np.argpartition(-logits, min(self._top, len(logits) - 1))[: self._top]
            best = sorted(best.tolist(), key=lambda t: (-logits[t], t))
            top = tuple((t, float(logits[t])) for t in best)
        return TokenLogprob(token, float(logits[token]), top)


def _log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf
