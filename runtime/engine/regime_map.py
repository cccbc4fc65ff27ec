"""The bounds that are expected, by size of a pass: the ground of the phase diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..physics.costs import pass_cost, predict

if TYPE_CHECKING:
    from ..physics.calibration import Calibration
    from .engine_core import EngineCore
    from .session import Session

_STEP = 2.0  # between neighboring lengths
_known: WeakKeyDictionary[EngineCore, tuple[Calibration | None, dict[str, Any]]] = (
    WeakKeyDictionary()
)


def regime_map(session: Session) -> dict[str, Any]:
    """For `tokens` in a pass and `kv` positions before it, the first letter of the bound.

    The passes are those that the session would make: at most as many tokens as its prefill takes
    at once, and as many positions as fit. Computed once for an engine and its calibration, in some
    milliseconds: so an agent asks for it before it is asked anything.
    """
    engine = session.engine
    by, found = _known.get(engine, (None, {}))
    if not found or by is not engine.calibration:
        found = _compute(session)
        _known[engine] = engine.calibration, found
    return found


def _compute(session: Session) -> dict[str, Any]:
    engine = session.engine
    plans = engine.plans.decode, engine.plans.prefill
    tokens = _lengths(1, session.sequence.max_tokens)
    kv = _lengths(1, session.context)
    known = engine.calibration

    def bound(count: int, start: int) -> str:
        if known is not None:
            return known.estimate(engine.cost, count, start).seen.bound[0]
        barriers = plans[count > 1].tape.barriers
        cost = pass_cost(engine.cost, count, start, 1, barriers, engine.attention_tile)
        return predict(cost, engine.cost, engine.machine).bound[0]

    return {
        "tokens": tokens,
        "kv": kv,
        "by": known.name if known else "roofline",
        "bounds": ["".join(bound(n, at) for at in kv) for n in tokens],
    }


def _lengths(first: int, last: int) -> list[int]:
    """Whole numbers from first to last, spaced evenly on a logarithmic axis."""
    found, exact = [first], float(first)
    while found[-1] < last:
        exact *= _STEP
        if (number := min(round(exact), last)) > found[-1]:
            found.append(number)
    return found
