"""Synthetic models with recurrent layers: their shapes are whole, and they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.real_headers import HEADERS

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.quantize.mixes import MIXES
from triplepoint.runtime.quantize.quantize import plan_of
from triplepoint.runtime.synthetic import hybrids
from triplepoint.runtime.synthetic.shapes import SHAPES, Shape
from triplepoint.runtime.synthetic.tensors import layer_tensors
from triplepoint.runtime.synthetic.write import SyntheticModel
from triplepoint.traces.events import PhaseEvent

HYBRIDS = [name for name, shape in SHAPES.items() if shape.family in hybrids.FAMILIES]
# MiB of a sequence's state, and bytes of BF16 keys and values of a position.
PHYSICS = {
    "qwen3.5-4b": (50.25, 32768),
    "qwen3.5-35b-a3b": (62.8, 20480),
    "lfm2-1.2b": (0.16, 12288),
    "lfm2-8b-a1b": (0.28, 12288),
    "nemotron3-nano": (47.6, 6144),
    "qwen3.5-9b": (50.25, 32768),
    "lfm2-2.6b": (0.34, 16384),
    "granite4-h-micro": (73.8, 8192),
    "granite4-h-tiny": (55.4, 8192),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_states_and_caches_have_their_real_sizes(name: str) -> None:
    """What a sequence takes, by the shapes of the tensors, is what the published model takes."""
    s = SHAPES[name]
    floats = cached = 0
    for layer in range(s.layers):
        shapes = dict(hybrids.layer_tensors(s, layer))
        for part in ("ssm_conv1d.weight", "shortconv.conv.weight"):
            if part in shapes:
                channels, taps = shapes[part]
                floats += channels * (taps - 1)
        if "ssm_a" in shapes and s.recurrent is not None:
            _, heads, n, dim = s.recurrent
            floats += heads * n * dim
        cached += 2 * 2 * shapes.get("attn_k.weight", (0,))[0]

    assert floats * 4 / 2**20 == pytest.approx(PHYSICS[name][0], abs=0.06)
    assert cached == PHYSICS[name][1]


def test_small_projections_are_stored_as_their_kind() -> None:
    """Of names that begin alike only the vectors stay float32: alpha is a matrix, as beta is."""
    model = SyntheticModel.parse("synthetic:qwen3.5-4b:q4_0:layers=1")
    kinds = {name: kind.name for name, _, kind in model.tensors()}
    assert kinds["blk.0.ssm_alpha.weight"] == kinds["blk.0.ssm_beta.weight"] == "Q4_0"
    assert {kinds[f"blk.0.{part}"] for part in ("ssm_a", "ssm_norm.weight")} == {"F32"}


@pytest.mark.parametrize("quant", ["q2_k", "q3_k_m", "q4_k_m", "q5_k_m"])
@pytest.mark.parametrize("name", ["qwen3-0.6b", "qwen3-8b", "qwen3.5-4b", "lfm2-1.2b"])
def test_mixtures_are_those_of_quantize(name: str, quant: str, tmp_path: Path) -> None:
    """`triplepoint make quantize` would leave every tensor as it is."""
    mtp = ":mtp=1" if name == "qwen3.5-4b" else ""
    path = tmp_path / "header.gguf"
    SyntheticModel.parse(f"synthetic:{name}:{quant}:layers=9{mtp}").write_header(path)
    with open_gguf(path) as file:
        for info, chosen in plan_of(file, MIXES[quant.upper()]):
            assert chosen.kind is info.type, info.name


def run_small(name: str, shape: Shape, folder: Path) -> PhaseEvent:
    """Write it, prefill and decode it, with finite logits; gives the phase of the prefill."""
    path = folder / "small.gguf"
    SyntheticModel(name, "q4_0", shape).write(path)
    with Engine.load(path, threads=1, context=512) as engine:
        session = engine.session()
        session.sequence.profile = True
        session.prefill(list(range(300)))
        phase = session.last_phase
        assert np.isfinite(session.logits).all()
        assert np.ptp(session.logits) > 0
        assert len(list(session.decode(max_tokens=3))) == 3
        assert phase is not None
        return phase


@pytest.mark.slow
@pytest.mark.parametrize("name", HYBRIDS)
def test_small_ones_run(name: str, tmp_path: Path) -> None:
    """Written as every other, loaded, and behind some hundred tokens still finite."""
    shape = replace(
        SHAPES[name],
        layers=7,
        width=128,
        ffn=128,
        heads=4,
        kv_heads=2,
        head_dim=64,
        vocab=8192,
        experts=min(4, SHAPES[name].experts),
        experts_used=min(2, SHAPES[name].experts),
        expert_ffn=64,
        shared_ffn=min(64, SHAPES[name].shared_ffn),
        recurrent=(2, 4, 32, 32) if SHAPES[name].recurrent else None,
    )
    phase = run_small(name, shape, tmp_path)
    assert [r.layer for r in phase.layers if r.layer is not None] == list(range(shape.layers))
    assert all(r.observed for r in phase.layers if r.layer is not None)


def test_a_small_one_with_latent_attention_runs(tmp_path: Path) -> None:
    """The same for latent attention, behind a dense layer."""
    shape = replace(
        SHAPES["glm-4.7-flash"],
        layers=3,
        width=128,
        ffn=128,
        heads=4,
        head_dim=96,
        vocab=8192,
        experts=4,
        experts_used=2,
        expert_ffn=64,
        shared_ffn=64,
        ranks=(64, 64),
        latent_heads=(64, 32, 64),
    )
    run_small("small", shape, tmp_path)


def test_a_small_one_with_late_layers_runs(tmp_path: Path) -> None:
    """The same where layers without keys of their own have a wider feed-forward half."""
    shape = replace(
        SHAPES["gemma4-e2b"],
        layers=10,
        shared=4,
        width=128,
        ffn=128,
        late_ffn=256,
        heads=4,
        head_dim=32,
        wide=(64, 1),
        own=64,
        vocab=8192,
    )
    run_small("small", shape, tmp_path)


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("glm-4.7-flash", "GLM-4.7-Flash"),
        ("gpt-oss-20b", "gpt-oss-20b"),
        ("qwen3.5-35b-a3b", "Qwen3.5-35B-A3B"),
        ("nemotron3-nano", "NVIDIA-Nemotron-3-Nano-30B-A3B"),
        ("gemma4-e2b", "gemma-4-E2B"),
        ("gemma4-12b", "gemma-4-12B"),
        ("granite4-h-micro", "Granite-4.0-H-Micro"),
        ("granite4-h-tiny", "Granite-4.0-H-Tiny"),
    ],
)
def test_matrices_are_those_of_the_real_files(name: str, real: str) -> None:
    """Every matrix of every layer has the shape that it has in the published file."""
    shape = SHAPES[name]
    header = next(header for header in HEADERS if header.name == real)
    for layer in range(shape.layers):
        published = {
            part.removesuffix(".weight"): tuple(dims)
            for part, dims in header.kinds[header.layers[layer]].items()
            if len(dims) > 1 and 1 not in dims
        }
        ours = layer_tensors(shape, layer)
        made = {part.removesuffix(".weight"): dims for part, dims in ours if len(dims) > 1}
        assert {part: made.get(part) for part in published} == published
