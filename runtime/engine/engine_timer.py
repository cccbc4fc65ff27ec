"""Timed passes of an engine, for calibration and benchmarks."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import SettingError
from ..physics.latency_model import Passes
from ..physics.machine import RooflineProbe
from ..physics.timed_passes import Case, Timing
from .drafting.config import SpeculativeConfig
from .teacher_forcing import decode_teacher_forced

if TYPE_CHECKING:
    from ...jit.tape import TapeTimes
    from ..physics.calibration import Calibration
    from .engine import Engine
    from .model.plan import Plan


class EngineTimer:
    """A timer of cases on a session of its own; every case sees the same tokens from position 0 on.

    Attributes:
        session: it has room for the cases that were prepared last.
        ids: random tokens, as many as the longest of these needs.
    """

    def __init__(self, engine: Engine, cases: Sequence[Case] = ()) -> None:
        """Raise `SettingError` if a case is longer than the model's context."""
        self.engine, self.name = engine, engine.model.name
        self.cost, self.machine = engine.loaded.cost, engine.machine
        self.kv, self.context = engine.kv, engine.context
        if cases:
            self.prepare(cases)

    def prepare(self, cases: Sequence[Case]) -> None:
        """Open a session that has room for each of the cases.

        Raises:
            SettingError: one is longer than the model's context.
        """
        chance = random.Random(1)
        longest = max(cases, key=lambda case: case.end)
        if longest.end > self.context:
            raise SettingError(
                f"test {longest.name} needs {longest.end:,} tokens of context; the model's "
                f"context is {self.context:,}"
            )
        self.session = self.engine.session(context=longest.end)
        # A decode here is one pass after the other, whatever there was to draft.
        self.session.phases.drafting.settings = SpeculativeConfig(
            jump_forward=False, draft_tokens=0
        )
        self.ids = [chance.randrange(self.engine.tokenizer.n_vocab) for _ in range(longest.end)]
        self._known = 0  # tokens of the session that are the first of `ids`

    @property
    def passes(self) -> Passes:
        """The engine's partition of work into passes."""
        plans = self.engine.core.plans
        return Passes(
            chunk=self.session.phases.max_tokens,
            tile=self.engine.loaded.attention_tile,
            decode_barriers=plans.decode.tape.barriers,
            prefill_barriers=plans.prefill.tape.barriers,
        )

    def probe(self) -> RooflineProbe:
        """Return a probe that measures this machine's limits with the engine's threads."""
        return RooflineProbe(self.engine.loaded.library, self.engine.loaded.pool)

    def use(self, found: Calibration | None) -> None:
        """Set the calibration, None for none; with a new one, execution settings are rechosen."""
        if found is None or found == self.engine.loaded.calibration:
            self.engine.loaded.calibration = found
        else:  # the settings were chosen without it when the model was loaded
            self.engine.loaded.apply_calibration(found)

    def time(self, case: Case) -> Timing:
        """Time a case once with all threads in every pass: seconds, in total and by part."""
        with all_threads(self.engine):
            seconds = self.measure(case)
        session = self.session
        phase = session.last_phase
        assert phase is not None, "a phase has just ended"
        sequence = session.sequence
        spent = parts_of(sequence.measured, session.phases.metrics.spent().active_threads)
        each = 1.0 / phase.passes if case.generate else 1.0
        parts = {name: part * each for name, part in spent.items()}
        predicted_s = seconds / phase.wall_s * phase.predicted_wall_s * (not phase.contended)
        return Timing(seconds, parts, phase.experts, predicted_s)

    def measure(self, case: Case) -> float:
        """Run the case's passes and return their seconds."""
        session, start = self.session, case.start
        self._fill(start - 1 if start else 0)
        # One token first, which is not timed: whatever ran before has had the caches.
        session.prefill(self.ids[len(session.tokens) : len(session.tokens) + 1])
        if case.generate:
            self._known = start
            return self._decode(self.ids[start : case.end])
        session.truncate(start)
        new = self.ids[start : start + case.prompt]
        self._known = start + case.prompt
        return session.prefill(new).wall_s

    def forget(self) -> None:
        """Record that the session's tokens are no longer those of `ids`."""
        self._known = 0

    def _fill(self, tokens: int) -> None:
        """Leave exactly the first `tokens` of `ids` in the session."""
        kept = min(tokens, self._known)
        self.session.truncate(kept)
        if tokens > kept:
            self.session.prefill(self.ids[kept:tokens])
        self._known = tokens

    def _decode(self, ids: Sequence[int]) -> float:
        """Decode `ids` and return the seconds of single-token passes; the last token has none.

        The tokens are given, as they are to another engine (`bench/compare.py`): tokens that a
        mixture samples itself go to fewer experts.
        """
        phase = decode_teacher_forced(self.session, ids)
        return phase.wall_s * (len(ids) - 1) / (phase.kv_after - phase.kv_before)


@contextlib.contextmanager
def all_threads(engine: Engine) -> Iterator[None]:
    """Run every pass with all threads, and suspend corrections meanwhile."""
    tuning = engine.loaded.tuning
    fixed = tuning.fixed
    always = tuning._always
    tuning.fixed = dataclasses.replace(fixed, threads=engine.threads, adaptive=False)
    tuning._always = engine.threads
    try:
        yield
    finally:
        tuning.fixed, tuning._always = fixed, always


_PARTS = ("products", "head", "attention", "rows")


def parts_of(measured: Mapping[Plan[Any], TapeTimes], active_threads: float) -> dict[str, float]:
    """Return the seconds that each active thread spent in each part of a session's passes."""
    parts: dict[str, float] = dict.fromkeys(_PARTS, 0.0)
    for plan, times in measured.items():
        work = times.work_seconds().sum(axis=0) / active_threads
        for op, value in zip(plan.graph.tape.ops, work, strict=True):
            parts[_part(op.kernel.source.name, op.name)] += float(value)
    return parts


def _part(kernel: str, op: str) -> str:
    """Return the part of a `LatencyEstimate` that an op belongs to."""
    if kernel.startswith("gemm"):
        return "products" if op.startswith("blk.") else "head"
    return "attention" if kernel.startswith("attention") else "rows"
