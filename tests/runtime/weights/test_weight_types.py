"""A small model in each weight type that the `gguf` package can write, against plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.qwen3_numpy import divergence, forward
from helpers.tiers import quick

from triplepoint import Engine
from triplepoint.runtime.synthetic.shapes import Shape
from triplepoint.runtime.synthetic.write import SyntheticModel

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4")
FLOATS = ("f32", "f16", "bf16")
READ = ("nvfp4", "iq3_xxs", "iq3_s", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_s", "iq1_m")


@pytest.mark.parametrize("kind", quick([*TYPES, "mixed"], "q4_0", "q4_k", "mixed"))
def test_logits(tmp_path: Path, kind: str) -> None:
    """Logits are those of the dequantized weights, up to the int8 rounding of activations.

    A file may mix types in any way, also those of gate and up.
    """
    path = tmp_path / "tiny.gguf"
    mixed = {f"blk.{n}.ffn_gate.weight": gate for n, gate in enumerate(("q8_0", "f16"))}
    if kind == "mixed":
        tiny.write_tiny(path, "q5_1", kinds=mixed)
    else:
        tiny.write_tiny(path, kind)
    ids = np.random.default_rng(5).integers(0, 256, 70).tolist()
    with Engine.load(path, threads=1, kv="f32", context=128) as engine:
        got = engine.session().logits_for(ids)
        session = engine.session()
        pieces = np.concatenate([session.logits_for(ids[:1]), session.logits_for(ids[1:30])])
    want = forward(
        tiny.dequantized(path),
        ids,
        heads=tiny.HEADS,
        kv_heads=tiny.KV_HEADS,
        head_dim=tiny.HEAD_DIM,
        eps=tiny.EPS,
        rope_base=tiny.ROPE_BASE,
    )

    assert divergence(want, got).mean() < (1e-9 if kind in FLOATS else 2e-3)
    assert np.abs(got - want).max() < (1e-4 if kind in FLOATS else 0.04) * np.ptp(want)
    assert np.array_equal(pieces, got[:30])


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.mark.parametrize("seed", quick([None, *range(8)], None, 0))
def test_mixtures(tmp_path: Path, seed: int | None) -> None:
    """Matrices with one input that want it in three forms or more, whatever they are.

    Without a seed: three of a kind, which differ in their zero points alone.
    """
    rng = np.random.default_rng(seed)
    fixed = {"attn_q": "q4_0", "attn_k": "q5_0", "attn_v": "q8_0"}
    kinds = {
        f"blk.{layer}.{part}.weight": fixed.get(part, "q4_0")
        if seed is None
        else str(rng.choice(TYPES))
        for layer in range(tiny.LAYERS)
        for part in PARTS
    }
    path = tmp_path / "tiny.gguf"
    tiny.write_tiny(path, "q4_0", kinds=kinds)
    ids = np.random.default_rng(5).integers(0, 256, 70).tolist()
    with Engine.load(path, threads=1, kv="f32", context=128) as engine:
        got = engine.session().logits_for(ids)
        session = engine.session()
        pieces = np.concatenate([session.logits_for(ids[:1]), session.logits_for(ids[1:30])])
    sizes = {"heads": tiny.HEADS, "kv_heads": tiny.KV_HEADS, "head_dim": tiny.HEAD_DIM}
    want = forward(tiny.dequantized(path), ids, **sizes, eps=tiny.EPS, rope_base=tiny.ROPE_BASE)

    assert divergence(want, got).mean() < 2e-3
    assert np.abs(got - want).max() < 0.04 * np.ptp(want)
    assert np.array_equal(pieces, got[:30])


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_logits_of_types_that_are_only_read(tmp_path: Path, kind: str) -> None:
    """The same for types that nothing here can write, with random bits for quants and scales."""
    path = tmp_path / "random.gguf"
    shape = Shape(2, 256, 512, heads=4, kv_heads=2, tied=True, head_dim=64, vocab=4096)
    SyntheticModel("random", kind, shape).write(path)
    ids = np.random.default_rng(5).integers(0, 4000, 40).tolist()
    with Engine.load(path, threads=1, kv="f32", context=128) as engine:
        got = engine.session().logits_for(ids)
    sizes = {"heads": 4, "kv_heads": 2, "head_dim": 64, "eps": 1e-6, "rope_base": 1e6}
    want = forward(tiny.dequantized(path), ids, **sizes)

    assert divergence(want, got).mean() < 2e-3
    assert np.abs(got - want).max() < 0.04 * np.ptp(want)
