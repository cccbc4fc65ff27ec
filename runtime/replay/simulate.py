"""Runs or predicts a recorded run's work on another model, machine or settings.

The recorded passes run for real, with their numbers of tokens, their lengths of the KV cache and
the pauses that the tools made between them. What the model says does not count: each token is
chosen as in a run, and then the recorded one is taken. `predict` asks the cost model instead.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import ContextOverflowError, ReplayError
from ...traces.events import PhaseEvent, RunStart
from .constraints import RecordedTurns, sampling_of
from .report import PerfPhase, PerfReport
from .workload import TokenIds, WorkItem, chosen_run, positions, work_items

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..engine.decoding import Constraint
    from ..engine.engine import Engine
    from ..physics.calibration import Calibration
    from ..physics.costs import ModelCost
    from ..physics.machine import MachineProfile


def run_workload(
    trace: Trace,
    engine: Engine,
    *,
    run: int = -1,
    waits: bool = True,
    on_phase: Callable[[PerfPhase], None] | None = None,
) -> PerfReport:
    """Execute the work of one run on an engine and compare it with the recording.

    Args:
        trace: a loaded trace, redacted or not.
        engine: any engine; its model need not be the recorded one.
        run: which run of the trace, counted as list indices are; the last one by default.
        waits: pause where tools ran, for as long as they took.
        on_phase: called after each phase.

    Raises:
        ReplayError: the run does not fit the engine, or lacks what is needed; names the field.
    """
    chosen, header = chosen_run(trace, run)
    works = work_items(chosen)
    report = PerfReport(header.run, settings(header, engine))
    execution = Execution(engine, chosen, header, works)
    for work in works:
        if not work.recorded.tokens:
            execution.take_over(work)
            continue
        if waits and work.wait_s > 0:
            time.sleep(work.wait_s)
        now = execution.run(work)
        report.phases.append(PerfPhase(work.number, work.recorded, now, work.wait_s))
        if on_phase is not None:
            on_phase(report.phases[-1])
    return report


class Execution:
    """A session on which a schedule is executed.

    Attributes:
        on_token: called after each token of a decode, if set.
    """

    def __init__(self, engine: Engine, run: Trace, header: RunStart, works: list[WorkItem]) -> None:
        needed = positions(works)
        if needed > engine.context:
            raise ReplayError(
                f"context differs: the run needs {needed:,} positions, this engine has "
                f"{engine.context:,}; load it with a context of {needed} or more"
            )
        recorded = header.config.get("context")
        fits = isinstance(recorded, int) and needed <= recorded <= engine.context
        self._session = engine.session(context=recorded if fits else needed)
        # What is drafted depends on what has paid so far: here the recorded passes are made.
        self._session.phases.drafting.settings = replace(
            self._session.phases.drafting.settings, draft_tokens=0
        )
        self.on_token: Callable[[], object] | None = None
        self._ids = TokenIds(engine.tokenizer.n_vocab)
        same = bool(header.model.sha256) and header.model.sha256 == engine.model.sha256
        # Of another vocabulary a grammar would refuse the tokens.
        usable = same and not header.redacted
        self._turns = RecordedTurns(engine, run, header) if usable else None

    def take_over(self, work: WorkItem) -> None:
        """Take over the tokens of a phase that computed none, untimed.

        They came from another session; or it is a decode that was stopped before its first token.
        """
        phase, session = work.recorded, self._session
        if phase.token_ids:
            session.truncate(0)
            session.prefill(self._ids.wrapped(phase.token_ids))

    def stop(self) -> None:
        """Stop the running phase; callable from another thread."""
        self._session.stop()

    def run(self, work: WorkItem) -> PhaseEvent:
        """Execute one phase; missing context is filled in first, untimed."""
        from ..engine.teacher_forcing import ForcedConstraint, decode_teacher_forced

        phase, session = work.recorded, self._session
        if phase.kv_before != session.n_cached:
            session.truncate(min(phase.kv_before, len(session.tokens)))
        if phase.kv_before > session.n_cached:  # a part that this trace does not have
            session.prefill(self._ids.made_up(phase.kv_before - len(session.tokens)))
        try:
            if phase.phase == "prefill":
                new = phase.kv_after - len(session.tokens)
                ids = self._ids.of(phase)
                now = session.prefill(ids[len(ids) - new :], purpose=phase.purpose)
            else:
                grammar = self._constraint(phase)
                unlike = grammar is None or phase.drafted_tokens  # the grammar alone knows less
                if unlike and 0 < phase.passes < work.computed:
                    grammar = ForcedConstraint(work.computed, phase.passes, grammar)
                now = decode_teacher_forced(
                    session,
                    self._ids.of(phase),
                    stop=phase.stop,
                    constraint=grammar,
                    sampling=sampling_of(phase),
                    purpose=phase.purpose,
                    on_token=self.on_token,
                )
        except ContextOverflowError as error:
            raise ReplayError(
                f"context differs: phase {work.number} does not fit; {error}"
            ) from error
        now.turn, now.step = phase.turn, phase.step
        return now

    def _constraint(self, phase: PhaseEvent) -> Constraint | None:
        if self._turns is None:
            return None
        prompt = self._session.tokens
        request = self._turns.request(phase, prompt)
        return request.constraint(self._session.phases.core.loaded.tokenizer, prompt)


def predict(
    trace: Trace,
    engine: Engine,
    calibration: Calibration,
    machine: MachineProfile | None = None,
    *,
    run: int = -1,
) -> PerfReport:
    """Predict the times of the same work with the cost model; nothing runs.

    Args:
        trace: a loaded trace, redacted or not.
        engine: an engine with the model.
        calibration: the share of a machine's limits that kernels reach.
        machine: limits of another machine; by default those of the calibration.
        run: which run of the trace, counted as list indices are; the last one by default.

    Raises:
        ReplayError: the run lacks what is needed; names the field.
    """
    chosen, header = chosen_run(trace, run)
    limits = machine or calibration.machine
    report = PerfReport(header.run, settings(header, engine, limits), predicted=True)
    for work in work_items(chosen):
        if work.recorded.tokens:
            now = _expected(work, engine.loaded.cost, calibration, limits)
            report.phases.append(PerfPhase(work.number, work.recorded, now, work.wait_s))
    return report


def _expected(
    work: WorkItem, cost: ModelCost, calibration: Calibration, machine: MachineProfile
) -> PhaseEvent:
    """Predict one phase with the cost model."""
    from ..physics.costs import Prediction
    from ..physics.observation import observe

    phase = work.recorded
    totals = [0.0, 0.0, 0.0]
    wall, kernel, at, level = 0.0, 0.0, phase.kv_before, ""
    for size in _sizes(work):
        if size:
            expected = calibration.estimate(cost, size, at, machine)
            wall, kernel = wall + expected.seconds, kernel + expected.kernel_s
            for n, value in enumerate(expected.least.as_dict().values()):
                totals[n] += value
            level, at = expected.least.level, at + size
    prediction = Prediction(*totals, level=level)
    seen = observe(prediction, wall, kernel)
    return PhaseEvent(
        turn=phase.turn,
        step=phase.step,
        phase=phase.phase,
        purpose=phase.purpose,
        predicted=prediction.bound,
        observed=seen.bound,
        tokens=phase.tokens,
        kv_before=phase.kv_before,
        kv_after=phase.kv_after,
        wall_s=wall,
        mfu=seen.mfu,
        mbu=seen.mbu,
        dispatch_share=seen.dispatch_share,
        limit_share=seen.limit_share,
        threads=machine.threads,
        memory_level=level,
        predicted_s=prediction.as_dict(),
    )


def _sizes(work: WorkItem) -> list[int]:
    """Return each pass's tokens; drafted or jumped decodes follow `ForcedConstraint`.

    Of drafts that were refused nothing is counted.
    """
    phase, computed = work.recorded, work.computed
    if phase.phase == "prefill":
        return [computed]
    passes = phase.passes if 0 < phase.passes < computed else computed
    borders = [round(n * computed / max(1, passes)) for n in range(passes + 1)]
    return [b - a for a, b in itertools.pairwise(borders)]


def settings(
    header: RunStart, engine: Engine, machine: MachineProfile | None = None
) -> list[tuple[str, object, object]]:
    """Return the name, recorded value and present value of each differing setting.

    machine: another one than the engine's, to predict for.
    """
    model, was = engine.model, header.model
    machine = machine or engine.machine
    pairs = (
        ("model", was.name, model.name),
        ("quant", was.quant, model.quant),
        ("parameters", was.parameters, model.parameters),
        ("model.sha256", was.sha256[:12], model.sha256[:12]),
        ("machine.cpu", header.machine.cpu, machine.cpu),
        ("target", header.target, machine.target),
        ("threads", header.threads, machine.threads),
        ("kv", header.kv, engine.kv),
    )
    return [(name, before, now) for name, before, now in pairs if before and before != now]
