"""The account that a session gives of each phase."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint.runtime.engine import metrics
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.regime_map import regime_map
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.physics import energy, other_work, run_delay
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.energy import EnergyMeter
from triplepoint.runtime.physics.latency_model import Efficiency, Passes
from triplepoint.traces.events import PhaseEvent

MakeModel = Callable[[str], Path]
PROMPT = np.random.default_rng(2).integers(0, tiny.VOCAB, 40).tolist()


def _sane(phase: PhaseEvent, engine: Engine) -> None:
    assert phase.wall_s > 0
    assert phase.flops > 0
    assert phase.bytes > 0
    for share in (phase.mfu, phase.mbu):
        assert 0 <= share < 1.5  # a limit measured on a busy machine may be a little low
    assert 0 <= phase.dispatch_share <= 1
    assert 0 <= phase.limit_share < 1.5
    assert math.isfinite(phase.tokens_per_s)
    assert 1 <= phase.threads <= engine.threads  # fewer where a core was taken: `contention`
    assert phase.memory_level in ("L1", "L2", "L3", "DRAM")
    assert phase.predicted in ("compute", "memory", "dispatch")
    assert phase.observed in ("compute", "memory", "dispatch")


def test_phase_of_a_prefill(engine: Engine, session: Session) -> None:
    """Tokens, positions before and after, what was reused, and a cost that fits the model."""
    session.prefill(PROMPT[:15])
    phase = session.prefill(PROMPT[15:], purpose="tool_result")
    _sane(phase, engine)

    assert phase is session.last_phase
    assert (phase.phase, phase.purpose, phase.plan) == ("prefill", "tool_result", "prefill")
    assert (phase.kv_before, phase.kv_after, phase.cached_tokens) == (15, 40, 15)
    assert phase.token_ids == PROMPT[15:]
    assert phase.tokens == 25
    # 2 operations for each weight of the body and token, the head once, and attention.
    c = engine.loaded.cost
    linear = 2 * (25 * c.body_weights + c.head_weights)
    attention = 4 * tiny.LAYERS * tiny.HEADS * tiny.HEAD_DIM * sum(range(16, 41))
    assert phase.flops == linear + attention
    assert phase.sampling is None


@pytest.mark.parametrize(("waited", "contended"), [(0, False), (10**12, True), (None, False)])
def test_a_phase_without_a_core_is_contended(
    session: Session, monkeypatch: pytest.MonkeyPatch, waited: int | None, contended: bool
) -> None:
    """Where Linux says that a thread had none for a tenth of the time."""
    counted = itertools.count(1)
    delay = None if waited is None else lambda _: waited * next(counted)
    monkeypatch.setattr(run_delay, "delay_of", delay or (lambda _: None))
    monkeypatch.setattr(other_work.OtherWork, "share", lambda _: None)  # whatever else runs
    for phase in (session.prefill(PROMPT), *_decoded(session)):
        assert phase.run_delay_share == (None if waited is None else float(contended))
        assert phase.contended is contended
        assert phase.label == phase.regime + " (contended)" * contended
    assert session.phases.metrics.adopted("fork", 1.0).run_delay_share is None


def _decoded(session: Session) -> Iterator[PhaseEvent]:
    list(session.decode(max_tokens=3))
    assert session.last_phase is not None
    yield session.last_phase


def test_phase_of_one_token(engine: Engine, session: Session) -> None:
    """A prefill of a single token runs on the decode plan, and says so."""
    phase = session.prefill([5])
    _sane(phase, engine)
    assert (phase.phase, phase.plan) == ("prefill", "decode")


def test_phase_of_a_decode(engine: Engine, session: Session) -> None:
    """Sampled tokens with the stop token, the settings of the decode, and its cost."""
    session.prefill(PROMPT)
    settings = Sampling(temperature=0.5, seed=3)
    ids = list(session.decode(max_tokens=6, stop=[1000, 2], sampling=settings, purpose="answer"))
    phase = session.last_phase
    assert phase is not None
    _sane(phase, engine)

    assert (phase.phase, phase.purpose, phase.plan) == ("decode", "answer", "decode")
    assert phase.token_ids == ids
    assert phase.tokens == len(ids)
    assert (phase.kv_before, phase.kv_after) == (40, 40 + len(ids) - 1)
    assert phase.sampling == settings.as_dict()
    assert (phase.max_tokens, phase.stop, phase.constraint) == (6, [2, 1000], None)
    # The first token comes from the prefill's logits: one pass fewer than tokens.
    c = engine.loaded.cost
    passes = len(ids) - 1
    assert phase.bytes > passes * (c.body_bytes + c.head_bytes)


def test_weights_are_counted_by_hand(engine: Engine) -> None:
    """The cost model's weights are those of the file's matrices, the tied head apart."""
    shapes = tiny.shapes()
    body = sum(s[0] * s[1] for name, s in shapes.items() if name.startswith("blk") and len(s) == 2)

    assert engine.loaded.cost.body_weights == body
    assert engine.loaded.cost.head_weights == tiny.VOCAB * tiny.WIDTH
    assert engine.loaded.cost.quantized
    assert engine.loaded.cost.kv_bytes == tiny.LAYERS * 2 * tiny.KV_HEADS * tiny.HEAD_DIM * 2


def test_the_map_of_regimes_follows_the_calibration(
    engine: Engine, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once, and again when there is another calibration."""
    monkeypatch.setattr(engine.loaded, "calibration", None)
    first = regime_map(session)
    assert first["by"] == "roofline"
    assert regime_map(engine.session()) is first

    plans = (
        session.phases.core.plans.prefill.tape.barriers,
        session.phases.core.plans.decode.tape.barriers,
    )
    passes = Passes(128, 8, plans[1], plans[0])
    slow = Efficiency(barrier_s=1.0, decode_barrier_s=1.0)
    found = Calibration(engine.model.name, slow, passes, engine.machine, "2026-01-01T00:00:00Z")
    monkeypatch.setattr(engine.loaded, "calibration", found)
    second = regime_map(session)
    assert second["by"] == "calibration"
    assert (second["tokens"], second["kv"]) == (first["tokens"], first["kv"])
    assert {bound for row in second["bounds"] for bound in row} == {"d"}


def test_joules_of_a_phase(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phase has the energy of its own time where it can be read, else none."""
    known = EnergyMeter().joules() is not None
    assert (session.prefill(PROMPT[:15]).joules is not None) == known
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "9000000")):
        (zone / name).write_text(text)
    counts = itertools.count(1_000_000, 250_000)  # a quarter of a joule for each read
    (zone / "energy_uj").write_text("0")
    monkeypatch.setattr(metrics, "EnergyMeter", lambda: EnergyMeter(tmp_path))
    monkeypatch.setattr(energy, "_microjoules", lambda _: next(counts))

    assert session.prefill(PROMPT[15:]).joules == pytest.approx(0.25)
    assert len(list(session.decode(max_tokens=4))) == 4
    phase = session.last_phase
    assert phase is not None
    assert phase.joules == pytest.approx(0.25)
