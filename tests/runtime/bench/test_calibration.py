"""What kernels reach, measured on the embedded model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from triplepoint import Engine
from triplepoint.runtime.bench import calibration
from triplepoint.runtime.bench.calibration import calibrated
from triplepoint.runtime.inference.speculative_config import SpeculativeConfig
from triplepoint.runtime.physics.calibration import (
    BUSY,
    Calibration,
    busy,
    load,
    path_of,
    save,
    slowed,
)


@pytest.mark.slow
def test_figures_make_sense(engine: Engine, found: Calibration) -> None:
    """Every share is one, every cost is positive, and passes are cut as the engine cuts them."""
    e = found.efficiency

    for share in (e.read, e.attention_read, e.products, e.attention):
        assert 0.02 <= share <= 1.5
    assert min(e.row_s, e.decode_rows_s, e.barrier_s, e.decode_barrier_s) > 0
    assert 0 <= e.extra_tokens <= 16
    assert 0 <= e.waiting <= 0.05
    assert found.passes.chunk == engine.session().most_tokens
    assert found.passes.prefill_barriers == engine.plans.prefill.tape.barriers
    assert found.passes.decode_barriers == engine.plans.decode.tape.barriers


def test_parts_make_up_a_pass(engine: Engine) -> None:
    """The parts of a sample are what its threads did: no more than its time."""
    points = [calibration.case(1, 20), calibration.case(40, 0)]
    sampler = calibration.Sampler(engine, points)
    for point in points:
        (sample,) = sampler.take(point, 1)
        assert set(sample.parts) == {"products", "head", "attention", "rows"}
        assert min(sample.parts.values()) > 0
        assert sample.kernel_s <= sample.wall_s * 1.01
        assert (sample.tokens, sample.start) == ((1, 23) if point.generate else (40, 0))


@pytest.mark.slow
def test_measured_once(engine: Engine, found: Calibration, tmp_path: Path) -> None:
    """What is kept is read again as it was; what is damaged is measured anew."""
    path = path_of(engine.cost, engine.machine, engine.kv, tmp_path)
    quiet = dataclasses.replace(found.machine, spread={}, run_delay={})
    found = dataclasses.replace(found, machine=quiet)
    save(found, path)
    assert calibrated(engine, folder=tmp_path) == found

    path.write_text("{}")
    again = calibrated(engine, folder=tmp_path)
    assert again != found
    assert load(path) == (None if slowed(again, engine.machine) else again)


@pytest.mark.slow
def test_a_quick_one_is_made_once(
    engine: Engine, found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model is calibrated unasked and said to be so; a disturbed one serves a while."""
    monkeypatch.setattr(calibration, "CHEAP_S", 60.0)  # on any machine, however busy
    path = path_of(engine.cost, engine.machine, engine.kv, tmp_path)
    first = calibration.quick_calibrate(engine, tmp_path)
    assert first is not None
    assert (first.quick, first.name) == (True, "quick calibration")
    assert load(path) == first == engine.calibration

    disturbed = dataclasses.replace(found, steady=0.01, quick=True)
    save(disturbed, path)
    assert calibration.quick_calibrate(engine, tmp_path) == disturbed
    save(dataclasses.replace(disturbed, date="2020-01-01T00:00:00Z"), path)
    assert calibration.quick_calibrate(engine, tmp_path) not in (None, disturbed)
    save(found, path)
    assert calibration.quick_calibrate(engine, tmp_path) == found or busy(found, engine.machine)


