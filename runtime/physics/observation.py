"""The observed shares of a phase's time by resource, and the bound that they imply."""

from __future__ import annotations

from dataclasses import dataclass

from .costs import Bound, Prediction

OVERLAP = 2.0  # of arithmetic and reading in a pass: 1 for none, more for more


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed shares of a phase, each between 0 and 1, and its bound."""

    mfu: float
    """The minimum time of the phase's arithmetic over its measured time."""
    mbu: float
    """The minimum time of the phase's reads and writes over its measured time."""
    dispatch_share: float
    """The share of the time outside of kernels."""
    shares: dict[Bound, float]
    """Shares of the time by resource; together at most 1."""
    bound: Bound
    """The resource whose reduction would save the most: the largest of `shares`."""
    limit_share: float
    """Share of the bound's limit that was reached; for dispatch: the kernels' share."""


NOTHING = Observation(0.0, 0.0, 0.0, {"compute": 0.5, "memory": 0.5, "dispatch": 0.0}, "compute", 0)
"""The observation of a phase that took no time."""


def observe(
    prediction: Prediction,
    wall_s: float,
    kernel_s: float,
    attained: Prediction | None = None,
    rows_s: float = 0.0,
) -> Observation:
    """Attribute the time of a phase to arithmetic, memory and dispatch.

    Time outside of kernels is dispatch. Norms, quantization and rotation follow none of the three
    resources: fewer weights or products take nothing off them. In products and attention arithmetic
    (c seconds alone) and reading (m) hide each other, as in norm(c, m) = (c^p + m^p)^(1/p): if
    there were 1 % less arithmetic, that would be c^p / (c^p + m^p) % less, and likewise for
    reading. p = OVERLAP.

    Args:
        prediction: the minimum times.
        wall_s: seconds that the phase took.
        kernel_s: seconds of a thread in kernels.
        attained: the times of arithmetic and reading alone, at the rates that kernels reach; None:
            at the limits.
        rows_s: seconds in kernels that neither multiply by weights nor attend.
    """
    if wall_s <= 0:
        return NOTHING
    mfu, mbu = prediction.compute_s / wall_s, prediction.memory_s / wall_s
    dispatch = min(1.0, max(0.0, 1.0 - kernel_s / wall_s))
    alone = attained or prediction
    compute, memory = (alone.compute_s / wall_s) ** OVERLAP, (alone.memory_s / wall_s) ** OVERLAP
    arithmetic = compute / (compute + memory) if compute + memory else 0.5
    inside = max(0.0, 1.0 - dispatch - min(1.0, rows_s / wall_s))
    shares: dict[Bound, float] = {
        "compute": inside * arithmetic,
        "memory": inside * (1.0 - arithmetic),
        "dispatch": dispatch,
    }
    bound = max(shares, key=shares.__getitem__)
    reached = {"compute": mfu, "memory": mbu, "dispatch": max(0.0, 1.0 - dispatch)}[bound]
    return Observation(mfu, mbu, dispatch, shares, bound, reached)
