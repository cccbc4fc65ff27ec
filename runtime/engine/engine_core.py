"""All of an engine but its sessions: the loaded model, and what computes rows with it."""

from __future__ import annotations

from ...jit.compile import Library
from ...jit.pool import Pool
from ..gguf.file import GGUFFile
from ..physics.costs import pass_cost, predict
from .drafting.head import DraftHead
from .drafting.length import PassLatency
from .kv.prefix_cache import PrefixCache
from .kv.spill import Spill
from .loaded_model import LoadedModel, LoadOptions
from .plan import Plans
from .runner import Runner
from .scheduler import Scheduler
from .shared_pass import SharedPass


class EngineCore(LoadedModel):
    """A loaded model with its plans, prefix cache, runner and scheduler.

    Attributes:
        plans: its passes, as they were built; runner: runs them.
        scheduler: puts rows of sequences into passes.
        prefix_cache: beginnings of texts that were computed, for those that share them.
        spill: those of them that are on disk.
        pass_latency: what its passes take, as they were measured.
        speculative: how new sessions need fewer passes than tokens.
    """

    def __init__(self, gguf: GGUFFile, library: Library, pool: Pool, options: LoadOptions) -> None:
        super().__init__(gguf, library, pool, options)
        self.speculative = options.speculative
        self.pass_latency = PassLatency()
        self.plans = Plans(self)
        self._draft_heads: dict[tuple[object, ...], DraftHead] = {}
        self.spill = Spill(self, options.spill)
        self.prefix_cache = PrefixCache(self.layout, self.spill.offer)
        self.runner = Runner(self, self.plans)
        self.runner.observers.append(self._observe)
        self.scheduler = Scheduler(self, self.plans, self.runner, self.prefix_cache)
        self.pool.abandoned = self.scheduler.abandoned

    def _observe(self, done: SharedPass) -> None:
        """Learn from a pass that several sequences shared."""
        self.tuning.observe_mixed(done.expected, done.seconds)
        self.pass_latency.several(done.rows, done.seconds)

    @property
    def token_bytes(self) -> float:
        """Bytes of weights that a pass of one token reads."""
        cost = self.cost
        experts = cost.expert_bytes * cost.experts_used / max(1, cost.experts)
        return cost.body_bytes + cost.head_bytes + experts

    def pass_limits(self, most: int, kv_length: int) -> list[float]:
        """Seconds that the machine's limits allow passes of 1 to `most` tokens."""
        times: list[float] = []
        for tokens in range(1, most + 1):
            plan = self.plans.decode if tokens == 1 else self.plans.prefill
            barriers, tile = plan.tape.barriers, self.attention_tile
            cost = pass_cost(self.cost, tokens, kv_length, tokens, barriers, tile)
            times.append(predict(cost, self.cost, self.machine).limit_s)
        return times

    def draft_head(self, vocabulary: int) -> DraftHead | None:
        """The model's own layer that drafts, of so many tokens; None where it was not loaded."""
        if self.network.mtp is None:
            return None
        tiles = tuple(self.tuning.tiles.items())
        if (vocabulary, tiles) not in self._draft_heads:
            made = DraftHead(self, self.runner, self.network.mtp, vocabulary)
            self._draft_heads[vocabulary, tiles] = made
        return self._draft_heads[vocabulary, tiles]

    def close(self) -> None:
        """End the threads; the engine runs no more passes, and one that runs ends in an error."""
        if self.pool.forked:  # its threads are another process's, and may have had the lock
            return
        self.spill.close()
        self.pool.closed = True  # the next pass is refused, and the next slice of one that runs
        with self.lock:  # whoever runs one would wait for workers that are gone, for ever
            self.pool.close()
