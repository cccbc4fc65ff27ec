"""Teacher forcing: a decode of given tokens, with the passes that choosing them would take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ContextOverflowError, EngineError
from .around import Around
from .decoding import Constraint, Decoding
from .passes.logits import Logits
from .sampling.settings import GREEDY, Sampling

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from .session import Session


class TeacherForcedDecode(Decoding):
    """A decode that computes each choice, masks too, and then takes the next of `ids` instead."""

    def __init__(
        self,
        session: Session,
        ids: Sequence[int],
        stop: Collection[int],
        constraint: Constraint | None,
        sampling: Sampling,
        purpose: str,
    ) -> None:
        super().__init__(session.phases, len(ids), (), constraint, sampling, purpose)
        self._stop = sorted(stop)
        self._script = list(ids)
        self._at = 0

    def run_all(self, on_token: Callable[[], object] | None = None) -> PhaseEvent:
        """Decode all `ids` and return the trace event of the phase."""
        for _ in self.run():
            if on_token is not None:
                on_token()
        phase = self.sequence.last_phase
        assert phase is not None, "a decode that has ended gives its phase"
        phase.stop = self._stop
        return phase

    def _choose(self, logits: Logits, row: int, mask: np.ndarray | None) -> int:
        super()._choose(logits, row, mask)
        return self._script[self._at]

    def _only(self) -> int | None:
        return None if super()._only() is None else self._script[self._at]

    def _accepted(self, token: int) -> int:
        self._at += 1
        return super()._accepted(token)


class ForcedConstraint(Around):
    """A constraint that forces tokens so that a decode takes a given number of passes.

    Which tokens a recorded decode took without a pass is not in a trace, since a grammar forced
    them or they were drafted; but how many passes it had and how many positions it computed is.
    Here the passes are spread evenly over these.

    Args:
        inner: the grammar of the decode: its masks are made, and it advances with the tokens.
    """

    def __init__(self, computed: int, passes: int, inner: Constraint | None = None) -> None:
        super().__init__(inner)
        self._chosen = {round(n * computed / max(1, passes)) for n in range(passes + 1)}
        self._at = 0

    def advance(self, token: int) -> None:
        """Count one more token."""
        self._at += 1
        super().advance(token)

    def forced(self) -> int | None:
        """Return a placeholder where the token is forced, None where a pass chooses it."""
        return None if self._at in self._chosen else 0

    def allows(self, tokens: Sequence[int]) -> int:
        """Return the number of tokens: all are allowed."""
        return len(tokens)


def decode_teacher_forced(
    session: Session,
    ids: Sequence[int],
    *,
    stop: Collection[int] = (),
    constraint: Constraint | None = None,
    sampling: Sampling = GREEDY,
    purpose: str = "answer",
    on_token: Callable[[], object] | None = None,
) -> PhaseEvent:
    """Run the passes of a decode that would choose `ids`, and accept these tokens.

    `stop` is for the record: the decode ends with the last of `ids`. `on_token` is called when each
    of them is there.

    Raises:
        ContextOverflowError: they do not fit; nothing has changed.
        PassCancelledError: stop() was called; the session keeps what it has.
    """
    ids = [int(i) for i in ids]
    session.phases.core.loaded.check_ids(ids)
    if not session.tokens or not ids:
        raise EngineError("a decode needs tokens before it and one of its own at least")
    if len(session.tokens) + len(ids) > session.context:
        raise ContextOverflowError(
            f"{len(ids)} tokens after {len(session.tokens)} do not fit a context of "
            f"{session.context}"
        )
    return TeacherForcedDecode(session, ids, stop, constraint, sampling, purpose).run_all(on_token)
