"""Recorded agents at once and one after another."""

from __future__ import annotations

import threading

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.replay import examples
from triplepoint.runtime.replay.simulate import Execution
from triplepoint.runtime.replay.together import measure
from triplepoint.runtime.replay.workload import WorkItem
from triplepoint.traces.events import PhaseEvent


@pytest.mark.slow
def test_both_ways_do_the_same_work() -> None:
    """Each agent decodes its run's tokens and answers its run's questions, whoever is beside it."""
    trace = examples.load("chat")
    decoded = sum(phase.tokens for phase in trace.phases if phase.phase == "decode")
    with Engine.load("nano", threads=2) as engine:
        alone, together = measure(engine, [trace], 3, repeat=1)
        assert len(engine.core.runner.shared_observers) == 1, "the engine's own"
        with pytest.raises(SettingError, match="1 to 64 agents can be measured, not 65"):
            measure(engine, [trace], 65)

    assert not alone.forecasts.ratios
    assert together.forecasts.ratios, "nobody shared a pass"
    assert "shared passes" in together.forecasts.describe()
    for turns in (alone, together):
        assert len(turns.jobs) == 3
        for job in turns.jobs:
            assert job.tokens == decoded
            assert len(job.ttft_s) == len(trace.turns)
            assert 0 < min(job.ttft_s) <= max(job.ttft_s) < job.seconds
        assert turns.seconds[0] >= max(job.seconds for job in turns.jobs)
        assert 0 <= turns.quantile("gaps_s", 0.5) <= turns.quantile("gaps_s", 0.99)
    assert together.jobs_per_hour[0] > 0


@pytest.mark.slow
def test_an_interrupt_ends_all_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one raises ends the others in their pauses and phases, and nothing more is done."""
    trace = examples.load("chat")
    done: list[int] = []
    original = Execution.run

    def run(self: Execution, work: WorkItem) -> PhaseEvent:
        if threading.current_thread() is not threading.main_thread():
            done.append(work.number)
            if len(done) == 3:
                raise KeyboardInterrupt
        return original(self, work)

    monkeypatch.setattr(Execution, "run", run)
    with Engine.load("nano", threads=2) as engine, pytest.raises(KeyboardInterrupt):
        measure(engine, [trace], 2, repeat=1)

    assert len(done) <= 4, "the other one went on"
