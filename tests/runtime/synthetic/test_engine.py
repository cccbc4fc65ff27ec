"""Synthetic models of every quantization through the engine, against numpy and llama.cpp."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from helpers.peer_logits import theirs
from helpers.qwen3_numpy import divergence, forward

from triplepoint import Engine
from triplepoint.runtime.synthetic import write as synthetic
from triplepoint.runtime.synthetic.write import QUANTS, Shape, SyntheticModel

# As small as K-quants allow, with two layers, so that a mixture has one of either kind.
SHAPE = Shape(2, 256, 512, heads=4, kv_heads=2, tied=True, head_dim=64)
HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 64}


@functools.cache
def _few_tokens() -> tuple[list[str], list[int], list[str]]:
    tokens, types, merges = synthetic.made_up_vocabulary()
    known = set(tokens[:1024])
    return tokens[:1024], types[:1024], [m for m in merges if m.replace(" ", "") in known]


@pytest.fixture
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> int:
    """Models of 1,024 tokens: the made-up vocabulary of Qwen3's size costs more than the rest."""
    few = _few_tokens()
    for name, value in (("N_VOCAB", 1024), ("ENDOFTEXT", 1022), ("IM_END", 1023)):
        monkeypatch.setattr(synthetic, name, value)
    monkeypatch.setattr(synthetic, "made_up_vocabulary", lambda: few)
    return 1024


@pytest.mark.slow
@pytest.mark.parametrize("quant", [quant for quant in QUANTS if quant != "f32"])
def test_through_the_engine(tmp_path: Path, few_tokens: int, quant: str) -> None:
    """Logits are near those of the dequantized weights, whole or in pieces: the same bits.

    What is left is the int8 quantization of activations.
    """
    path = tmp_path / "small.gguf"
    SyntheticModel("small", quant, SHAPE).write(path)
    ids = np.random.default_rng(5).integers(0, few_tokens, 70).tolist()
    with Engine.load(path, threads=1, kv="f32", context=128) as engine:
        whole = engine.session().logits_for(ids)
        session = engine.session()
        pieces = [session.logits_for(ids[a:b]) for a, b in ((0, 1), (1, 8), (8, 9), (9, 70))]
        last = engine.session()
        last.prefill(ids)
        prefilled = last.logits.copy()
        decoding = engine.session()
        decoding.prefill(ids[:40])
        chosen = list(decoding.decode(max_tokens=4, stop=()))

    want = forward(_dequantized(path), ids, **HEADS)
    assert np.isfinite(whole).all()
    assert 0.1 < want.std() < 10
    assert divergence(want, whole).mean() < 2e-4
    assert np.array_equal(np.concatenate(pieces), whole)
    assert np.array_equal(prefilled, whole[-1])
    assert chosen[0] == whole[39].argmax()


def _dequantized(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor as float32, by the `gguf` package."""
    return {
        t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1].tolist())
        for t in gguf.GGUFReader(path).tensors
    }


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["q4_k_m", "q6_k"])
def test_threads_do_not_change_bits(tmp_path: Path, few_tokens: int, quant: str) -> None:
    """Two threads give the logits that one gives, for one token and for more than are unpacked."""
    path = tmp_path / "small.gguf"
    SyntheticModel("small", quant, SHAPE).write(path)
    ids = np.random.default_rng(5).integers(0, few_tokens, 70).tolist()
    found = []
    for threads in (1, 2):
        with Engine.load(path, threads=threads, context=128) as engine:
            session = engine.session()
            session.prefill(ids)
            first = session.logits.copy()
            session.prefill(ids[:1])
            found.append((first, session.logits.copy()))

    assert all(np.array_equal(one, two) for one, two in zip(*found, strict=True))
    assert not np.array_equal(*found[0])


@pytest.mark.parametrize(
    "quant", ["q4_0", "q8_0", "q2_k", "q3_k_m", "iq4_xs", "q4_k_m", "q5_k_m", "q6_k"]
)
def test_as_llama_cpp(tmp_path: Path, peer: str, quant: str) -> None:
    """llama.cpp loads the file and its logits over 128 positions are ours: mean KL below 1e-3.

    Both quantize activations, each in its own way. Logits of random weights are flat: where
    another token is first, it must be one that llama.cpp holds for nearly as likely.
    """
    path = tmp_path / "small.gguf"
    SyntheticModel("small", quant, SHAPE).write(path)
    ids = np.random.default_rng(5).integers(0, 151_643, 128).tolist()
    want = theirs(peer, path, ids)
    with Engine.load(path, threads=1, kv="f32", context=128) as engine:
        ours = engine.session().logits_for(ids)

    behind = want.max(-1) - np.take_along_axis(want, ours.argmax(-1)[:, None], axis=-1)[:, 0]
    print(f"{quant}: KL {divergence(want, ours).mean():.2e}, top-1 {np.mean(behind == 0):.3f}")
    assert divergence(want, ours).mean() < 1e-3
    assert behind.max() < 0.15 * want.std()
    assert np.mean(behind == 0) > 0.85


def test_two_that_write_one_model(
    tmp_path: Path, few_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one leaves the file of the other, which may be in use by then."""
    monkeypatch.setitem(synthetic.SHAPES, "small", SHAPE)
    write, model = SyntheticModel.write, SyntheticModel("small", "q8_0", SHAPE)
    file = tmp_path / model.file_name

    def slow(model: SyntheticModel, path: Path, progress: Any) -> None:
        write(model, path, progress)
        write(model, file)  # by another process, meanwhile
        before.append(file.stat().st_ino)

    before: list[int] = []
    monkeypatch.setattr(SyntheticModel, "write", slow)

    assert synthetic.synthetic_path("synthetic:small:q8_0", tmp_path) == file
    assert [file.stat().st_ino] == before
    assert list(tmp_path.iterdir()) == [file]
