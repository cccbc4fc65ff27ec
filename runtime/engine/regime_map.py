"""The phase diagram's background: the predicted bound of a pass, by tokens and KV length."""

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
    """Map `tokens` in a pass and `kv` positions before it to the bound's first letter.

    The passes are those that the session would make: at most as many tokens as its prefill takes
    at once, and as many positions as fit. Computed once for an engine and its calibration, in some
    milliseconds: so an agent asks for it before it is asked anything.
    """
    core = session.phases.core
    by, found = _known.get(core, (None, {}))
    if not found or by is not core.loaded.calibration:
        found = _compute(session)
        _known[core] = core.loaded.calibration, found
    return found


def _compute(session: Session) -> dict[str, Any]:
    core = session.phases.core
    loaded, plans = core.loaded, (core.plans.decode, core.plans.prefill)
    tokens = _lengths(1, session.phases.max_tokens)
    kv = _lengths(1, session.context)
    known = loaded.calibration

    def bound(count: int, start: int) -> str:
        if known is not None:
            return known.estimate(loaded.cost, count, start).seen.bound[0]
        barriers = plans[count > 1].tape.barriers
        cost = pass_cost(loaded.cost, count, start, 1, barriers, loaded.attention_tile)
        return predict(cost, loaded.cost, loaded.machine).bound[0]

    return {
        "tokens": tokens,
        "kv": kv,
        "by": known.name if known else "roofline",
        "bounds": ["".join(bound(n, at) for at in kv) for n in tokens],
    }


def _lengths(first: int, last: int) -> list[int]:
    """Return whole numbers from first to last, evenly spaced on a logarithmic axis."""
    found, exact = [first], float(first)
    while found[-1] < last:
        exact *= _STEP
        if (number := min(round(exact), last)) > found[-1]:
            found.append(number)
    return found
