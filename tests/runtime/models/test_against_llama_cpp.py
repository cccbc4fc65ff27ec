"""The same files in llama.cpp: what the file format means, by an engine that no one here wrote.

Random weights make poor models: their logits are nearly flat, so the noise of int8 activations
(which both engines have, each in its own way) often swaps the first two. So files in F32 must give
the same logits, and for Q8_0 both engines are validated against what the weights stand for. Trained
weights in all kinds of types are in `test_trained.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.peer_logits import theirs as theirs_of
from helpers.qwen3_numpy import divergence

from triplepoint.runtime.engine.engine import Engine

pytestmark = pytest.mark.slow

# llama.cpp leaves out the windows of Mistral and Phi-3, and knows one attention scale of Gemma.
MODELS = ["llama", "smollm3", "qwen2", "qwen2-yarn", "qwen3", "gemma2", "gemma3", "phi3-long",
          "phi3-short", "granite"]  # fmt: skip
# It takes its gelu from a table of float16.
FAR = {"gemma2": 2e-3, "gemma3": 2e-3}


def _ids(name: str) -> list[int]:
    count = tiny.CONTEXTS.get(name, tiny.CONTEXT)
    return np.random.default_rng(1).integers(0, tiny.VOCAB, count).tolist()


def _ours(path: Path, name: str, ids: list[int]) -> np.ndarray:
    with Engine.load(path, kv="f32", context=tiny.CONTEXTS.get(name)) as engine:
        return engine.session().logits_for(ids)


@pytest.mark.parametrize("name", MODELS)
def test_float_logits_are_the_same(tmp_path: Path, peer: str, name: str) -> None:
    """All logits of up to 512 positions are llama.cpp's, and so is every likeliest token."""
    path, ids = tmp_path / f"{name}.gguf", _ids(name)
    tiny.write_model(path, name)
    want, got = theirs_of(peer, path, ids), _ours(path, name, ids)

    assert np.abs(got - want).max() / np.ptp(want) <= FAR.get(name, 1e-4)
    assert (got.argmax(-1) == want.argmax(-1)).mean() >= 0.99
    assert 0 <= divergence(want, got).mean() <= 1e-6


@pytest.mark.parametrize("name", tiny.WIDE)
@pytest.mark.parametrize("kind", ["q4_0", "q4_k", "q6_k"])
def test_types_are_as_near(tmp_path: Path, peer: str, name: str, kind: str) -> None:
    """In other types, too, we are as far from the dequantized model as llama.cpp is."""
    path, plain, ids = tmp_path / f"{name}.gguf", tmp_path / f"{name}-plain.gguf", _ids(name)
    tiny.write_model(path, name, kind)
    tiny.write_model(plain, name, rounded_to=kind)
    want, ours, theirs = _ours(plain, name, ids), _ours(path, name, ids), theirs_of(peer, path, ids)

    assert 0 < divergence(want, ours).mean() <= 1.15 * divergence(want, theirs).mean()


@pytest.mark.parametrize("name", MODELS)
def test_quantized_logits_are_as_near(tmp_path: Path, peer: str, name: str) -> None:
    """With Q8_0 we are as far from the dequantized model as llama.cpp is, which rounds as we do.

    Where that model's first choice leads by a clear margin, we choose it too.
    """
    path, plain, ids = tmp_path / f"{name}.gguf", tmp_path / f"{name}-plain.gguf", _ids(name)
    tiny.write_model(path, name, "q8_0")
    tiny.write_model(plain, name, rounded_to="q8_0")
    want = _ours(plain, name, ids)
    ours, theirs = _ours(path, name, ids), theirs_of(peer, path, ids)

    assert 0 < divergence(want, ours).mean() <= 1.15 * divergence(want, theirs).mean()
    first, second = np.sort(want, axis=-1)[:, :-3:-1].T
    clear = first - second > 0.05 * np.ptp(want)
    assert clear.sum() > 50
    assert (ours.argmax(-1) == want.argmax(-1))[clear].mean() >= 0.99
    assert (ours.argmax(-1) == theirs.argmax(-1))[clear].mean() >= 0.99
