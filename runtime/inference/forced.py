"""A decode whose tokens are known beforehand: the same passes, whatever the model would say."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ...errors import ContextOverflowError, EngineError, PassCancelledError
from ..physics.costs import decode_cost
from .sampling import GREEDY, Sampler, Sampling

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from .session import Constraint, Session


def decode_forced(
    session: Session,
    ids: Sequence[int],
    *,
    stop: Collection[int] = (),
    constraint: Constraint | None = None,
    sampling: Sampling = GREEDY,
    purpose: str = "answer",
) -> PhaseEvent:
    """Do what a decode of `ids` does, but take these tokens instead of the chosen ones.

    Each choice is made and paid for, its mask too, and then thrown away.

    Raises:
        ContextOverflowError: they do not fit; nothing has changed.
        PassCancelledError: stop() was called; the session keeps what it has.
    """
    engine = session.engine
    ids = [int(i) for i in ids]
    session._check_ids(ids)
    if not session.tokens or not ids:
        raise EngineError("a decode needs tokens before it and one of its own at least")
    if len(session.tokens) + len(ids) > session.context:
        raise ContextOverflowError(
            f"{len(ids)} tokens after {len(session.tokens)} do not fit a context of "
            f"{session.context}"
        )
    sampler = None if sampling.greedy else Sampler(sampling)
    with engine.lock:
        if not session._has_logits:
            session._compute("resume", 0)
        before, passes = session.n_cached, 0
        engine.pool.clear_stop()
        session._reset()
        started = time.perf_counter()
        for number, token in enumerate(ids):
            if engine.pool.stopped:
                raise PassCancelledError("stopped; the session keeps what it has")
            session._set_mask(constraint.mask() if constraint is not None else None)
            if number == 0:
                session._play(session._choose)
            else:
                session._pass(session._decode, [ids[number - 1]], 1)
                session._logits_at = len(session.tokens)
                passes += 1
            session._chosen(sampler)
            session.tokens.append(token)
            if constraint is not None:
                constraint.advance(token)
        wall = time.perf_counter() - started
        cost = decode_cost(engine.cost, before, passes, session._decode.tape.barriers)
        kernel = session._kernel_seconds()
        phase = session._finish(
            "decode", purpose, ids, before, wall, kernel, cost, passes, "decode"
        )
    phase.sampling = sampling.as_dict()
    phase.stop = sorted(stop)
    return phase
