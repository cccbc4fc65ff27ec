"""What kernels reach, measured on the embedded model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest

from triplepoint import Engine
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.physics import calibrate
from triplepoint.runtime.physics.calibrate import Sampler, calibrated, case, quick_calibrate
from triplepoint.runtime.physics.calibration import (
    BUSY,
    Calibration,
    busy,
    load,
    path_of,
    save,
    slowed,
)
from triplepoint.runtime.physics.costs import ModelCost
from triplepoint.runtime.physics.latency_model import Passes
from triplepoint.runtime.physics.machine import MachineProfile, RooflineProbe
from triplepoint.runtime.physics.timed_passes import Case, Timing

MACHINE = MachineProfile(
    cpu="", cores=2, target="avx2", threads=2, caches={"L3": 16 << 20}, read_gbps={"DRAM": 20.0},
    int8_gops=500.0, fp32_gflops=125.0, bf16_gflops=250.0, barrier_s=1e-7,
)  # fmt: skip


@pytest.fixture(scope="module")
def found(engine: Engine) -> Calibration:
    return calibrate.calibrate(EngineTimer(engine), repeat=2)


class Moments(RooflineProbe):
    """A machine whose arithmetic peak is another at each look."""

    def __init__(self, *peaks: float) -> None:
        self.samples = []
        self._peaks = chain(peaks, repeat(peaks[-1]))

    def sample(self, repeats: int = 1) -> MachineProfile:
        self.samples.append(dataclasses.replace(MACHINE, int8_gops=next(self._peaks)))
        return self.samples[-1]


class Clock:
    """Passes that take the time that is said, and no work."""

    name, kv, context, machine = "clock", "bf16", 64, MACHINE
    cost = ModelCost(2, 4, 16, 10**6, 10**5, 10**6, 10**5, 64.0, True)
    passes = Passes(chunk=32, tile=16, decode_barriers=10, prefill_barriers=20)

    def __init__(self, seconds: float, *peaks: float) -> None:
        self.seconds, self.limits = seconds, Moments(*peaks)
        self.timed: list[Case] = []

    def prepare(self, cases: Sequence[Case]) -> None:
        self.timed.clear()

    def probe(self) -> RooflineProbe:
        return self.limits

    def use(self, found: Calibration | None) -> None:
        raise AssertionError("nothing is kept of it")

    def time(self, case: Case) -> Timing:
        self.timed.append(case)
        return Timing(self.seconds, {"products": 0.5 * self.seconds, "rows": 0.25 * self.seconds})


def test_what_lies_between_two_machines_is_measured_again() -> None:
    """Until the limits before and after are alike, but no more often than was said."""
    clock = Clock(0.01, 100.0, 200.0, 200.0, 190.0)
    taken = Sampler(clock, [case(4, 0)]).take(case(4, 0), 2, tries=3)
    assert len(clock.limits.samples) == 4
    assert len(taken) == 2
    assert all(s.before is not None and s.before.int8_gops == 200.0 for s in taken)
    assert all(s.machine.int8_gops == 200.0 for s in taken)

    clock = Clock(0.01, *[100.0, 200.0] * 9)
    Sampler(clock, [case(4, 0)]).take(case(4, 0), 2, tries=3)
    assert len(clock.limits.samples) == 6


@pytest.mark.parametrize(("seconds", "timed", "samples"), [(0.8, 1 + 1 + 3, 3), (2.5, 1 + 1, 1)])
def test_what_takes_long_is_timed_once(seconds: float, timed: int, samples: int) -> None:
    """After one that does not count; a short one is repeated, behind another that warms up."""
    clock = Clock(seconds, 100.0)
    taken = Sampler(clock, [case(1, 9)]).take(case(1, 9), 3)
    assert (len(clock.timed), len(taken)) == (timed, samples)
    assert {(s.tokens, s.start) for s in taken} == {(1, 9 + 3)}
    assert all(s.wall_s == seconds / calibrate.DECODES for s in taken)
    assert all(s.kernel_s == 0.75 * seconds for s in taken)


@pytest.mark.slow
def test_figures_make_sense(engine: Engine, found: Calibration) -> None:
    """Every share is one, every cost is positive, and passes are cut as the engine cuts them."""
    e = found.efficiency

    for share in (e.read, e.attention_read, e.products, e.attention):
        assert 0.02 <= share <= 1.5
    assert min(e.row_s, e.decode_rows_s, e.barrier_s, e.decode_barrier_s) > 0
    assert 0 <= e.extra_tokens <= 16
    assert 0 <= e.waiting <= 0.05
    assert found.passes.chunk == engine.session().phases.max_tokens
    assert found.passes.prefill_barriers == engine.core.plans.prefill.tape.barriers
    assert found.passes.decode_barriers == engine.core.plans.decode.tape.barriers


def test_parts_make_up_a_pass(engine: Engine) -> None:
    """The parts of a sample are what its threads did: no more than its time."""
    points = [case(1, 20), case(40, 0)]
    sampler = Sampler(EngineTimer(engine), points)
    for point in points:
        (sample,) = sampler.take(point, 1)
        assert set(sample.parts) == {"products", "head", "attention", "rows"}
        assert min(sample.parts.values()) > 0
        assert sample.kernel_s <= sample.wall_s * 1.01
        assert (sample.tokens, sample.start) == ((1, 23) if point.generate else (40, 0))


@pytest.mark.slow
def test_measured_once(engine: Engine, found: Calibration, tmp_path: Path) -> None:
    """What is kept is read again as it was; what is damaged is measured anew."""
    path = path_of(engine.loaded.cost, engine.machine, engine.kv, tmp_path)
    quiet = dataclasses.replace(found.machine, spread={}, run_delay={})
    found = dataclasses.replace(found, machine=quiet)
    save(found, path)
    assert calibrated(EngineTimer(engine), folder=tmp_path) == found

    path.write_text("{}")
    again = calibrated(EngineTimer(engine), folder=tmp_path)
    assert again != found
    assert load(path) == (None if slowed(again, engine.machine) else again)


@pytest.mark.slow
def test_a_quick_one_is_made_once(
    engine: Engine, found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model is calibrated unasked and said to be so; a disturbed one serves a while."""
    monkeypatch.setattr(calibrate, "CHEAP_S", 60.0)  # on any machine, however busy
    path = path_of(engine.loaded.cost, engine.machine, engine.kv, tmp_path)
    first = quick_calibrate(EngineTimer(engine), tmp_path)
    assert first is not None
    assert (first.quick, first.name) == (True, "quick calibration")
    assert load(path) == first == engine.loaded.calibration

    disturbed = dataclasses.replace(found, steady=0.01, quick=True)
    save(disturbed, path)
    assert quick_calibrate(EngineTimer(engine), tmp_path) == disturbed
    save(dataclasses.replace(disturbed, date="2020-01-01T00:00:00Z"), path)
    assert quick_calibrate(EngineTimer(engine), tmp_path) not in (None, disturbed)
    save(found, path)
    assert quick_calibrate(EngineTimer(engine), tmp_path) == found or busy(found, engine.machine)


