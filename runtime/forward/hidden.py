"""A pass that ends with the output norm, for callers that need no logits."""

from __future__ import annotations

import numpy as np

from ..weights.matrix import Matrix
from .graph import GraphBuilder
from .tensors import Activation


class HiddenGraph(GraphBuilder):
    """A graph that ends with the output norm: hidden states in place of logits."""

    hidden: np.ndarray
    """float32 [max_tokens, padded width], of the rows of the last pass; valid while its caller has
    the engine's lock."""

    def logits(
        self,
        x: Activation,
        weight: np.ndarray,
        eps: float,
        w: Matrix,
        out: np.ndarray,
        cap: float = 0.0,
    ) -> None:
        """Add the output norm of every row, without the output head."""
        assert isinstance(x.data, np.ndarray), "a pass of one row gives logits"
        self.tape.ops[-1].barrier = True  # these tokens are shared out otherwise
        data = self.rmsnorm(x, weight, eps, "hidden_norm").data
        assert isinstance(data, np.ndarray)
        self.hidden = data
