"""The phases of one sequence: state and metrics that its prefills and decodes share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .drafting.sequence_drafting import SequenceDrafting
from .metrics import PhaseMetrics

if TYPE_CHECKING:
    from .engine_core import EngineCore
    from .passes.sequence import TokenSequence


class Phases:
    """A sequence on its engine. `Session` is for callers; `Prefill` and `Decoding` run on this."""

    def __init__(self, core: EngineCore, sequence: TokenSequence) -> None:
        self.core = core
        """The parts of its engine."""
        self.sequence = sequence
        """The sequence that the phases compute."""
        self.metrics = PhaseMetrics(core.loaded, sequence)
        """Metrics of the phases."""
        self.drafting = SequenceDrafting(core.drafting, sequence.tokens)
        """Drafting state of its decodes."""
        sequence.observer = self.drafting
        self.on_progress: Callable[[int, int, float], None] | None = None
        """Called between the chunks of a prefill with (done, total, tokens/s)."""
        core.scheduler.register(sequence)  # last: it is whole now

    @property
    def max_tokens(self) -> int:
        """Maximum tokens of a prefill's pass."""
        return min(self.core.loaded.tuning.chunk, self.sequence.context)

    def warmup(self) -> None:
        """Make the tuning decisions ahead of the first phases, which they would delay."""
        self.core.loaded.tuning.prepare()

    def wake(self) -> None:
        """Wake parked threads, as a pass is about to run."""
        # Not in the midst of another session's pass, which would lose its active threads.
        loaded, me = self.core.loaded, threading.get_ident()
        if loaded.trying:
            loaded.give_back()
        loaded.trying.add(me)
        if loaded.lock.acquire(blocking=False):
            try:
                loaded.pool.wake()
            finally:
                loaded.lock.release()
        loaded.trying.discard(me)
