"""The parts of an engine: loaded model, plans, runner, scheduler, prefix cache, drafting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import ProcessBound
from .drafting.engine_drafting import EngineDrafting
from .kv.prefix_cache import PrefixCache
from .kv.spill import Spill
from .model.plan import Plans
from .passes.runner import Runner
from .passes.scheduler import Scheduler

if TYPE_CHECKING:
    from .drafting.config import SpeculativeConfig
    from .model.loaded_model import LoadedModel
    from .passes.shared_pass import SharedPass


class EngineCore(ProcessBound):
    """The parts of an engine, which all of its sessions use."""

    _instead = "call Engine.load there; in this process, agents and sessions share an engine"

    def __init__(
        self, loaded: LoadedModel, speculative: SpeculativeConfig, spill: int | None
    ) -> None:
        """spill: see `Engine.load`."""
        self.loaded = loaded
        """The model in memory, and the threads that run its passes."""
        self.plans = Plans(loaded)
        """Graphs and tapes of its passes."""
        self.spill = Spill(loaded, spill)
        """Pages of prefixes that are on disk."""
        self.prefix_cache = PrefixCache(loaded.layout, self.spill.offer)
        """Computed prefixes, for sequences that share them."""
        self.runner = Runner(loaded, self.plans)
        """Runs the passes, one at a time."""
        self.scheduler = Scheduler(loaded, self.plans, self.runner, self.prefix_cache)
        """Batches rows of sequences into passes."""
        self.drafting = EngineDrafting(loaded, self.plans, self.runner, self.scheduler, speculative)
        """Drafting state that all sequences share."""
        self.runner.shared_observers.append(self._observe)
        loaded.pool.abandoned = self.scheduler.abandoned

    def _observe(self, done: SharedPass) -> None:
        """Learn from a pass that several sequences shared."""
        self.loaded.tuning.observe_mixed(done.expected, done.seconds)
        self.drafting.latency.several(done.rows, done.seconds)

    def close(self) -> None:
        """End the engine's threads; a running pass ends in an error, and later ones are refused."""
        loaded = self.loaded
        if loaded.pool.forked:  # its threads are another process's, and may have had the lock
            return
        self.spill.close()
        loaded.pool.closed = True  # the next pass is refused, and the next slice of one that runs
        with loaded.lock:  # a thread that runs a pass would wait forever for workers that are gone
            loaded.pool.close()
