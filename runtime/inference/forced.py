"""A decode whose tokens are known beforehand: the same passes, whatever the model would say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ContextOverflowError, EngineError
from .decoding import Constraint, Decoding
from .sampling import GREEDY, Sampling

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from .session import Session


class Forced(Decoding):
    """A decode that makes each choice, mask and all, and then takes the next of `ids` instead."""

    def __init__(
        self,
        session: Session,
        ids: Sequence[int],
        stop: Collection[int],
        constraint: Constraint | None,
        sampling: Sampling,
        purpose: str,
    ) -> None:
        super().__init__(session, len(ids), (), constraint, sampling, purpose)
        self._stop = sorted(stop)
        self._script = list(ids)

    def run_all(self) -> PhaseEvent:
        """Decode them; gives the phase."""
        for _ in self.run():
            pass
        phase = self.session.last_phase
        assert phase is not None, "a decode that has ended gives its phase"
        phase.stop = self._stop
        return phase

    def _chosen(self, logits: np.ndarray) -> int:
        super()._chosen(logits)
        return self._script[len(self._ids)]

    def _only(self) -> int | None:
        return None if super()._only() is None else self._script[len(self._ids)]


def decode_forced(
    session: Session,
    ids: Sequence[int],
    *,
    stop: Collection[int] = (),
    constraint: Constraint | None = None,
    sampling: Sampling = GREEDY,
    purpose: str = "answer",
) -> PhaseEvent:
    """Do what a decode of `ids` does, and accept them.

    `stop` is for the record: the decode ends with the last of `ids`.

    Raises:
        ContextOverflowError: they do not fit; nothing has changed.
        PassCancelledError: stop() was called; the session keeps what it has.
    """
    ids = [int(i) for i in ids]
    session.check_ids(ids)
    if not session.tokens or not ids:
        raise EngineError("a decode needs tokens before it and one of its own at least")
    if len(session.tokens) + len(ids) > session.context:
        raise ContextOverflowError(
            f"{len(ids)} tokens after {len(session.tokens)} do not fit a context of "
            f"{session.context}"
        )
    return Forced(session, ids, stop, constraint, sampling, purpose).run_all()