@pytest.mark.slow
def test_passes_are_played_by_what_was_just_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a first run too: settings are chosen anew, those that were given stay, bits do too."""
    monkeypatch.setattr(calibrate, "CHEAP_S", 60.0)  # on any machine, however busy
    with Engine.load("nano", threads=1, tune={"chunk": 48}) as engine:
        session = engine.session(200)
        session.prefill(list(range(100)))
        before, logits = engine.loaded.tuning, session.logits.copy()
        engine.loaded.calibration = None

        found = quick_calibrate(EngineTimer(engine), tmp_path)

        assert found is not None
        assert engine.loaded.calibration == found
        assert engine.loaded.tuning is not before
        assert engine.loaded.tuning.known.reached == found.efficiency
        assert (engine.loaded.tuning.chunk, engine.loaded.tuning.fixed) == (48, before.fixed)
        again = engine.session(200)
        again.prefill(list(range(100)))
        assert np.array_equal(again.logits, logits)

        settled = engine.loaded.tuning
        assert quick_calibrate(EngineTimer(engine), tmp_path) == found
        assert engine.loaded.tuning is settled


@pytest.mark.slow
def test_phases_say_what_they_were_predicted_by(engine: Engine, found: Calibration) -> None:
    """With a calibration bound and seconds are its own; without one the roofline's."""
    session = engine.session(200)
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=0)  # so many passes as tokens
    engine.loaded.calibration = found
    phase = session.prefill(list(range(40)))
    expected = found.estimate(engine.loaded.cost, 40, 0)
    assert phase.predicted_by.startswith("calibration")
    assert phase.predicted == expected.seen.bound
    assert phase.predicted_wall_s == pytest.approx(expected.seconds * phase.predicted_factor)
    assert phase.bound_shares[phase.observed] == max(phase.bound_shares.values())
    for _ in session.decode(max_tokens=5):
        pass
    decode = session.last_phase
    assert decode is not None
    assert decode.passes == 4
    passes_s = 4 * found.estimate(engine.loaded.cost, 1, 42).seconds
    assert decode.predicted_wall_s == pytest.approx(passes_s * decode.predicted_factor)

    engine.loaded.calibration = None
    phase = session.prefill(list(range(40)))
    assert phase.predicted_by.startswith("roofline")
    assert phase.predicted_wall_s == max(phase.predicted_s.values())


def test_layers_have_bounds_of_their_own(engine: Engine) -> None:
    """With a profile every layer says what it reached, and nothing else does."""
    session = engine.session(200)
    session.sequence.profile = True
    phase = session.prefill(list(range(64)))

    outside, *layers = phase.layers
    assert (outside.layer, outside.observed) == (None, "")
    assert len(layers) == engine.loaded.cost.layers
    for record in layers:
        assert record.observed in ("compute", "memory", "dispatch")
        assert min(record.mfu, record.mbu) > 0


def test_a_disturbed_calibration_is_measured_again(
    engine: Engine, found: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept as doubtful, and measured again until one is quiet, a few times at most."""
    monkeypatch.setattr(engine.loaded, "apply_calibration", lambda _: None)
    made: list[Calibration] = []

    def measured(spread: float) -> Callable[[EngineTimer], Calibration]:
        limits = dataclasses.replace(
            engine.machine, spread={"int8": spread}, run_delay={}, samples=1
        )
        made.clear()
        quiet = dataclasses.replace(found, machine=limits, steady=1.0)
        return lambda _: made.append(quiet) or made[0]

    for spreads, calls in (((14.0,) * 6, 4), ((14.0, 0.1, 0.1), 2)):
        for n, spread in enumerate(spreads):
            monkeypatch.setattr(calibrate, "calibrate", measured(spread))
            known = calibrated(EngineTimer(engine), folder=tmp_path / str(calls))
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
