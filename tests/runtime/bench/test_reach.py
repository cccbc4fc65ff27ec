"""Predictions for models that are not here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from triplepoint import Engine
from triplepoint.runtime.bench.reach import FLUENT, KV, best, cost_of, reach
from triplepoint.runtime.hub.aliases import KnownModel, by_alias, known_models
from triplepoint.runtime.physics import calibration
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.latency_model import Efficiency, Passes
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.synthetic.shapes import SHAPES

MACHINE = MachineProfile(
    cpu="test",
    cores=8,
    target="avx2",
    threads=8,
    caches={"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
    read_gbps={"L1": 800.0, "L2": 400.0, "L3": 200.0, "DRAM": 40.0},
    int8_gops=2000.0,
    fp32_gflops=500.0,
    bf16_gflops=500.0,
    barrier_s=1e-6,
)
PLENTY = 1 << 40


@pytest.mark.parametrize(
    ("name", "quant", "layers"),
    [("smollm2-135m", "q8_0", 2), ("qwen3-0.6b", "q4_k_m", 1), ("gemma3-1b", "q4_0", 6)],
)
def test_the_cost_is_the_engines(name: str, quant: str, layers: int) -> None:
    """What is worked out from a shape is what an engine finds in the file, to the byte: so that
    its calibration is found too."""
    shape = dataclasses.asdict(dataclasses.replace(SHAPES[name], layers=layers))
    model = KnownModel(name, "", "", quant, 0, "", "", True, shape)
    with Engine.load(f"synthetic:{name}:{quant}:layers={layers}", threads=1) as engine:
        assert cost_of(model, engine.library.target.lanes) == engine.cost


def test_predictions_are_plausible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode reads every weight that a token needs: no faster than the memory, and at least at half
    its rate; a long context costs; a prompt cannot beat the arithmetic peak."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for one in reach(MACHINE, PLENTY):
        cost = cost_of(one.model, 8)
        read = cost.layer_bytes(cost.expected_experts(1)) + cost.head_bytes
        assert 0.5 < one.decode * read / 40e9 < 0.81
        assert one.decode_deep < one.decode
        assert one.ttft_s > 2 * 1000 * cost.token_weights / 2000e9
        assert one.model.nbytes * 0.85 < one.memory < one.model.nbytes + 3e9
        assert (one.fits, one.basis) == (True, "limits")


def test_a_calibration_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernels of just this model were measured, that is what the prediction is made with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = by_alias("qwen3:4b")
    assert model is not None
    (usual,) = reach(MACHINE, PLENTY, [model])
    cost = cost_of(model, 8)
    slow = Calibration("m", Efficiency(read=0.3), Passes(512, 8, 100, 100), MACHINE, "now")
    calibration.save(slow, calibration.path_of(cost, MACHINE, KV))

    (found,) = reach(MACHINE, PLENTY, [model])

    assert found.basis == "calibration"
    assert found.decode < 0.5 * usual.decode


def test_the_best_is_the_largest_that_is_fluent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that fit, call tools and write eight tokens a second; none where none does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    everything = best(reach(MACHINE, PLENTY))
    assert everything is not None
    assert everything.model.alias == "qwen3:30b-a3b"  # 3 of its 30 billion weights for a token

    found = reach(MACHINE, 4_000_000_000)
    chosen = best(found)
    assert chosen is not None
    assert chosen.fits
    assert chosen.decode >= FLUENT
    others = [o for o in found if o.fits and o.model.tools and o.decode >= FLUENT]
    assert chosen.model.nbytes == max(o.model.nbytes for o in others)

    assert best(reach(MACHINE, 1_000_000_000)) is None
    crawling = dataclasses.replace(MACHINE, read_gbps=dict.fromkeys(MACHINE.read_gbps, 1.0))
    assert best(reach(crawling, PLENTY)) is None
    assert len(found) == len(known_models())
