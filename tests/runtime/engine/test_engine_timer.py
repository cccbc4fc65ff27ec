"""An engine's passes on the clock: each case is of the passes that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from triplepoint import Engine
from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.physics.timed_passes import Case


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano") as engine:
        yield engine


def test_a_timer_goes_from_case_to_case(engine: Engine) -> None:
    """Whatever was measured before, each case has the first tokens of `ids` before it; and a
    decode is of the next ones, which another engine is given too."""
    todo = [Case(prompt=20), Case(generate=3, depth=9), Case(prompt=5, depth=40), Case(prompt=2)]
    timer = EngineTimer(engine, todo)
    for case in [*todo, *todo]:
        timer.measure(case)

        after = case.start + case.prompt + (case.generate + 1 if case.generate else 0)
        assert timer.session.tokens == timer.ids[:after], case


def test_a_prefix_is_not_computed_twice(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of growing depth prefill only what is new."""
    fed: list[int] = []
    original = Session.prefill

    def watched(self: Session, ids: Any, **more: Any) -> Any:
        fed.append(len(ids))
        return original(self, ids, **more)

    monkeypatch.setattr(Session, "prefill", watched)
    timer = EngineTimer(engine, [Case(generate=1, depth=200)])
    for depth in (100, 100, 200):
        timer.measure(Case(generate=1, depth=depth))

    assert fed == [99, 1, 1, 99, 1]


def test_all_threads_run_what_is_timed_for_calibration(engine: Engine) -> None:
    """The parts are seconds of one pass of a decode, and the settings are as they were."""
    tuning, fixed = engine.loaded.tuning, engine.loaded.tuning.fixed
    timer = EngineTimer(engine, [Case(generate=4, depth=20)])

    found = timer.time(Case(generate=4, depth=20))

    assert set(found.parts) == {"products", "head", "attention", "rows"}
    assert min(found.parts.values()) > 0
    assert sum(found.parts.values()) <= found.seconds / 4 * 1.01
    assert found.experts is None, "nano is no mixture"
    phase = timer.session.last_phase
    assert phase is not None
    assert phase.threads == engine.threads
    assert (engine.loaded.tuning, engine.loaded.tuning.fixed) == (tuning, fixed)
