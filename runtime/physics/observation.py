"""The observed shares of a phase's time by resource, and the bound that they imply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .costs import Bound, Prediction

OVERLAP = 2.0  # of arithmetic and reading in a pass: 1 for none, more for more


@dataclass(frozen=True)
class Observation:
    """The observation of a phase: shares between 0 and 1."""

    mfu: float
    mbu: float
    """Least time of the arithmetic, of reading and writing, over the time it took."""
    dispatch_share: float
    """Of the time outside of kernels."""
    attained: tuple[float, float] | None = None
    """Times of arithmetic and reading alone over the time it took, at the rates that kernels reach;
    None: at the limits."""
    rows_share: float = 0.0
    """Of the time in kernels that neither multiply by weights nor attend."""

    @cached_property
    def shares(self) -> dict[Bound, float]:
        """Shares of the time by resource; together at most 1.

        Time outside of kernels is dispatch. Norms, quantization and rotation follow none of the
        three: fewer weights or products take nothing off them. In products and attention arithmetic
        (c seconds alone) and reading (m) hide each other, as in norm(c, m) = (c^p + m^p)^(1/p): if
        there were 1 % less arithmetic, that would be c^p / (c^p + m^p) % less, and likewise for
        reading. p = OVERLAP.
        """
        compute_s, memory_s = self.attained or (self.mfu, self.mbu)
        compute, memory = compute_s**OVERLAP, memory_s**OVERLAP
        arithmetic = compute / (compute + memory) if compute + memory else 0.5
        inside = max(0.0, 1.0 - self.dispatch_share - self.rows_share)
        return {
            "compute": inside * arithmetic,
            "memory": inside * (1.0 - arithmetic),
            "dispatch": self.dispatch_share,
        }

    @cached_property
    def bound(self) -> Bound:
        """The resource whose reduction would save the most: the largest of `shares`."""
        shares = self.shares
        return max(shares, key=shares.__getitem__)

    @property
    def limit_share(self) -> float:
        """Share of the bound's limit that was reached; for dispatch: the kernels' share."""
        left = max(0.0, 1.0 - self.dispatch_share)
        return {"compute": self.mfu, "memory": self.mbu, "dispatch": left}[self.bound]


def observe(
    prediction: Prediction,
    wall_s: float,
    kernel_s: float,
    attained: Prediction | None = None,
    rows_s: float = 0.0,
) -> Observation:
    """Observe `wall_s` seconds of a phase, of which a thread was in kernels for `kernel_s`.

    prediction: the least times; attained: the times at the rates that kernels reach; rows_s: in
    kernels other than products and attention.
    """
    if wall_s <= 0:
        return Observation(0.0, 0.0, 0.0)
    return Observation(
        mfu=prediction.compute_s / wall_s,
        mbu=prediction.memory_s / wall_s,
        dispatch_share=min(1.0, max(0.0, 1.0 - kernel_s / wall_s)),
        attained=(attained.compute_s / wall_s, attained.memory_s / wall_s) if attained else None,
        rows_share=min(1.0, rows_s / wall_s),
    )