@pytest.mark.slow
def test_passes_are_played_by_what_was_just_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a first run too: settings are chosen anew, those that were given stay, bits do too."""
    monkeypatch.setattr(calibration, "CHEAP_S", 60.0)  # on any machine, however busy
    with Engine.load("nano", threads=1, tune={"chunk": 48}) as engine:
        session = engine.session(200)
        session.prefill(list(range(100)))
        before, logits = engine.tuning, session.logits.copy()
        engine.calibration = None

        found = calibration.quick_calibrate(engine, tmp_path)

        assert found is not None
        assert engine.calibration == found
        assert engine.tuning is not before
        assert engine.tuning.known.reached == found.efficiency
        assert (engine.tuning.chunk, engine.tuning.fixed) == (48, before.fixed)
        again = engine.session(200)
        again.prefill(list(range(100)))
        assert np.array_equal(again.logits, logits)

        settled = engine.tuning
        assert calibration.quick_calibrate(engine, tmp_path) == found
        assert engine.tuning is settled


@pytest.mark.slow
def test_phases_say_what_they_were_predicted_by(engine: Engine, found: Calibration) -> None:
    """With a calibration bound and seconds are its own; without one the roofline's."""
    session = engine.session(200)
    session.speculative = SpeculativeConfig(draft_tokens=0)  # so many passes as tokens
    engine.calibration = found
    phase = session.prefill(list(range(40)))
    expected = found.estimate(engine.cost, 40, 0)
    assert phase.predicted_by.startswith("calibration")
    assert (phase.predicted, phase.predicted_wall_s) == (expected.seen.bound, expected.seconds)
    assert phase.bound_shares[phase.observed] == max(phase.bound_shares.values())
    for _ in session.decode(max_tokens=5):
        pass
    decode = session.last_phase
    assert decode is not None
    assert decode.passes == 4
    assert decode.predicted_wall_s == 4 * found.estimate(engine.cost, 1, 42).seconds

    engine.calibration = None
    phase = session.prefill(list(range(40)))
    assert phase.predicted_by.startswith("roofline")
    assert phase.predicted_wall_s == max(phase.predicted_s.values())


def test_layers_have_bounds_of_their_own(engine: Engine) -> None:
    """With a profile every layer says what it reached, and nothing else does."""
    session = engine.session(200)
    session.profile = True
    phase = session.prefill(list(range(64)))

    outside, *layers = phase.layers
    assert (outside.layer, outside.observed) == (None, "")
    assert len(layers) == engine.cost.layers
    for record in layers:
        assert record.observed in ("compute", "memory", "dispatch")
        assert min(record.mfu, record.mbu) > 0


def test_a_disturbed_calibration_is_measured_again(
    engine: Engine, found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept as doubtful, and measured again until one is quiet, a few times at most."""
    monkeypatch.setattr(engine, "apply_calibration", lambda _: None)
    made: list[Calibration] = []

    def measured(spread: float) -> Callable[[Engine], Calibration]:
        limits = dataclasses.replace(
            engine.machine, spread={"int8": spread}, run_delay={}, samples=1
        )
        made.clear()
        return lambda _: made.append(dataclasses.replace(found, machine=limits)) or made[0]

    for spreads, calls in (((14.0,) * 6, 4), ((14.0, 0.1, 0.1), 2)):
        for n, spread in enumerate(spreads):
            monkeypatch.setattr(calibration, "calibrate", measured(spread))
            known = calibrated(engine, folder=tmp_path / str(calls))
            assert len(made) == (n < calls)
            assert known.machine.samples == min(n + 1, calls)
            assert known.machine.doubtful is (spread > 1)


def test_a_busy_machine_is_noticed(engine: Engine, found: Calibration) -> None:
    """A peak well below the best that was seen says that others were at work."""
    quiet = dataclasses.replace(found.machine, spread={}, run_delay={})
    found = dataclasses.replace(found, steady=1.0, machine=quiet)
    best = dataclasses.replace(engine.machine, int8_gops=found.machine.int8_gops / BUSY)
    assert not busy(found, dataclasses.replace(best, int8_gops=best.int8_gops * 0.99))
    assert busy(found, dataclasses.replace(best, int8_gops=best.int8_gops * 1.01))
    disturbed = dataclasses.replace(found, machine=dataclasses.replace(quiet, spread={"int8": 9.0}))
    assert busy(disturbed, disturbed.machine)
    unsteady = dataclasses.replace(found, steady=0.5)
    assert busy(unsteady, dataclasses.replace(best, int8_gops=found.machine.int8_gops))
