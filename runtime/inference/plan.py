"""A pass as it was laid down for one session: its graph, and the native tape made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ...jit.tape import NativeTape
from ..forward.choice import choose_ops
from ..forward.graph import ZERO, Graph

if TYPE_CHECKING:
    from .session import Session

_HEAVY = ("gemm", "attention", "touch")
G = TypeVar("G", bound=Graph)


class Plan(Generic[G]):
    """A graph, its native tape and what it is good for."""

    def __init__(
        self, session: Session, name: str, most_tokens: int, logits: np.ndarray, kind: type[G]
    ) -> None:
        engine = session.engine
        network = engine.network
        self.graph = kind(
            name,
            engine.target,
            engine.threads,
            most_tokens,
            engine.buffers,
            network.config.heads,
            session.cache,
        )
        self.graph.tiles = engine.tuning.tiles
        network.forward(self.graph, logits)
        if most_tokens == 1:
            state = self.graph.state
            choose_ops(self.graph.tape, state, engine.choice, logits, self.graph.units(ZERO))
        self.tape: NativeTape = self.graph.tape.finish(engine.library, engine.pool)
        self.name = name
        self.most_tokens = most_tokens
        self.logits = logits
        # Ops that neither multiply by weights nor attend: bool [ops].
        kernels = [op.kernel.source.name for op in self.graph.tape.ops]
        self.rows = np.array([not name.startswith(_HEAVY) for name in kernels])
