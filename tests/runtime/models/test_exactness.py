"""Quantized models of real widths are as near to what their weights stand for as llama.cpp's are.

The measure is the mean KL divergence from the same model in F32 with the weights that the type
stands for: what rounding the activations costs. llama.cpp's figures were recorded with
llama-cpp-python 0.3.36 (AVX-512 build, KV cache in float32); where that is installed they are
measured again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.peer_logits import theirs
from helpers.qwen3_numpy import divergence
from helpers.tiers import quick

from triplepoint.runtime.engine.engine import Engine

IDS = np.random.default_rng(1).integers(0, tiny.VOCAB, 256).tolist()
NEAR = 1.05  # of llama.cpp's divergence

# (model, width, FFN width, type): llama.cpp's mean KL divergence over `IDS`.
RECORDED = {
    ("qwen3", 1024, 3008, "q4_0"): 0.000889,
    ("qwen3", 1024, 3008, "q8_0"): 0.000913,
    ("qwen3", 1024, 3008, "q4_1"): 0.000957,
    ("qwen3", 1024, 3008, "q5_0"): 0.000897,
    ("qwen3", 1024, 3008, "q5_1"): 0.000939,
    ("qwen3", 1024, 3072, "q4_k"): 0.000194,
    ("qwen3", 1024, 3072, "q6_k"): 0.000262,
    ("llama", 1024, 3008, "q8_0"): 0.00214,
    ("qwen2", 896, 4864, "q4_0"): 0.000479,
    ("gemma3", 1152, 6912, "q4_0"): 0.000128,
    ("granite", 1024, 3072, "q8_0"): 1.06e-05,
    ("smollm3", 1024, 3008, "q4_0"): 0.00218,
    ("llama", 2048, 5632, "q4_0"): 0.00134,
    ("llama", 2048, 5632, "q8_0"): 0.00147,
    ("llama", 4096, 3008, "q4_0"): 0.0013,
}
QUICK = [("qwen3", 1024, 3008, "q4_0")]
OFTEN = [
    ("qwen3", 1024, 3008, "q8_0"),
    ("qwen3", 1024, 3072, "q4_k"),
    ("qwen3", 1024, 3072, "q6_k"),
    ("qwen2", 896, 4864, "q4_0"),
    ("gemma3", 1152, 6912, "q4_0"),
    ("llama", 2048, 5632, "q4_0"),
]


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, float]:
    """The quantized file, that of the weights it stands for, and llama.cpp's divergence."""
    name, width, ffn, kind = case = request.param
    wide = {
        **tiny.CONFIGS[name],
        "hidden_size": width,
        "intermediate_size": ffn,
        "head_dim": 64,
        "query_pre_attn_scalar": 64,
        "num_attention_heads": width // 64,
        "num_key_value_heads": width // 256 if width % 256 == 0 else 2,
        "num_hidden_layers": 3 if width < 2048 else 2,
    }
    files = tmp_path / "quantized.gguf", tmp_path / "plain.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny.WIDE, "wide", wide)
        tiny.write_model(files[0], "wide", kind)
        tiny.write_model(files[1], "wide", rounded_to=kind)
    return *files, RECORDED[case]


def _logits(path: Path) -> np.ndarray:
    with Engine.load(path, kv="f32") as engine:
        return engine.session().logits_for(IDS)


def _label(case: tuple[str, int, int, str]) -> str:
    return "{}-{}x{}-{}".format(*case)


@pytest.mark.slow
@pytest.mark.parametrize("model", QUICK, indirect=True, ids=_label)
def test_as_near_as_recorded(model: tuple[Path, Path, float]) -> None:
    """We are no farther from the dequantized model than llama.cpp was, but for 5 %."""
    quantized, plain, recorded = model
    assert 0 < divergence(_logits(plain), _logits(quantized)).mean() <= NEAR * recorded


@pytest.mark.parametrize(
    "model", quick([c for c in RECORDED if c not in QUICK], ci=OFTEN), indirect=True, ids=_label
)
def test_all_types_and_widths(model: tuple[Path, Path, float]) -> None:
    """Types, architectures, widths, and FFNs that are no multiple of 256."""
    test_as_near_as_recorded(model)


@pytest.mark.slow
@pytest.mark.parametrize("model", list(RECORDED), indirect=True, ids=_label)
def test_as_near_as_installed(model: tuple[Path, Path, float], peer: str) -> None:
    """The same beside the library; what was recorded is what it says."""
    quantized, plain, recorded = model
    want = _logits(plain)
    other = divergence(want, theirs(peer, quantized, IDS)).mean()

    assert other == pytest.approx(recorded, rel=0.1)
    assert 0 < divergence(want, _logits(quantized)).mean() <= NEAR * other
