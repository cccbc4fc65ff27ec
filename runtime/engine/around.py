"""Constraint wrappers: each delegates to the constraint that it wraps, if there is one."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .decoding import Constraint


class Around:
    """A decode constraint that wraps another one, without lookahead."""

    def __init__(self, constraint: Constraint | None) -> None:
        self._constraint = constraint

    @property
    def calling(self) -> bool:
        """See `TurnConstraint.calling`."""
        return getattr(self._constraint, "calling", False)

    def mask(self) -> np.ndarray | None:
        """See `Constraint.mask`."""
        return self._constraint.mask() if self._constraint is not None else None

    def advance(self, token: int) -> None:
        """See `Constraint.advance`."""
        if self._constraint is not None:
            self._constraint.advance(token)


class EndsLater(Around):
    """A constraint that forbids stop tokens for `count` tokens, unless only they are allowed."""

    def __init__(
        self, constraint: Constraint | None, ends: Collection[int], count: int, n_vocab: int
    ) -> None:
        super().__init__(constraint)
        others = np.ones(32 * -(-n_vocab // 32), bool)
        others[list(ends)] = False
        self._left, self._others = count, np.packbits(others, bitorder="little").view(np.uint32)

    def mask(self) -> np.ndarray | None:
        """See `Constraint.mask`."""
        mask = super().mask()
        if self._left <= 0:
            return mask
        others = self._others if mask is None else mask & self._others
        return others if others.any() else mask

    def advance(self, token: int) -> None:
        """See `Constraint.advance`."""
        self._left -= 1
        super().advance(token)
