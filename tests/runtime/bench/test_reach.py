"""Predictions for models that are not here."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from helpers.real_headers import HEADERS, N_VOCAB, write_header

from triplepoint import Engine
from triplepoint.jit.targets import TARGETS
from triplepoint.runtime.bench.reach import FLUENT, KV, best, best_here, cost_of, reach, sized
from triplepoint.runtime.engine.model.model_cost import size_up
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.hub.aliases import KnownModel, by_alias, known_models
from triplepoint.runtime.physics import calibration
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.costs import PassCost, part_times
from triplepoint.runtime.physics.latency_model import TILE_ROWS, Efficiency, Passes
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.synthetic.shapes import SHAPES
from triplepoint.runtime.synthetic.write import SyntheticModel

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quant", "layers"),
    [("smollm2-135m", "q8_0", 2), ("qwen3-0.6b", "q4_k_m", 1), ("gemma3-1b", "q4_0", 6)],
)
def test_the_cost_is_the_engines(name: str, quant: str, layers: int) -> None:
    """What is worked out from a shape is what an engine finds in the file, to the byte: so that
    its calibration is found too."""
    shape = dataclasses.replace(SHAPES[name], layers=layers)
    model = KnownModel(name, "", "", quant, 0, "", "", True, shape)
    with Engine.load(f"synthetic:{name}:{quant}:layers={layers}", threads=1) as engine:
        assert cost_of(model, engine.loaded.library.target.lanes) == engine.loaded.cost


@pytest.mark.slow
def test_predictions_are_plausible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode reads every weight that a token needs: no faster than the memory, and at least at half
    its rate; a long context costs; a prompt cannot beat the arithmetic peak."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for one in reach(MACHINE, PLENTY):
        cost = cost_of(one.model, 8)
        read = cost.layer_bytes(cost.expected_experts(1)) + cost.head_bytes + 2 * cost.state_bytes
        assert 0.5 < one.decode * read / 40e9 < 0.81
        assert one.decode_deep < one.decode
        # Less than a fifth of the arithmetic peak is reached only where attention to a latent is
        # most of the work.
        least = 2 * 1000 * cost.token_weights / 2000e9
        assert least < one.ttft_s < 8 * least
        table = one.model.shape.own > 0  # of each layer: it stays in the file
        assert one.model.nbytes * (0.5 if table else 0.85) < one.memory < one.model.nbytes + 3e9
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


@pytest.mark.slow
def test_the_best_is_the_largest_that_is_fluent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that fit, call tools and write eight tokens a second: the one of the last year with
    the most weights; an older one where no other does, none where none does."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = reach(MACHINE, PLENTY)
    for gib, alias in CHOICES.items():
        free = gib * (1 << 30) - (2 << 30)  # what a system and its programs leave
        chosen = best([dataclasses.replace(one, fits=one.memory <= free) for one in found])
        assert chosen is not None
        assert chosen.model.alias == alias
        assert chosen.decode >= FLUENT
        assert best_here(MACHINE, free) == chosen

    older = [one for one in found if one.model.date < "2025-08"]
    chosen = best([dataclasses.replace(one, fits=one in older) for one in found])
    assert chosen is not None
    assert chosen.model.alias == "qwen3:30b-a3b"  # 3 of its 30 billion weights for a token
    assert best(reach(MACHINE, 500_000_000)) is None
    crawling = dataclasses.replace(MACHINE, read_gbps=dict.fromkeys(MACHINE.read_gbps, 1.0))
    assert best(reach(crawling, PLENTY)) is None
    assert len(found) == len(known_models())


# The header of a published file, and the shape of which its tensors are.
HEADERS_OF = {
    "qwen3.5-4b": "Qwen3.5-4B",
    "qwen3.5-35b-a3b": "Qwen3.5-35B-A3B",
    "gemma4-e2b": "gemma-4-E2B",
    "gemma4-e4b": "gemma-4-E4B",
    "gemma4-12b": "gemma-4-12B",
    "gemma4-26b-a4b": "gemma-4-26B-A4B",
    "gpt-oss-20b": "gpt-oss-20b",
    "lfm2-1.2b": "LFM2.5-1.2B",
    "lfm2-8b-a1b": "LFM2-8B-A1B",
    "glm-4.7-flash": "GLM-4.7-Flash",
    "nemotron3-nano": "NVIDIA-Nemotron-3-Nano-30B-A3B",
    "granite4-h-micro": "Granite-4.0-H-Micro",
    "granite4-h-tiny": "Granite-4.0-H-Tiny",
}


# GiB of a machine with 40 GB/s, and what is best on it.
CHOICES = {
    4: "gemma4:e2b",
    6: "gemma4:e4b",
    8: "lfm2.5:8b-a1b",  # the larger qwen3.5:9b writes six tokens a second
    12: "lfm2.5:8b-a1b",
    16: "gpt-oss:20b",
    24: "qwen3.6:35b-a3b",
    64: "qwen3.6:35b-a3b",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADERS_OF)
def test_a_shape_costs_what_the_published_file_does(tmp_path: Path, name: str) -> None:
    """All but the vocabulary, which the headers have short: weights and bytes of layers, keys and
    values, states, windows and experts, to the byte."""
    header = next(one for one in HEADERS if one.name == HEADERS_OF[name])
    write_header(tmp_path / "model.gguf", header)
    quant = "mxfp4_moe" if name == "gpt-oss-20b" else "q8_0"
    shape = SyntheticModel(name, quant, SHAPES[name])
    with open_gguf(tmp_path / "model.gguf") as gguf:
        published = size_up(gguf, TARGETS["avx2"], mtp=False)

    ours = sized(shape, TARGETS["avx2"].lanes)

    heads = published.cost.head_weights * ours.network.config.n_vocab // N_VOCAB
    assert ours.cost.head_weights == heads
    cost = dataclasses.replace(published.cost, head_weights=heads, head_bytes=ours.cost.head_bytes)
    assert ours.cost == cost
    assert ours.state == published.state
    assert ours.layout.near_share == published.layout.near_share
    model = KnownModel(name, "", "", quant, 0, "", "", True, SHAPES[name])
    assert cost_of(model, TARGETS["avx2"].lanes) == ours.cost


def test_extra_rows_of_a_tile() -> None:
    """To unpack keys and values costs as much for a head with one query as for one with twenty."""
    shape = SyntheticModel("glm-4.7-flash", "q4_0", SHAPES["glm-4.7-flash"])
    latent = sized(shape, 8).cost
    grouped = cost_of(by_alias("qwen3:0.6b") or pytest.fail("no such alias"), 8)

    machine = dataclasses.replace(MACHINE, bf16_gflops=1e-9)
    one = PassCost(again_flops=1.0)
    tokens = [TILE_ROWS * part_times(one, cost, machine).tile_s for cost in (grouped, latent)]
    assert tokens == pytest.approx([5.0, 0.5])
