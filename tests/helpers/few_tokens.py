"""A constraint under which texts repeat themselves, so that drafts fit."""

from __future__ import annotations

import numpy as np
from helpers import tiny_models


class FewTokens:
    """Lets a small model say three tokens only: what it says repeats itself, and not always."""

    def mask(self) -> np.ndarray:
        """Tokens 5, 6 and 8."""
        bits = np.zeros(-(-tiny_models.VOCAB // 32), np.uint32)
        bits[0] = 0b101100000
        return bits

    def advance(self, token: int) -> None:
        """They may come in any order."""
        assert token in (5, 6, 8)
