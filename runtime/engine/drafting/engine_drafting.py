"""Drafting state that an engine's decodes share: settings, pass times, the MTP layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...physics.costs import pass_cost, predict
from .head import DraftHead
from .length import MOST_ROWS, PassLatency

if TYPE_CHECKING:
    from ..model.loaded_model import LoadedModel
    from ..model.plan import Plans
    from ..passes.runner import Runner
    from .config import SpeculativeConfig
    from .length import Company


class EngineDrafting:
    """The drafting state that an engine's sequences share."""

    def __init__(
        self,
        loaded: LoadedModel,
        plans: Plans,
        runner: Runner,
        scheduler: Company,
        settings: SpeculativeConfig,
    ) -> None:
        self._loaded, self._plans, self._runner = loaded, plans, runner
        self._heads: dict[tuple[object, ...], DraftHead] = {}
        self.settings = settings
        """Speculative decoding settings of new sessions."""
        self.tokenizer, self.lock = loaded.tokenizer, loaded.lock
        self.scheduler = scheduler
        """Counts other sequences' rows in passes."""
        self.latency = PassLatency()
        """Measured pass times."""

    @property
    def token_bytes(self) -> float:
        """Bytes of weights that a pass of one token reads."""
        cost = self._loaded.cost
        experts = cost.expert_bytes * cost.experts_used / max(1, cost.experts)
        return cost.body_bytes + cost.head_bytes + experts

    def times(self, kv_length: int) -> PassLatency:
        """Return pass times: measured, else as the machine's limits predict them at this length."""
        if not self.latency.least_s:
            self.latency.set_limits(self._limits(MOST_ROWS, kv_length))
        return self.latency

    def _limits(self, most: int, kv_length: int) -> list[float]:
        """Return the minimum seconds, by the machine's limits, of passes of 1 to `most` tokens."""
        loaded, times = self._loaded, list[float]()
        for tokens in range(1, most + 1):
            plan = self._plans.decode if tokens == 1 else self._plans.prefill
            barriers, tile = plan.tape.barriers, loaded.attention_tile
            cost = pass_cost(loaded.cost, tokens, kv_length, tokens, barriers, tile)
            times.append(predict(cost, loaded.cost, loaded.machine).limit_s)
        return times

    def head(self, vocabulary: int) -> DraftHead | None:
        """Return the draft head for a vocabulary of this size; None: no MTP layer was loaded."""
        loaded = self._loaded
        if loaded.network.mtp is None:
            return None
        key = vocabulary, *loaded.tuning.tiles.items()
        if key not in self._heads:
            self._heads[key] = DraftHead(loaded, self._runner, loaded.network.mtp, vocabulary)
        return self._heads[key]
